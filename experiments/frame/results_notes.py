"""What stands beside the results: what was tried, and what experiments ran on."""

import fnmatch
import pathlib
from collections.abc import Mapping

DOCS = pathlib.Path(__file__).parents[2] / "docs"
TRIED = DOCS / "results" / "tried.toml"
DATA = DOCS / "results" / "data.toml"

Tried = Mapping[str, Mapping[str, str]]
"""By experiment and pattern of claims: what was tried where they did not come out."""

Data = Mapping[str, str]
"""By pattern of experiments: what they ran on. The first that matches counts."""


def title(content: dict) -> str:
  """The experiment, and its preset where that is not the usual one."""
  usual = content["preset"] == "cpu"
  return content["experiment"] + ("" if usual else f"-{content['preset']}")


def missed(content: dict) -> list[str]:
  """Claims that did not come out."""
  return [x["id"] for x in content["claims"] if x["verdict"] != "reproduced"]


def attempts(content: dict, tried: Tried) -> str:
  """What was tried, for each missed claim; the other patterns say nothing."""
  lines = []
  for pattern, text in tried.get(title(content), {}).items():
    names = sorted({x for x in missed(content) if fnmatch.fnmatchcase(x, pattern)})
    lines.append(f"* {', '.join(f'`{name}`' for name in names)}: {text}")
  return "\nTried:\n\n" + "\n".join(lines) + "\n" if lines else ""


def check_tried(results: list[dict], tried: Tried) -> None:
  """Ends with a message unless each missed claim, and no other, has its note."""
  without = {title(content): missed(content) for content in results}
  for experiment, names in without.items():
    patterns = tried.get(experiment, {})
    for name in names:
      if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
        raise SystemExit(f"{TRIED} must say what was tried for {experiment}: {name}")
  for experiment, patterns in tried.items():
    for pattern in patterns:
      if not fnmatch.filter(without.get(experiment, []), pattern):
        raise SystemExit(
          f"{TRIED} has {experiment}: {pattern}, but no such claim is missed"
        )


def about(content: dict, data: Data) -> str:
  """What an experiment ran on; empty where nothing says so."""
  name = title(content)
  return next((x for key, x in data.items() if fnmatch.fnmatchcase(name, key)), "")


def check_data(results: list[dict], data: Data) -> None:
  """Ends with a message unless each experiment is told of, and each line is shown."""
  shown = set()
  for content in results:
    if not (text := about(content, data)):
      raise SystemExit(f"{DATA} must say what {title(content)} ran on")
    shown.add(text)
  for pattern, text in data.items():
    if text not in shown:
      raise SystemExit(
        f"{DATA} has {pattern}, but no such experiment stands on the page"
      )

"""Writes docs/results.md, and a page per experiment, from the committed results.

python -m experiments.results_page           # writes the pages
python -m experiments.results_page --check   # fails if a page is stale
"""

import argparse
import fnmatch
import json
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence

from experiments.frame import results as report

DOCS = pathlib.Path(__file__).parents[1] / "docs"
TRIED, DATA, STATEMENTS = (
  DOCS / "results" / f"{name}.toml" for name in ("tried", "data", "statements")
)
"""Notes on missed claims, descriptions of data, and statements with their claims."""

Tried = Mapping[str, Mapping[str, str]]
"""Notes on missed claims, by experiment and pattern of claims."""
Texts = Mapping[str, str]
"""Descriptions of the data by pattern of experiments, or of figures by run and file."""


def title(content: report.Entry) -> str:
  """The experiment, and its preset unless that is cpu."""
  is_cpu = content["preset"] == "cpu"
  return content["experiment"] + ("" if is_cpu else f"-{content['preset']}")


def missed(content: report.Entry) -> list[str]:
  """Ids of the claims that were not reproduced."""
  return [x["id"] for x in content["claims"] if x["verdict"] != "reproduced"]


def attempts(content: report.Entry, tried: Tried) -> str:
  """Notes on what was tried for each missed claim."""
  lines = []
  for pattern, text in tried.get(title(content), {}).items():
    names = sorted({x for x in missed(content) if fnmatch.fnmatchcase(x, pattern)})
    lines.append(f"* {', '.join(f'`{name}`' for name in names)}: {text}")
  if not lines:
    return ""
  return "\n".join(["\nNotes on claims that were not reproduced:\n", *lines, ""])


def check_tried(results: list[report.Entry], tried: Tried) -> None:
  """Ends with a message unless exactly the missed claims have notes."""
  claims = [f"{title(x)}: {name}" for x in results for name in missed(x)]
  patterns = [f"{run}: {claim}" for run, notes in tried.items() for claim in notes]
  for name in claims:
    if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
      raise SystemExit(f"{TRIED} must say what was tried for {name}")
  for pattern in patterns:
    if not fnmatch.filter(claims, pattern):
      raise SystemExit(f"{TRIED} has {pattern}, but no such claim is missed")


def about(content: report.Entry, data: Texts) -> str:
  """Description of an experiment's data; empty if there is none."""
  name = title(content)
  return next((x for key, x in data.items() if fnmatch.fnmatchcase(name, key)), "")


def check_data(results: list[report.Entry], data: Texts) -> None:
  """Ends with a message unless experiments and descriptions match."""
  used_texts = set()
  for content in results:
    if not (text := about(content, data)):
      raise SystemExit(f"{DATA} must say what {title(content)} ran on")
    used_texts.add(text)
  for pattern, text in data.items():
    if text not in used_texts:
      raise SystemExit(f"{DATA} has {pattern}, but no such experiment is shown")


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
  """Markdown table; bars inside cells are escaped."""
  text = ""
  for row in (columns, ["---"] * len(columns), *rows):
    cells = [f"{cell}".replace("|", r"\|") for cell in row]
    text += f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|\n"
  return text


def alternative_texts(gallery: str) -> dict[str, str]:
  """Alternative texts of the gallery's figures, by run and file."""
  figures = re.findall(
    r"^```\{figure\} results/(.+)\n:alt: (.+)", gallery, re.MULTILINE
  )
  return {name: text[:1].upper() + text[1:] for name, text in figures}


def figure(content: report.Entry, alts: Texts) -> tuple[str, str]:
  """File and alternative text of the first figure that the gallery describes.

  A preset whose figures are not in the gallery has those of the usual preset there.
  """
  for run in (title(content), content["experiment"]):
    for file in content["pictures"]:
      if text := alts.get(f"{run}/{file}"):
        return file, text
  file = content["pictures"][0]
  return file, f"{pathlib.Path(file).stem} of python -m experiments.{run}"


def experiment_page(
  content: report.Entry, tried: Tried, data: Texts, alts: Texts
) -> str:
  """The page of an experiment: a figure, each claim, what was tried, each number."""
  name = title(content)
  picture = ""
  if content["pictures"]:
    file, alt = figure(content, alts)
    picture = f"```{{figure}} {name}/{file}\n:alt: {alt}\n```\n\n"
  ran_on = about(content, data)
  claims = [
    (f"`{x['id']}`", x["paper"], x["statement"], report.number_text(x["value"]),
     report.interval_text(x["interval"]), x["n"], report.verdict_text(x))
    for x in content["claims"]
  ]  # fmt: skip
  figures = [
    (*report.cells(row), "-" if row["paper"] is None else row["paper"])
    for row in content["rows"]
  ]
  columns = ("claim", "paper", "statement", "difference", "95 % interval", "n")
  return (
    f"# {name}\n\n{picture}"
    + (f"{ran_on}\n\n" if ran_on else "")
    + f"`{content['command']}` took {content['seconds']:g} s on {content['cores']} "
    f"core{'s' * (content['cores'] > 1)} ({content['device']}) with jax "
    f"{content['versions']['jax']}. See [all settings and values]({name}.json), "
    "[all results](../results.md) and the [gallery](../gallery.md), which explains the"
    " figures.\n\n"
    f"## Claims\n\n{_table((*columns, 'verdict'), claims)}"
    + attempts(content, tried)
    + "\n## Figures\n\n"
    + _table(("variant", "measure", "mean", "95 % interval", "paper"), figures)
  )


def tests_of(statement: report.Entry, results: list[report.Entry]) -> list[tuple]:
  """Results and claims that test a statement; ends with a message where none does.

  A statement has patterns `experiment: claim`, where a star is a wildcard.
  """
  tests = []
  for pattern in statement["claims"]:
    experiment, _, name = pattern.partition(": ")
    tested = [
      (content, claim)
      for content in results
      if title(content) == experiment
      for claim in content["claims"]
      if fnmatch.fnmatchcase(claim["id"], name)
    ]
    if not tested:
      raise SystemExit(f"{STATEMENTS} names {pattern}, but no such claim is tested")
    tests += tested
  return tests


def statement_row(
  number: int, statement: report.Entry, results: list[report.Entry]
) -> tuple[object, ...]:
  """A row of the table of statements."""
  tests = tests_of(statement, results)
  runs = {title(content): content["seconds"] / 60 for content, _ in tests}
  claims = sorted((claim for _, claim in tests), key=lambda claim: claim["value"])
  effects = [
    f"{report.number_text(claim['value'])} "
    f"{report.interval_text(claim['interval'])}".removesuffix(" -")  # no interval
    for claim in claims
  ]
  effect = " to ".join(dict.fromkeys((effects[0], effects[-1])))  # once where equal
  verdicts = [claim["verdict"] for claim in claims]
  counts = {x: verdicts.count(x) for x in report.VERDICTS if x in verdicts}
  verdict, *more = counts
  if more:
    verdict = ", ".join(f"{count} {name}" for name, count in counts.items())
  where = ", ".join(f"[{x}](results/{x}.md) ({t:.0f} min)" for x, t in runs.items())
  text = f"{statement['text']} ({statement['paper']})"
  return number, text, f"**{verdict}**", effect, where


def overview(
  results: list[report.Entry], said: report.Entry | None = None, cost: str = ""
) -> str:
  """The first page: the papers' statements, and each run's counts of verdicts."""
  said = said or {"statement": [], "header": "", "figure": ""}
  statements = said["statement"]
  statement_rows = [statement_row(i, x, results) for i, x in enumerate(statements, 1)]
  objections = [f"{i}. {x['objection']}" for i, x in enumerate(statements, 1)]
  runs = []
  for content in results:
    verdicts = [claim["verdict"] for claim in content["claims"]]
    counts = map(verdicts.count, report.VERDICTS)
    name, minutes = title(content), f"{content['seconds'] / 60:.1f}"
    runs.append((f"[{name}](results/{name}.md)", len(verdicts), *counts, minutes))
  columns = ("", "statement", "verdict", "smallest and largest difference", "run")
  return "\n".join(
    [
      said["header"],
      _table(columns, statement_rows),
      said["figure"],
      *objections,
      "\n## Every run\n",
      "Do not add up claims across runs: some test the same claims on other data.\n",
      _table(("run", "claims", *report.VERDICTS, "minutes"), runs),
      *([cost] if cost else []),
      "```{toctree}\n:hidden:\n:glob:\n\nresults/*\n```\n",
    ]
  )


def cost_section(file: pathlib.Path) -> str:
  """Table of the claims about cost (DML 5.3.4.4) from a result of `benchmarks.gsp`.

  Raises:
    SystemExit: the file is not such a result.
  """
  try:
    content = json.loads(file.read_text(encoding="utf-8"))
    lines = [
      (f"`{name}`", "DML 5.3.4.4, figure 5.9", statement, f"{difference:.3g}",
       f"{'' if difference > 0 else 'not '}reproduced")
      for name, statement, difference in cost_claims(content["rows"])
    ]  # fmt: skip
    return (
      "## Cost of generalized sum pooling\n\n"
      f"`{content['command']}` ran on {content['machine']}. Differences are medians of "
      "paired repetitions, without an interval. k is the number of steps of the "
      "paper's iteration, and b is the inverse temperature. "
      "Both forms are that iteration, "
      "differentiated through its steps or by a closed form. "
      "[Benchmarks](benchmarks.md) lists all times.\n\n"
      + _table(("claim", "paper", "statement", "difference", "verdict"), lines)
    )
  except (LookupError, StopIteration, TypeError, ValueError, OSError) as error:
    raise SystemExit(f"{file} is no result of benchmarks.gsp: {error!r}") from error


def cost_claims(rows: list[report.Entry]) -> list[tuple[str, str, float]]:
  """Name, statement and difference of each claim about cost; it should be positive."""
  swept = next(row for row in rows if row["case"] == "steps")
  changes = swept["change of a weight from k = 25 to 100"].values()
  claims = [
    ("cost-flat",
     "closed-form gradient: time at k = 200 < 1.5 times that at k = 10 (1.5 minus the "
     "ratio)",
     1.5 - swept["closed form, k = 200 / k = 10"]),
    ("cost-unrolled",
     "differentiated through its steps: memory grows with k (least KiB per step)",
     min(swept["bytes a step, unrolled"]) / 1024),
    ("k-enough",
     "weights of k = 25 and k = 100 differ by less than 1e-6 (1e-6 minus the largest "
     "change)",
     1e-6 - max(changes)),
  ]  # fmt: skip
  for row in rows:
    if row["case"].startswith("cost-ours"):
      sharpness, steps = re.findall(r"= ([\d.]+)", row["case"])
      text = (
        f"b = {sharpness}: ours no slower than either form at the {steps} steps "
        "that reach a residual of 1e-6 (least theirs / ours, minus 1)"
      )
      least = min(row["ratio"].values()) - 1
      claims.append((f"cost-ours-{sharpness}", text, least))
  return claims


def read(file: pathlib.Path) -> report.Entry:
  """Reads a result; ends with a message unless it can be a page."""
  try:
    content = json.loads(file.read_text(encoding="utf-8"))
    experiment_page(content, {}, {}, {})
    overview([content])
  except Exception as error:  # a missing field can fail in any way
    raise SystemExit(f"{file} is no result of an experiment: {error!r}") from error
  return content


def pages() -> dict[pathlib.Path, str]:
  """Texts of all pages of the committed results, by their files."""
  results = [read(file) for file in sorted((DOCS / "results").glob("*.json"))]
  tried, data, said = (
    tomllib.loads(x.read_text(encoding="utf-8")) for x in (TRIED, DATA, STATEMENTS)
  )
  check_tried(results, tried)
  check_data(results, data)
  cost = cost_section(DOCS / "benchmarks" / "gsp.json")
  alts = alternative_texts((DOCS / "gallery.md").read_text(encoding="utf-8"))
  texts = {DOCS / "results.md": overview(results, said, cost)}
  for content in results:
    target = DOCS / "results" / f"{title(content)}.md"
    texts[target] = experiment_page(content, tried, data, alts)
  return texts


def main() -> None:
  """Writes or checks the pages."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--check", action="store_true", help="fail if a page is stale")
  check = parser.parse_args().check
  texts = pages()
  existing = {DOCS / "results.md", *(DOCS / "results").glob("*.md")}
  if check:
    for path in sorted(existing | texts.keys()):
      if not path.exists() or path.read_text(encoding="utf-8") != texts.get(path):
        sys.exit(f"{path} is stale: run python -m experiments.results_page")
    return
  for path in existing - texts.keys():
    path.unlink()
  for path, text in texts.items():
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
  main()

"""Claims about cost (DML 5.3.4.4), which the benchmark of pooling measures."""

import json
import pathlib
import re
from typing import Any

_GROWTH = "closed form, k = 200 / k = 10"
_SLOPES = "bytes a step, unrolled"
_CHANGES = "change of a weight from k = 25 to 100"


def section(file: pathlib.Path) -> str:
  """A table of the claims in what `python -m benchmarks.gsp` wrote.

  Raises:
    SystemExit: the file is no such result.
  """
  try:
    content = json.loads(file.read_text(encoding="utf-8"))
    lines = [
      f"| `{name}` | DML 5.3.4.4, figure 5.9 | {statement} | {difference:.3g} | "
      f"{'' if difference > 0 else 'not '}reproduced |"
      for name, statement, difference in claims(content["rows"])
    ]
    head = (
      "### Cost of generalized sum pooling\n\n"
      f"`{content['command']}` on {content['machine']}; medians of paired repetitions, "
      "without an interval; all times stand in [Benchmarks](benchmarks.md).\n\n"
    )
  except (LookupError, StopIteration, TypeError, ValueError, OSError) as error:
    text = f"{file} is no result of benchmarks.gsp: {type(error).__name__}: {error}"
    raise SystemExit(text) from error
  return (
    head + "| claim | paper | statement | difference | verdict |\n"
    "| --- | --- | --- | --- | --- |\n" + "\n".join(lines) + "\n"
  )


def claims(rows: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
  """Name, statement and a difference that should be positive; of a whole run."""
  swept = next(row for row in rows if row["case"] == "steps")
  found = [
    (
      "cost-flat",
      "closed-form gradient: time at k = 200 < 1.5 of k = 10's (1.5 less the ratio)",
      1.5 - swept[_GROWTH],
    ),
    (
      "cost-unrolled",
      "differentiated through its steps: memory grows with k (least KiB a step)",
      min(swept[_SLOPES]) / 1024,
    ),
    (
      "k-enough",
      "weights of k = 25 and k = 100 differ by less than 1e-6 (1e-6 less the change)",
      1e-6 - max(swept[_CHANGES].values()),
    ),
  ]
  for row in rows:
    if row["case"].startswith("cost-ours"):
      sharpness, steps = re.findall(r"= ([\d.]+)", row["case"])
      found.append(
        (
          f"cost-ours-{sharpness}",
          f"b = {sharpness}: ours at most as slow as either form at the {steps} steps "
          "of a residual of 1e-6 (least theirs / ours, less 1)",
          min(row["ratio"].values()) - 1,
        )
      )
  return found

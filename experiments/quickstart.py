"""Digit collages: does generalized sum pooling find the digit that matters?

A collage is one labelled digit among eight digits that say nothing about the label. An
embedding by global average pooling (GAP) contains all nine; generalized sum pooling
(GSP) can leave the eight out. Both are trained with a contrastive loss. The setting is
that of DML 5.3.2, with larger collages, on images that scikit-learn ships.

    python -m experiments.quickstart                  # 43 s on 2 cores
    python -m experiments.quickstart --preset smoke   # seconds

With the extra `pretrained`, `--images FOLDER` makes collages of your photographs, with
one sub-folder per class, and embeds them with a network trained on ImageNet:

    python -m experiments.quickstart --images FOLDER --output runs/photographs
"""

import pathlib

import jax
import rich.console
import rich.table
import tqdm

from experiments.frame import results
from experiments.frame.study import Claim, Measured, Study, Table
from experiments.gsp import quick, quick_figure
from experiments.gsp.quick import Config

PRESETS = {"cpu": Config(), "smoke": Config(seeds=2, steps=24, collages=(300, 120))}


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Trains both poolings with all seeds; the first seed's test collages are shown."""
  source = config.images
  tiles = quick.photographs(source) if source else quick.digits()
  keys = [jax.random.key(config.seed + number) for number in range(config.seeds)]
  tiled = [quick.collages(tiles, config.collages, key) for key in keys]
  parts, names = 2 * (config.parts - 1) * config.seeds, tiles.names[: tiles.split]
  with tqdm.tqdm(total=parts, desc="training", unit="part") as progress:
    runs = quick.compare(config, tiled, names, output / "kept", progress.update)
  table = Table()
  for run in runs:
    for name, trained in run.items():
      table.add_all(name, trained.measures)
  shown = quick.collages(tiles, config.collages, keys[0], as_pixels=True).test
  most = 3 if source else 6  # collages of the figure
  return table, lambda: {
    "weights": quick_figure.draw(shown, runs[0], tiles.names, most)
  }


CLAIMS = Claim.of_rows([
  ("quickstart-gsp", "MAP@R(GSP) > MAP@R(GAP)",
   lambda t: t.gain("MAP@R", "GSP", over="GAP")),
  ("quickstart-attention", "weight on the labelled tile: GSP > GAP",
   lambda t: t.gain(quick.WEIGHT, "GSP", over="GAP")),
])  # fmt: skip


def summary(
  content: results.Entry, output: pathlib.Path
) -> list[rich.console.RenderableType]:
  """Table of the results, and a sentence that explains it."""
  rows = {(row["metric"], row["name"]): row["mean"] for row in content["rows"]}
  table = rich.table.Table(title="retrieval among test collages")
  for heading in ("", "GAP", "GSP", "GSP - GAP", "95 % interval", "seeds above 0"):
    table.add_column(heading, justify="right" if heading else "left")
  for claim, metric in zip(content["claims"], ("MAP@R", quick.WEIGHT), strict=True):
    above = sum(value is not None and value > 0 for value in claim["values"])
    means = (rows[metric, name] for name in ("GAP", "GSP"))
    numbers = map(results.number_text, (*means, claim["value"]))
    interval = results.interval_text(claim["interval"])
    table.add_row(metric, *numbers, interval, f"{above} of {claim['n']}")
  average, share = (100 * rows[quick.WEIGHT, name] for name in ("GAP", "GSP"))
  won = content["claims"][0]["verdict"] == results.REPRODUCED
  return [
    table,
    f"GSP puts {share:.0f} % of its weight on the tile that the label is about, the"
    f" average {average:.0f} %; retrieval is"
    f" {'better' if won else 'not reliably better'} for it."
    f" {content['seconds']} s, figure in {output}/weights.png.",
  ]


STUDY = Study(
  "quickstart", __doc__, "DML 5.3.2", PRESETS, measure, CLAIMS,
  short=True, summary=summary,
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()

"""Class trees: which losses follow a tree, with and without seeing it?

Networks are trained with softmax, NormFace, ProxyDR and CORR. Their proxies are
learned, moving averages (EMA), learned with a dynamic scale, or laid out to follow the
tree (MDS). The study measures accuracy, the distance of mistakes in the tree,
retrieval, and how well proxies and class means follow the tree. DIST, article IV.

    python -m experiments.class_hierarchy                    # 9 min
    python -m experiments.class_hierarchy --preset cub_birds100         # 14 min
    python -m experiments.class_hierarchy --preset cars196              # 4 min
    python -m experiments.class_hierarchy --preset ndsb_plankton        # 28 min
    python -m experiments.class_hierarchy --preset smoke     # seconds
    python -m experiments.class_hierarchy --preset full --data cifar100

The first four train a linear layer and the proxies on features of a frozen
EfficientNet-Lite0, which was trained on ImageNet. Their data are Tiny ImageNet with
WordNet's tree, birds with orders and families, cars with body types, and plankton with
its taxonomy. `full` trains the article's network for each set: Inception v3 for
plankton, ResNet-50 for the others. The sets are prepared by tensorflow-datasets in
TFDS_DATA_DIR; nabirds, micro_s, micro_l and meso_z are folders in --folder.
"""

import pathlib

import tqdm

from experiments.frame import at_once, images
from experiments.frame.kept import Finished
from experiments.frame.study import Measured, Study, Table
from experiments.hierarchies import claims, measures, pictures
from experiments.hierarchies import runs as class_runs
from experiments.hierarchies.runs import PRESETS, Config


def measure(config: Config, output: pathlib.Path) -> Measured:
  """Runs all trainings and the controls."""
  whole = images.load(config.data, config.image_size, config.folder, config.percent)
  whole = class_runs.as_network_input(config, whole, output / "kept")
  seeds = range(config.seed, config.seed + config.seeds)
  inputs = {seed: class_runs.shared_inputs(config, whole, seed) for seed in seeds}
  trainings = [(name, seed) for seed in seeds for name in config.settings]
  total = len(trainings) * config.epochs
  with tqdm.tqdm(total=total, unit="epoch") as progress:

    def train_seed(job: tuple[str, int]) -> Finished:
      name, seed = job
      path = output / "trained" / f"{name}-{seed}"
      return class_runs.train(name, inputs[seed], config, path, progress)

    results = dict(zip(trainings, at_once.threaded(train_seed, trainings), strict=True))
  controls = [measures.controls(config, shared) for shared in inputs.values()]
  names, table = config.settings, Table()
  runs = {x: {seed: results[x, seed].figures["test"] for seed in seeds} for x in names}
  curves = {x: [results[x, seed].figures["curves"] for seed in seeds] for x in names}
  firsts = {x: results[x, config.seed].arrays["prototypes"] for x in names}
  claims.add_runs(table, runs, controls, inputs[config.seed].related, config)
  claims.add_curves(table, curves)
  tree = images.readable_tree(whole.tree, config.data)
  return table, lambda: pictures.draw(curves, firsts, tree)


STUDY = Study(
  "class_hierarchy", __doc__, "DIST IV", PRESETS, measure, claims.claims,
  charts=pictures.charts, resolved=class_runs.resolved,
  options=(
    "data", "folder", "percent", "settings", "network", "width", "weights", "dim",
    "image_size", "augment", "epochs", "batch", "test_images", "curve_images", "seed",
    "seeds",
  ),
)  # fmt: skip

if __name__ == "__main__":
  STUDY.main()

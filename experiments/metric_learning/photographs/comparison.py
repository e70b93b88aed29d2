"""`retrieval` at the thesis's scale: photographs, real backbones, every protocol.

Trainings run one after another on all devices. Each has its own checkpoints, so the
same command resumes a stopped run; finished trainings are read.
"""

import dataclasses
import functools
import hashlib
import itertools
import pathlib
import shutil
from collections.abc import Callable

import jax
import numpy as np

from experiments.frame import kept as finished
from experiments.frame import networks, pictures
from experiments.frame.study import Measured, Table
from experiments.metric_learning.photographs import (
  batches,
  claims,
  methods,
  protocols,
  training,
)
from experiments.metric_learning.photographs import sets as picture_sets
from experiments.metric_learning.photographs.methods import FullConfig, Job
from experiments.metric_learning.photographs.protocols import Split
from experiments.published import dml
from spherejax import data

# Settings that do not decide whether the thesis's figures apply, or that `complete`
# compares through the protocol.
_EXEMPT = (
  "dataset", "folder", "learned_classes", "methods", "protocol", "folds", "seed",
  "backbone", "width", "weights", "repeats", "batch", "evaluate_every", "patience",
  "dim", "learning_rate", "weight_decay", "pooling", "remat", "checkpoint_every",
  "evaluation_batch", "cache_gib", "workers", "prefetch",
)  # fmt: skip

# Settings of other trainings, settings that were filled in, or that change no outcome.
_OUTSIDE_DIGEST = {
  name: getattr(FullConfig(), name)
  for name in (
    "methods", "folds", "repeats", "trials", "proxies", "pool", "memory",
    "skip_unreadable", "workers", "prefetch", "cache_gib", "checkpoint_every",
  )
}  # fmt: skip

WATCHED = "chosen by the test images"  # note on figures of conventional protocols
_SCORE = "MAP@R [%]"
WEIGHTS, PROXIES = (-6.0, 0.0), (1, 16)  # ranges; weights as powers of ten


class Comparison:
  """Trains and judges all methods of a run."""

  def __init__(
    self,
    config: FullConfig,
    output: pathlib.Path,
    sets: picture_sets.Sets | None = None,
  ):
    if not config.weights:
      raise SystemExit(
        f"--weights must name a file of ImageNet's weights of {config.backbone}, or be"
        " none for a network that begins as it is drawn"
      )
    self.config, self.output = config, output
    self.protocol = methods.protocol_of(config)
    self.jobs = [methods.job(config, self.protocol, name) for name in config.methods]
    names = [job.name for job in self.jobs]
    if not names or len(set(names)) < len(names):
      raise ValueError(f"methods must name at least one, each once, got {names}")
    for architecture in dict.fromkeys(job.settings.architecture for job in self.jobs):
      networks.check(architecture)
    self.models = [fold - 1 for fold in config.folds] or range(self.protocol.models)
    if not set(self.models) <= set(range(self.protocol.models)):
      raise ValueError(
        f"folds must be among 1 to {self.protocol.models}, got {config.folds}"
      )
    self.sets = sets or picture_sets.load(
      config.dataset, config.folder, config.learned_classes, config.skip_unreadable
    )
    self.splits = protocols.splits(self.protocol, len(self.sets.learned.label_names))
    picture_sets.check_matches(self.sets.sought, "sought")
    for number in self.models:
      split = self.splits[number]
      if len(split.held):
        held, what = self._learned(split.held), f"held-out (fold {number + 1})"
        picture_sets.check_matches(held, what)
      for job in self.jobs:
        training.check(job.settings, job.method, self._learned(split.train))

  @property
  def judged(self) -> bool:
    """True if the protocol evaluates the images of the unseen classes."""
    return self.flattered or self.config.protocol in ("fair", "fair534")

  @property
  def flattered(self) -> bool:
    """True if the test images end a training and choose the weights."""
    return self.protocol.parts == 1

  @property
  def complete(self) -> bool:
    """True if the settings are those of the figures in the thesis."""
    c, default = self.config, FullConfig()
    same = (
      dataclasses.replace(c, **{x: getattr(default, x) for x in _EXEMPT}) == default
    )
    printed = protocols.protocol(c.protocol, c.dataset, c.backbone)
    size = dml.SIZES[c.dataset]
    return (
      self.protocol == printed._replace(dim=self.protocol.dim)
      and len(self.models) == printed.models
      and len(self.sets.learned.label_names) == size["learned_classes"]
      and c.weights != "none"
      and c.width in (0, methods.WIDTHS[c.backbone])
      and same
    )

  @functools.cached_property
  def sought(self) -> data.Images:
    """Test images, evaluated in the same way for all methods."""
    return batches.watched(self.jobs[0].settings, self.sets.sought)

  def train(self) -> dict[str, list[list[finished.Finished]]]:
    """Trains all methods; returns outcomes by name, [models][repeats]."""
    by_name: dict[str, list[list[finished.Finished]]] = {
      job.name: [] for job in self.jobs
    }
    repeats = range(self.protocol.repeats)
    for number in self.models:
      watched = functools.cache(functools.partial(self._watched, self.splits[number]))
      for job in self.jobs:
        runs = [self._train_once(job, number, repeat, watched) for repeat in repeats]
        by_name[job.name].append(runs)
    return by_name

  def validated(self) -> np.ndarray:
    """MAP@R on the validation classes, [repeats], for one method and model."""
    ((runs,),) = self.train().values()
    return np.array([run.figures["best"]["MAP@R"] for run in runs])

  def _watched(self, split: Split) -> data.Images:
    if not len(split.held):
      return self.sought
    return batches.watched(self.jobs[0].settings, self._learned(split.held))

  def _learned(self, classes: np.ndarray) -> data.Images:
    return data.take_classes(self.sets.learned, classes)

  def made_with(self, job: Job) -> str:
    """Digest of a training's inputs, without options that only affect reading speed."""
    settings = dataclasses.replace(job.settings, **_OUTSIDE_DIGEST)
    return finished.digest((settings, job.method, *self._inputs))

  @functools.cached_property
  def _inputs(self) -> tuple[str, str]:
    """Digests of the rows, labels and class names of images, and of weights.

    No image is read, but the file of weights, as its content may change.
    """
    image_sets = (self.sets.learned, self.sets.sought)
    names = [np.array(part.label_names) for part in image_sets]
    rows = [x for part in image_sets for x in (part.extras["row"], part.labels)]
    weights = ""
    if self.config.weights != "none":
      with open(self.config.weights, "rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
    return finished.fingerprint([*names, *rows]), weights

  def _train_once(
    self, job: Job, number: int, repeat: int, watched: Callable[[], data.Images]
  ) -> finished.Finished:
    """Runs a training, or reads its stored outcome."""
    made_with = self.made_with(job)
    name = f"{job.name}-{number + 1}-{repeat + 1}"
    checkpoints = self.output / "checkpoints" / f"{name}-{made_with}"

    def make() -> finished.Finished:
      # Compared methods share initial weights and, if possible, batches.
      start = jax.random.key(self.config.seed)
      key = functools.reduce(jax.random.fold_in, (number, repeat), start)
      learned = self._learned(self.splits[number].train)
      evaluations = self.output / "evaluations" / f"{name}-{made_with}.json"
      variables, figures = training.train(
        job.settings, job.method, learned, watched(), key, checkpoints, evaluations
      )
      model = networks.Model(job.settings.architecture, variables)
      suffix = f"-{repeat + 1}" if self.protocol.repeats > 1 else ""
      folder = self.output / f"model-{job.name}-{number + 1}{suffix}"
      shutil.rmtree(folder, ignore_errors=True)  # a model of other settings
      networks.keep(folder, model, figures["best"]["step"])
      points = np.zeros((0, job.settings.embedding_dim), np.float32)
      if self.judged:
        points = batches.embed(job.settings, variables, self.sought)
      return finished.Finished(figures, {"points": points})

    path = self.output / "kept" / f"{name}-{made_with}"
    outcome = finished.once(path, made_with={"made with": made_with}, make=make)
    # The checkpoints of a whole table would fill a disk.
    shutil.rmtree(checkpoints, ignore_errors=True)
    return outcome

  def judge(
    self, job: Job, folds: list[list[finished.Finished]]
  ) -> dict[int, list[dict[str, float]]]:
    """Measures of networks or combinations in percent, by dimension.

    At the dimension of one network, they are averages over the networks of each
    combination; at the larger one, measures of their concatenated embeddings.
    """
    dim = job.settings.embedding_dim
    if not self.judged:
      return {dim: [run.figures["best"] for runs in folds for run in runs]}
    record = {"made with": self.made_with(job), "models": list(self.models)}
    record["repeats"] = self.protocol.repeats

    points = [[run.arrays["points"] for run in runs] for runs in folds]
    measured = functools.partial(protocols.measures, images=self.sets.sought)

    def make() -> finished.Finished:
      single = [[measured(x) for x in runs] for runs in points]
      figures = {f"{dim}": self._best_repeats(single)}
      if len(folds) > 1:  # all combinations of one repeat per model
        ways = itertools.product(*points)
        figures[f"{dim * len(folds)}"] = [measured(protocols.joined(x)) for x in ways]
      return finished.Finished(figures, {})

    path = self.output / "kept" / f"{job.name}-judged-{finished.digest(record)}"
    stored = finished.once(path, made_with=record, make=make)
    return {int(size): values for size, values in stored.figures.items()}

  def _best_repeats(
    self, single: list[list[dict[str, float]]]
  ) -> list[dict[str, float]]:
    """Measures of single networks: the best repeats, or averages over combinations."""
    if self.flattered:
      return [max(runs, key=lambda run: run[self.protocol.metric]) for runs in single]
    if len(single[0]) == 1:
      return [runs[0] for runs in single]
    return [protocols.average(way) for way in itertools.product(*single)]

  def tabulate(
    self, table: Table, job: Job, folds: list[list[finished.Finished]]
  ) -> None:
    """Adds the measures of a method's trainings."""
    spread = self.judged and self.protocol.models > 1 and self.protocol.repeats > 1
    note = f": {WATCHED}" if self.flattered else ""
    c, complete, judged = self.config, self.complete, self.judge(job, folds)
    for dim, values in judged.items():
      paper = dml.cell(c.protocol, c.backbone, job.name, c.dataset, dim)
      protocols.tabulate(
        table, job.title, dim, values, paper=paper if complete else None, spread=spread,
        note=note,
      )  # fmt: skip
    printed = dml.TABLE_3_3.get(job.name, {}).get(c.dataset)
    steps = [run.figures["steps"] / 1000 for runs in folds for run in runs]
    paper = printed if complete and c.protocol == "fair" else None
    table.add(job.title, "steps / 1000", steps, paper=paper)
    claims.add(table, job.name, judged)


def measure(config: FullConfig, output: pathlib.Path) -> Measured:
  """Trains and judges all methods, or tries weights and numbers of proxies."""
  if config.trials:
    return search(config, output)
  comparison = Comparison(config, output)
  table, trained = Table(), comparison.train()
  for job in comparison.jobs:
    comparison.tabulate(table, job, trained[job.name])
  return table, dict


def search(config: FullConfig, output: pathlib.Path) -> Measured:
  """Figure 3.5 of DML: compares weights and numbers of proxies on validation classes.

  Trials are stored like any training, so the same command resumes.
  """
  validates, alone = config.protocol in ("ablation", "tuning"), len(config.methods) == 1
  if not (validates and alone and "ccp" in config.methods[0].split("+")):
    raise ValueError(
      "--trials need one method with ccp, and validation classes, by protocol ablation"
      f" or tuning; got {' '.join(config.methods)} by {config.protocol}"
    )
  random, sets = np.random.default_rng(config.seed), None
  weights = 10 ** random.uniform(*WEIGHTS, config.trials)
  proxies = random.integers(*PROXIES, config.trials, endpoint=True)
  table, titles, scores = Table(), [], []
  for number, (weight, of_class) in enumerate(zip(weights, proxies, strict=True), 1):
    settings = dataclasses.replace(
      config, trials=0, weight=float(weight), proxies=int(of_class)
    )
    trial = Comparison(settings, output / f"trial-{number}", sets)
    sets = trial.sets
    titles.append(f"weight {weight:.3g}, proxies {of_class}")
    scores.append(trial.validated())
    table.add(f"{config.methods[0]}, {titles[-1]}", _SCORE, scores[-1])
  means = np.mean(scores, axis=1)
  best = means.argmax()
  table.add(f"best: {titles[best]}", _SCORE, scores[best])

  def draw() -> dict[str, pictures.Figure]:
    figure = pictures.new_figure(6, 4.5)
    axes = figure.add_subplot()
    dots = axes.scatter(weights, proxies, c=means, cmap="viridis", s=60)
    axes.set(xlabel="weight", xscale="log", ylabel="proxies of a class")
    figure.colorbar(dots, label=f"{_SCORE}, validation classes")
    return {"search": figure}

  return table, draw

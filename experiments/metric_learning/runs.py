"""Trainings of `retrieval` and `ccp_proxies`: all seeds at once, kept, tested."""

import dataclasses
import functools
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import kept as finished
from experiments.frame import networks
from experiments.frame import training as frame_training
from experiments.metric_learning import methods, objective
from experiments.metric_learning.images import Study
from experiments.metric_learning.measures import MARGIN, NAMES, measures
from experiments.metric_learning.methods import Method
from experiments.metric_learning.settings import Settings
from experiments.metric_learning.training import Data, Run, State, of_fold, on_device
from spherejax import distances


class Trained(NamedTuple):
  """Figures of all runs of a method, [cells, seeds, ...] each."""

  curves: dict[str, np.ndarray]  # [cells, seeds, evaluations], NaN once it stopped
  best: np.ndarray  # evaluation, from 0
  test: dict[str, np.ndarray]  # [cells, seeds]
  points: np.ndarray  # [cells, seeds, test images, dim], of the best networks
  proxies: np.ndarray  # [cells, seeds, classes, proxies, dim], beside them
  first_spread: np.ndarray  # [cells, seeds], of the proxies before the first step
  rate: float = 1.0  # by which the learning rates were multiplied


def check(settings: Settings, method: Method, study: Study) -> None:
  """Raises ValueError for what would end a training, or spoil it, later."""
  shape = (settings.image_size, settings.image_size, settings.channels)
  if study.images.shape[1:] != shape:
    raise ValueError(
      "image_size, image_size and channels must be those of the images,"
      f" {study.images.shape[1:]}, got {shape}"
    )
  if settings.shift >= settings.image_size:
    raise ValueError(
      f"shift must be below the {settings.image_size} pixels of the images' side, or"
      f" nothing of them may be left, got {settings.shift}"
    )
  images, classes = len(study.train_labels), len(np.unique(study.train_labels))
  per_class = 1 if method.own_proxies else settings.per_class
  if settings.batch // per_class > classes:
    raise ValueError(
      f"a batch of {settings.batch} has {settings.batch // per_class} classes, but only"
      f" {classes} are learned"
    )
  methods.check(method, settings.switch_patience)
  if method.kind == "xbm" and method.memory * classes > 1.25 * images:
    raise ValueError(
      f"a memory of {method.memory * classes} embeddings is larger than the {images}"
      " images that are learned"
    )
  objective.check(settings)
  networks.check(settings.architecture)


def _score(state: State, key: Array, hyper: Any) -> Array:
  del key, hyper
  return state.score


def train(
  settings: Settings,
  method: Method,
  study: Study,
  cells: Mapping[str, Sequence[float]],
  folder: pathlib.Path,
  title: str = "",
  rates: Sequence[float] = (1.0,),
) -> Trained:
  """Trains all cells ("weight" of the projection, "fold") and seeds at once.

  Of the rates, multiples of every learning rate, the one is kept whose validation
  images are found best on average. Where each seed divides the classes in its own way
  the folds are those of the seeds, whatever `cells` has. What was trained under
  `folder` with the same settings is read from there. Its first network is kept as
  `model-` and the title, the method's name where none is given. FloatingPointError
  names what diverged.
  """
  known = _without_folder(settings, folder)
  made_of = (known, method, dict(cells), study.name, *rates)
  record = {"made with": finished.digest(made_of)}
  path = folder / f"{method.name} {record['made with']}".replace(" ", "-")

  def make() -> finished.Finished:
    run, device_data = Run(settings, method, study), on_device(study)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    drawn, folds = seeds, [(fold,) for fold in cells["fold"]]
    if study.by_seed:
      drawn, folds = seeds[:1], [tuple(range(len(seeds)))] * len(folds)
    runs = [
      (rate, weight, fold)
      for rate in rates
      for weight, rows in zip(cells["weight"], folds, strict=True)
      for fold in rows
    ]
    partial = jax.tree_util.Partial
    result = frame_training.many(
      jax.random.key(settings.seed),
      (partial(run.init, device_data), partial(run.period, device_data), _score),
      dict(zip(("rate", "weight", "fold"), zip(*runs, strict=True), strict=True)),
      path.with_name(f"{path.name}-checkpoints"),
      title=title or method.name,
      convolutional=settings.backbone != "maps",
      seeds=drawn,
      steps=settings.steps // settings.evaluate_every,
      evaluate_every=1,
      patience=settings.patience,
      margin=MARGIN,
      progress=False,
    )
    shape = (len(rates), len(folds), len(seeds))
    scores = np.nanmax(result.curves["score"], axis=-1).reshape(shape)
    chosen = int(scores.mean((1, 2)).argmax())

    def of_chosen(x: Any) -> np.ndarray:
      return np.asarray(x).reshape(*shape, *np.shape(x)[2:])[chosen]

    best = jax.tree.map(of_chosen, result.best_state.train.variables())
    steps = of_chosen(result.best_step)
    _keep_model(
      settings, study, best, int(steps[0, 0]), folder / model_name(title or method.name)
    )
    places = np.broadcast_to(np.asarray(folds, np.int32), steps.shape)
    points = _embedded(settings, best, device_data, places)
    arrays = {f"curve {name}": of_chosen(x) for name, x in result.curves.items()}
    arrays |= _tested(points, study.test_labels)
    proxies = result.best_state.train.params["loss"].get("proxies")
    arrays["proxies"] = np.zeros(steps.shape) if proxies is None else of_chosen(proxies)
    arrays |= {"best": steps - 1, "points": points}
    arrays["first_spread"] = of_chosen(result.state.first_spread)
    return finished.Finished({"rate": rates[chosen]}, arrays)

  done = finished.once(path, made_with=record, make=make)
  curves = {
    name.removeprefix("curve "): x
    for name, x in done.arrays.items()
    if name.startswith("curve ")
  }
  return Trained(
    curves,
    done.arrays["best"],
    {name: done.arrays[name] for name in NAMES},
    done.arrays["points"],
    done.arrays["proxies"],
    done.arrays["first_spread"],
    done.figures["rate"],
  )


def model_name(title: str) -> str:
  """The folder of a network, within that of its runs."""
  return "model-" + re.sub(r"[ ,=]+", "-", title)


def _without_folder(settings: Settings, folder: pathlib.Path) -> Settings:
  """A folder of runs may be moved: of weights that are kept in it the name says all."""
  weights = pathlib.Path(settings.weights)
  if not settings.weights or weights.parent != folder.parent:
    return settings
  return dataclasses.replace(settings, weights=weights.name)


def _keep_model(
  settings: Settings,
  study: Study,
  variables: Any,
  evaluations: int,
  folder: pathlib.Path,
) -> None:
  """The first cell's and seed's best network, for `embed`."""
  shutil.rmtree(folder, ignore_errors=True)  # one of other settings
  if settings.backbone in networks.MAPS:
    return  # it sees no images
  first = jax.tree.map(lambda x: np.asarray(x)[0, 0], variables)
  architecture = dataclasses.replace(
    settings.architecture, inverted=study.inverted, padded=study.padded
  )
  model = networks.Model(architecture, first)
  networks.keep(folder, model, evaluations * settings.evaluate_every)


def _embedded(
  settings: Settings, variables: Any, arrays: Data, folds: np.ndarray
) -> np.ndarray:
  """[cells, seeds, test images, dim] of networks [cells, seeds, ...] of some folds."""
  architecture = settings.architecture
  return np.asarray(_points((variables, folds), arrays, architecture=architecture))


@functools.partial(jax.jit, static_argnames="architecture")
def _points(runs: Any, arrays: Data, *, architecture: networks.Architecture) -> Array:
  """Embeds images into the unit ball, one run after another."""

  def embed(run: tuple[Any, Array]) -> Array:
    variables, fold = run
    model = networks.Model(architecture, variables)
    images = arrays.images[of_fold(arrays.test, {"fold": fold})]
    return distances.unit_ball(model.embed_blocks(images))

  return jax.lax.map(lambda row: jax.lax.map(embed, row), runs)


def _tested(points: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
  """Measures of the test images, [cells, seeds] each."""
  measured = [[measures(x, labels) for x in row] for row in points]
  return {
    name: np.array([[figures[name] for figures in row] for row in measured])
    for name in NAMES
  }


def untrained(settings: Settings, study: Study) -> dict[str, np.ndarray]:
  """Measures [seeds] of the networks before their first step.

  Their heads are drawn, and their backbones too where none was pretrained.
  """
  run = Run(settings, Method("c2"), study)
  arrays = on_device(study)
  # The keys of a sweep, so these are the networks that were trained.
  seeds = jnp.arange(settings.seed, settings.seed + settings.seeds)
  folds = jnp.arange(settings.seeds) if study.by_seed else jnp.zeros_like(seeds)
  if study.by_seed:
    seeds = jnp.full_like(seeds, settings.seed)
  begin = jax.random.key(settings.seed)

  def start(seed: Array, fold: Array) -> Any:
    key = jax.random.split(jax.random.fold_in(begin, seed), 3)[0]
    return run.init(arrays, key, {"weight": 0.0, "fold": fold}).train.variables()

  variables = jax.jit(jax.vmap(jax.vmap(start)))(seeds[None], folds[None])
  points = _embedded(settings, variables, arrays, np.asarray(folds)[None])
  return {name: x[0] for name, x in _tested(points, study.test_labels).items()}

"""Trains, stores and tests all seeds of `retrieval` and `ccp_proxies` at once."""

import dataclasses
import itertools
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import tqdm
from flax.typing import VariableDict
from jax import Array

from experiments.frame import at_once, networks
from experiments.frame import kept as finished
from experiments.frame import training as frame_training
from experiments.metric_learning import objective
from experiments.metric_learning.images import Study
from experiments.metric_learning.methods import Method
from experiments.metric_learning.objective import MARGIN, NAMES
from experiments.metric_learning.settings import ProxySettings, Settings
from experiments.metric_learning.training import Data, Run, of_fold, on_device
from spherejax import distances

_SEARCHED = 2  # seeds whose validation images choose a learning rate
_WIDENED = 3.0  # factor between an outermost learning rate and the next one to try


class Trained(NamedTuple):
  """Figures of all runs of a method, [cells, seeds, ...] each."""

  curves: dict[str, np.ndarray]  # [cells, seeds, evaluations], NaN after a run stopped
  best: np.ndarray  # number of the best evaluation, from 0
  test: dict[str, np.ndarray]  # [cells, seeds]
  points: np.ndarray  # [cells, seeds, test images, dim], of the best networks
  proxies: np.ndarray  # [cells, seeds, classes, proxies, dim], of the best networks
  first_spread: np.ndarray  # [cells, seeds], initial spread of the proxies
  rate: float = 1.0  # factor of the learning rates

  @property
  def best_so_far(self) -> np.ndarray:
    """Mean best scores so far over seeds, [evaluations]; stopped runs keep the best."""
    return np.fmax.accumulate(self.curves["score"][0], axis=-1).mean(axis=0)


def check(settings: Settings, method: Method, study: Study) -> None:
  """Raises ValueError for settings that would end or spoil a training later."""
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
  labels = study.train_labels
  per_class = 1 if method.own_proxies else settings.per_class
  objective.check(settings, method, labels, per_class, method.memory * len({*labels}))
  networks.check(settings.architecture)


def train_all(
  config: ProxySettings,
  jobs: Mapping[str, tuple[Settings, Method]],
  study: Study,
  folder: pathlib.Path,
  *,
  other_weights: Mapping[str, Sequence[float]] = {},
) -> dict[str, Trained]:
  """Trains all methods at their best rates, with the usual weight in the first cell."""
  for job in jobs.values():
    check(*job, study)
  with tqdm.tqdm(total=len(jobs)) as bar:

    def train_job(name: str) -> Trained:
      weights = (config.weight, *other_weights.get(name, ()))
      trained = train_at_best_rate(
        *jobs[name], study, folder, name, weights=weights, rates=config.rates
      )
      bar.set_postfix({folder.name: name})
      bar.update()
      return trained

    # Those with a memory, or samples for proxies, take longest and start first.
    order = sorted(jobs, key=lambda name: jobs[name][1].kind not in ("xbm", "samples"))
    trained = dict(zip(order, at_once.in_turns(train_job, order), strict=True))
    return {name: trained[name] for name in jobs}


def train_at_best_rate(
  settings: Settings,
  method: Method,
  study: Study,
  folder: pathlib.Path,
  title: str,
  *,
  weights: Sequence[float],
  rates: Sequence[float],
) -> Trained:
  """Trains at the rate with the best validation score of two seeds, at one weight.

  While that is the smallest or largest, tries the next smaller or larger one.
  """
  few = dataclasses.replace(settings, seeds=min(settings.seeds, _SEARCHED))

  def best_of(rates: Sequence[float]) -> tuple[float, float]:
    tried = train(few, method, study, folder, title, weights=weights[:1], rates=rates)
    return tried.rate, tried.best_so_far[-1]

  if len(rates) > 1:
    rate, score = best_of(rates)
    outward = {min(rates): 1 / _WIDENED, max(rates): _WIDENED}.get(rate)
    while outward:
      try:
        further, further_score = best_of((float(f"{rate * outward:.3g}"),))
      except FloatingPointError:  # diverged
        break
      if further_score <= score:
        break
      rate, score = further, further_score
    rates = (rate,)
  return train(settings, method, study, folder, title, weights=weights, rates=rates)


def _drawn(settings: Settings, study: Study) -> tuple[range, range]:
  """Seeds of a sweep, and the folds of its cells.

  If each seed divides the classes anew, folds take the place of seeds.
  """
  if study.by_seed:
    return range(settings.seed, settings.seed + 1), range(settings.seeds)
  return range(settings.seed, settings.seed + settings.seeds), range(1)


def train(
  settings: Settings,
  method: Method,
  study: Study,
  folder: pathlib.Path,
  title: str = "",
  *,
  weights: Sequence[float] = (2e-4,),
  rates: Sequence[float] = (1.0,),
) -> Trained:
  """Trains with all weights of the projection and all seeds at once.

  `rates` multiply every learning rate; the best mean validation score chooses one.
  Results in `folder` with the same settings are read instead of trained again. The
  first network is stored as `model-` and the title, by default the method's name. A
  diverged run raises FloatingPointError.
  """
  title = title or method.name
  made_of = (settings, method, weights, study.name, rates)
  record = {"made with": finished.digest(made_of)}
  path = folder / f"{method.name} {record['made with']}".replace(" ", "-")

  def make() -> finished.Finished:
    return _sweep(Run(settings, method, study), path, title, weights, rates)

  done = finished.once(path, made_with=record, make=make)
  arrays = {x: done.arrays[x] for x in ("best", "points", "proxies", "first_spread")}
  test = {title: done.arrays[name] for name, title in NAMES.items()}
  rate = done.figures["rate"]
  return Trained(curves=done.part("curve "), test=test, rate=rate, **arrays)


def _sweep(
  run: Run, path: pathlib.Path, title: str, weights: Sequence[float],
  rates: Sequence[float],
) -> finished.Finished:  # fmt: skip
  """Trains all runs; returns the outcomes at the best rate."""
  settings, study, arrays = run.settings, run.study, on_device(run.study)
  seeds, folds = _drawn(settings, study)
  cells = zip(*itertools.product(rates, weights, folds), strict=True)
  partial = jax.tree_util.Partial
  result = frame_training.many(
    jax.random.key(settings.seed),
    (partial(run.init, arrays), partial(run.period, arrays), lambda x, *_: x.score),
    dict(zip(("rate", "weight", "fold"), cells, strict=True)),
    path.with_name(f"{path.name}-checkpoints"),
    title=title, convolutional=settings.backbone != "maps", seeds=seeds,
    steps=settings.steps // settings.evaluate_every, evaluate_every=1,
    patience=settings.patience, margin=MARGIN, progress=False,
  )  # fmt: skip
  shape = (len(rates), len(weights), settings.seeds)
  scores = np.nanmax(result.curves["score"], axis=-1).reshape(shape)
  chosen = int(scores.mean((1, 2)).argmax())

  def of_chosen(x: Array | np.ndarray) -> np.ndarray:
    return np.asarray(x).reshape(*shape, *np.shape(x)[2:])[chosen]

  best = jax.tree.map(of_chosen, result.best_state.train.variables())
  steps = of_chosen(result.best_step)
  model_folder = path.with_name(model_name(title))
  shutil.rmtree(model_folder, ignore_errors=True)  # a network of other settings
  if settings.backbone not in networks.STORED:  # otherwise its inputs are not images
    # The best network of the first cell and seed, for `embed`.
    first = jax.tree.map(lambda x: x[0, 0], best)
    model, step = networks.Model(settings.architecture, first), int(steps[0, 0])
    networks.keep(model_folder, model, step * settings.evaluate_every)
  places = np.broadcast_to(np.array(folds, np.int32), steps.shape)
  embed = frame_training.bound(_embed, settings.architecture)
  points = frame_training.over_models(embed, (best, places), arrays)
  proxies = result.best_state.train.params["loss"].get("proxies")
  figures = {f"curve {name}": of_chosen(x) for name, x in result.curves.items()}
  of_cells = [tested(x, study.test_labels) for x in points]
  figures |= {x: np.stack([cell[NAMES[x]] for cell in of_cells]) for x in NAMES}
  figures |= {"best": steps - 1, "points": points}
  figures["proxies"] = np.zeros(steps.shape) if proxies is None else of_chosen(proxies)
  figures["first_spread"] = of_chosen(result.state.first_spread)
  return finished.Finished({"rate": rates[chosen]}, figures)


def model_name(title: str) -> str:
  """Name of a network's folder within the folder of its runs."""
  return "model-" + re.sub(r"[ ,=]+", "-", title)


def _embed(
  architecture: networks.Architecture, arrays: Data, run: tuple[VariableDict, Array]
) -> Array:
  """Embeddings of the test images by the network of a run, with its fold."""
  variables, fold = run
  model = networks.Model(architecture, variables)
  images = arrays.images[of_fold(arrays.test, {"fold": fold})]
  return distances.unit_ball(model.embed_blocks(images))


def tested(points: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
  """Measures [seeds] of the test images, whose embeddings are [seeds, images, dim]."""
  measured = [objective.measures(x, labels) for x in points]
  return {x: np.array([figures[x] for figures in measured]) for x in NAMES.values()}


def untrained(settings: Settings, study: Study) -> dict[str, np.ndarray]:
  """Measures [seeds] of the networks before their first step.

  Their heads are random, and their backbones unless they are pretrained.
  """
  run, arrays = Run(settings, Method("c2"), study), on_device(study)
  # The keys are those of a sweep, so these networks are the ones that were trained.
  seeds, folds = np.broadcast_arrays(*map(np.array, _drawn(settings, study)))
  begin = jax.random.key(settings.seed)

  def start(seed: Array, fold: Array) -> VariableDict:
    key = jax.random.split(jax.random.fold_in(begin, seed), 3)[0]
    return run.init(arrays, key, {"fold": fold}).train.variables()

  variables = jax.jit(jax.vmap(jax.vmap(start)))(seeds[None], folds[None])
  embed = frame_training.bound(_embed, settings.architecture)
  points = frame_training.over_models(embed, (variables, folds[None]), arrays)
  return tested(points[0], study.test_labels)

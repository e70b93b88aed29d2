"""Trainings of `projector_collapse`: all strengths and seeds at once, kept."""

import functools
import operator
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.frame import kept as finished
from experiments.frame import training as trainer
from experiments.self_supervision import geometry as collapse_geometry
from experiments.self_supervision.images import Study
from experiments.self_supervision.settings import Settings
from experiments.self_supervision.toy import activation_patterns
from experiments.self_supervision.training import (
  Given,
  Projector,
  Run,
  State,
  cells,
  kernel_of,
)
from spherejax import data, metrics, training


class Trained(NamedTuple):
  """Figures of all runs, [strengths, seeds, ...] each."""

  curves: dict[str, np.ndarray]  # [strengths, seeds, measurements]
  start: dict[str, np.ndarray]  # before the first step, as `end` and `shown`
  end: dict[str, np.ndarray]  # what there is no curve of
  shown: dict[str, np.ndarray]  # spectra halfway and at the end, distances at the end
  regions: np.ndarray  # linear ones of the projector that features meet at the end

  def at_end(self, name: str) -> np.ndarray:
    """[strengths, seeds]."""
    return self.end[name] if name in self.end else self.curves[name][..., -1]

  @property
  def collapsed(self) -> np.ndarray:
    """[strengths, seeds], whether all outputs fell together."""
    ends = self.at_end("invariance"), self.at_end("repulsion")
    return np.asarray(metrics.contrastive_collapse(*map(jnp.asarray, ends)))


def given(study: Study) -> Given:
  """On the device, with the mean and deviation of the training images' channels."""
  pixels = study.train.reshape(-1, study.train.shape[-1]) / 255
  return Given(
    jnp.asarray(study.train),
    jnp.asarray(study.train_labels),
    jnp.asarray(study.train_coarse),
    jnp.asarray(study.test),
    jnp.asarray(study.test_labels),
    jnp.asarray(pixels.mean(0), jnp.float32),
    jnp.asarray(pixels.std(0), jnp.float32),
  )


def _score(state: State, key: Array, hyper: Any) -> Array:
  del key, hyper
  return state.probed["probe"]


def train(
  settings: Settings,
  strengths: Mapping[str, data.ViewStrengths],
  study: Study,
  folder: pathlib.Path,
) -> Trained:
  """All runs, or what was kept of them; FloatingPointError names what diverged."""
  # With what is kept of a run, which is another thing in other versions.
  made = settings, dict(strengths), study.name, State._fields
  record = {"made with": finished.digest(made)}
  path = folder / f"runs-{record['made with']}"

  def make() -> finished.Finished:
    run, images = Run(settings, study.classes), given(study)
    partial = jax.tree_util.Partial
    result = trainer.many(
      jax.random.key(settings.seed),
      (partial(run.init, images), partial(run.period, images), _score),
      cells(strengths.values()),
      path.with_name(f"{path.name}-checkpoints"),
      title=f"augmentations {', '.join(strengths)}",
      convolutional=True,
      seeds=range(settings.seed, settings.seed + settings.seeds),
      steps=settings.steps // settings.measure_every,
      evaluate_every=1,
    )
    arrays = _all_told(run, images, result, strengths.values())
    return finished.Finished({}, arrays)

  done = finished.once(path, made_with=record, make=make)
  parts: dict[str, dict[str, np.ndarray]] = {
    kind: {} for kind in ("curves", "start", "end", "shown")
  }
  for name, x in done.arrays.items():
    kind, _, rest = name.partition(" ")
    if kind in parts:
      parts[kind][rest] = x
  return Trained(**parts, regions=done.arrays["regions"])


def _all_told(
  run: Run,
  given: Given,
  result: training.SweepResult,
  strengths: Iterable[data.ViewStrengths],
) -> dict[str, np.ndarray]:
  """The fields of `Trained`, a word before each name, of all runs of a sweep."""
  state: State = result.state
  columns = {name: jnp.float32(x) for name, x in cells(strengths).items()}
  curves = {n: np.asarray(x) for n, x in result.curves.items()}
  curves |= collapse_geometry.of_weights(run.settings, state.kernels)
  arrays = {f"curves {name}": x for name, x in curves.items()}
  shape, found = state.taken.shape, []
  for cell, seed in np.ndindex(shape):
    own = jax.tree.map(operator.itemgetter((cell, seed)), state)
    hyper = {name: x[cell] for name, x in columns.items()}
    found.append(_told(run, given, own, hyper))
  for name in found[0]:
    rows = np.stack([one[name] for one in found])
    arrays[name] = rows.reshape(*shape, *rows.shape[1:])
  return arrays


def _told(run: Run, given: Given, state: State, hyper: Any) -> dict[str, np.ndarray]:
  """What of one run is looked at when it is over; a word before each name."""
  end = state.params, state.stats
  start, first = look_closely(run, given, *state.first, hyper)
  figures, shown = look_closely(run, given, *end, hyper)
  start |= {name: np.asarray(x) for name, x in state.before.items()}
  halves = look(run, given, *state.half, hyper)[1]
  shown |= {f"{name}{collapse_geometry.HALFWAY}": x for name, x in halves.items()}
  named = {"start": start | first, "end": figures, "shown": shown}
  found = {
    f"{kind} {name}": x for kind, part in named.items() for name, x in part.items()
  }
  return found | {"regions": np.asarray(regions(run, given, *end))}


def look(
  run: Run, given: Given, params: Any, stats: Any, hyper: Any
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Array]]:
  """Figures and spectra of a network at one time, and what `Run.measured` shows."""
  figures, shown = run.measured(given, params, stats, hyper)
  kernel = kernel_of(params)
  ranks, spectra = collapse_geometry.of_features(shown, kernel)
  found = {name: np.asarray(x) for name, x in figures.items()} | ranks
  return found | collapse_geometry.of_weights(run.settings, kernel), spectra, shown


def look_closely(
  run: Run, given: Given, params: Any, stats: Any, hyper: Any
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Also the geometry among the figures; they, and what pictures show."""
  figures, spectra, shown = look(run, given, params, stats, hyper)
  geometry = collapse_geometry.measured(run, given, params, stats, shown)
  return figures | geometry, spectra | {"distances": np.asarray(shown["distances"])}


def regions(run: Run, given: Given, params: Any, stats: Any) -> int:
  """Linear regions of a network's projector that training images meet."""
  projector = Projector(run.settings.projector)
  features = _features(run, given, params, stats)
  return activation_patterns(projector, {"params": params["projector"]}, features)


@functools.partial(jax.jit, static_argnums=0)
def _features(run: Run, given: Given, params: Any, stats: Any) -> Array:
  return run.features(params, stats, given.seen(data.to_float(given.train)))[0]

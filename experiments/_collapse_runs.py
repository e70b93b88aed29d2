"""Trainings of `projector_collapse`: all strengths and seeds at once, kept."""

import functools
import operator
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import _at_once, _finished
from experiments._collapse_sets import Study
from experiments._collapse_toy import activation_patterns
from experiments._collapse_training import Given, Projector, Run, Settings, State, cells
from spherejax import data, metrics, training


class Trained(NamedTuple):
  """Figures of all runs, [strengths, seeds, ...] each."""

  curves: dict[str, np.ndarray]  # [strengths, seeds, measurements]
  start: dict[str, np.ndarray]  # before the first step
  shown: dict[str, np.ndarray]  # spectra, distances, features at the end
  regions: np.ndarray  # linear ones of the projector that features meet at the end

  def at_end(self, name: str) -> np.ndarray:
    """[strengths, seeds]."""
    return self.curves[name][..., -1]

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
  record = {"made with": _finished.digest((settings, dict(strengths), study.name))}
  path = folder / f"runs-{record['made with']}"
  done = _finished.restore(path, record)
  if done is None:
    run, images = Run(settings, study.classes), given(study)
    with training.Checkpoints(path.with_name(f"{path.name}-checkpoints")) as kept:
      result = training.sweep(
        jax.random.key(settings.seed),
        jax.tree_util.Partial(run.init, images),
        jax.tree_util.Partial(run.period, images),
        _score,
        cells(strengths.values()),
        seeds=range(settings.seed, settings.seed + settings.seeds),
        steps=settings.steps // settings.measure_every,
        evaluate_every=1,
        checkpoints=kept,
        batch_size=_at_once.convolutional(),
      )
    if result.diverged.any():
      gone = dict(zip(strengths, result.diverged.tolist(), strict=True))
      raise FloatingPointError(f"runs diverged: {gone}")
    arrays = {f"curve {name}": x for name, x in result.curves.items()}
    arrays |= {f"start {name}": x for name, x in result.state.start.items()}
    arrays |= {f"shown {name}": x for name, x in result.state.shown.items()}
    arrays |= {"regions": _all_regions(run, images, result.state)}
    done = _finished.Finished({}, {n: np.asarray(x) for n, x in arrays.items()})
    _finished.keep(path, record, done)
  parts: dict[str, dict[str, np.ndarray]] = {"curve": {}, "start": {}, "shown": {}}
  for name, x in done.arrays.items():
    kind, _, rest = name.partition(" ")
    if kind in parts:
      parts[kind][rest] = x
  regions = done.arrays["regions"]
  return Trained(parts["curve"], parts["start"], parts["shown"], regions)


def _all_regions(run: Run, given: Given, state: State) -> np.ndarray:
  """[strengths, seeds], linear regions of the projectors that training images meet."""
  shape = state.taken.shape

  def one(*place: int) -> int:
    own = operator.itemgetter(place)
    return regions(run, given, *jax.tree.map(own, (state.params, state.stats)))

  return np.reshape([one(*place) for place in np.ndindex(shape)], shape)


def regions(run: Run, given: Given, params: Any, stats: Any) -> int:
  """Linear regions of a network's projector that training images meet."""
  projector = Projector(run.settings.projector)
  features = _features(run, given, params, stats)
  return activation_patterns(projector, {"params": params["projector"]}, features)


@functools.partial(jax.jit, static_argnums=0)
def _features(run: Run, given: Given, params: Any, stats: Any) -> Array:
  return run.features(params, stats, given.seen(data.to_float(given.train)))[0]

"""`projector_collapse` by the paper's protocol: one network after another, by LARS."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments import _finished
from experiments._collapse_runs import Trained, given, regions
from experiments._collapse_sets import Study
from experiments._collapse_training import Given, Run, Settings, cells, spectral
from spherejax import data, training

HALFWAY = ", halfway"  # behind the names of spectra of that time


@dataclasses.dataclass(frozen=True)
class Full(Settings):
  """What the trainings one after another need beside."""

  warm_up: int = 3900
  """Steps in which the learning rate rises; a cosine follows."""
  synchronized: bool = False
  """Batch norms take their statistics over all devices, not those of one."""


def _is_weight(params: Any) -> Any:
  """LARS adapts and decays neither norms nor biases."""
  return jax.tree.map(lambda x: x.ndim > 1, params)


def optimizer(settings: Full) -> optax.GradientTransformation:
  """LARS (You et al. 2017) with a warm-up and a cosine."""
  schedule = optax.warmup_cosine_decay_schedule(
    0.0, settings.learning_rate, settings.warm_up, settings.steps
  )
  lars = optax.lars(
    schedule,
    weight_decay=settings.weight_decay,
    weight_decay_mask=_is_weight,
    trust_ratio_mask=_is_weight,
    momentum=0.9,
  )
  return training.optimizer({"network": lars})


def objective(
  params: Any,
  batch_stats: Any,
  batch: Mapping[str, Array],
  *,
  key: Array,
  axis_name: str | None,
  run: Run,
  images: Given,
  hyper: Any,
) -> training.Outcome:
  """InfoNCE over the batch of all devices, its bound, and their least gap so far."""
  params, stats = params["network"], batch_stats["network"]
  terms, stats = run.terms(images, params, stats, batch["image"], key, hyper, axis_name)
  gaps = training.gather(terms.pop("least gap"), axis_name)
  least = jnp.minimum(batch_stats["loss"]["least gap"], jnp.min(gaps))
  means = {
    name: training.global_mean(x, axis_name=axis_name) for name, x in terms.items()
  }
  return training.Outcome(
    means.pop("loss"),
    {"network": stats, "loss": {"least gap": least}},
    means,
  )


def _batches(images: np.ndarray, key: Array, batch: int, steps: int):
  """From the step asked for, on."""
  at = jax.jit(
    functools.partial(data.shuffled_indices, key, len(images), batch_size=batch)
  )

  def batches(first: int) -> Iterator[dict[str, np.ndarray]]:
    for step in range(first, steps):
      yield training.process_rows({"image": images[np.asarray(at(step))]})

  return batches


def train(
  settings: Full,
  augmentations: Mapping[str, data.ViewStrengths],
  study: Study,
  folder: pathlib.Path,
) -> Trained:
  """All networks, each from its newest checkpoint if there is one."""
  cells = [
    [
      _one(settings, own, study, settings.seed + seed, folder / f"{name}-{seed}")
      for seed in range(settings.seeds)
    ]
    for name, own in augmentations.items()
  ]

  def stacked(part: str) -> dict[str, np.ndarray]:
    rows = [[getattr(one, part) for one in row] for row in cells]
    return {
      name: np.array([[x[name] for x in row] for row in rows]) for name in rows[0][0]
    }

  regions = np.array([[one.regions for one in row] for row in cells])
  return Trained(stacked("curves"), stacked("start"), stacked("shown"), regions)


def on_host(
  settings: Full, shown: Mapping[str, Any], kernel: Any
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
  """Ranks and spectra in float64: in float32 what is below 1e-6 of the first is noise.

  Of the features that are shown, as they are and augmented, and of the projector.
  """
  host = jax.local_devices(backend="cpu")[0]
  with jax.enable_x64(True), jax.default_device(host):
    matrices = shown["features"], shown["augmented features"], kernel
    wide = [jnp.asarray(np.asarray(x, np.float64)) for x in matrices]
    ranks, spectra = spectral(settings, *wide)
    return (
      {name: float(x) for name, x in ranks.items()},
      {name: np.asarray(x) for name, x in spectra.items()},
    )


class _Spectra(NamedTuple):
  """Those of all measurements of a training, a file each."""

  folder: pathlib.Path

  def keep(self, step: int, spectra: dict[str, np.ndarray]) -> None:
    """In place of those of a run that was stopped."""
    if jax.process_index() == 0:
      done = _finished.Finished({}, spectra)
      _finished.keep(self.folder / f"{step}", {}, done)

  def halfway(self, settings: Full) -> dict[str, np.ndarray]:
    """Those of the last measurement of the first half, under names of their own."""
    every = settings.measure_every
    step = settings.steps // 2 // every * every
    kept = _finished.restore(self.folder / f"{step}", {})
    found = {} if kept is None else kept.arrays
    return {f"{name}{HALFWAY}": x for name, x in found.items()}


class _Found(NamedTuple):
  """As `Trained`, of one network."""

  curves: dict[str, np.ndarray]
  start: dict[str, np.ndarray]
  shown: dict[str, np.ndarray]
  regions: int


def _one(
  settings: Full,
  augmentation: data.ViewStrengths,
  study: Study,
  seed: int,
  folder: pathlib.Path,
) -> _Found:
  """One network."""
  norm_axis = training.AXIS_NAME if settings.synchronized else None
  run, images = Run(settings, study.classes, norm_axis), given(study)
  hyper = {name: jnp.float32(x) for name, (x,) in cells([augmentation]).items()}
  init_key, step_key, batch_key = jax.random.split(jax.random.key(seed), 3)
  chain = optimizer(settings)
  example = jax.ShapeDtypeStruct((2, *study.train.shape[1:]), jnp.float32)
  variables = run.network.lazy_init(init_key, example)
  # On one device, also where training takes statistics over all.
  settle = jax.jit(Run(settings, study.classes).settled)
  stats = settle(
    images,
    variables["params"],
    variables["batch_stats"],
    jax.random.fold_in(init_key, 1),
    hyper,
  )
  variables = {**variables, "batch_stats": stats}
  # Far above any gap, which is at most the logarithm of the negatives.
  start_gap = {"batch_stats": {"least gap": jnp.float32(1e9)}}
  state = training.create_state(step_key, chain, variables, start_gap)

  @jax.jit
  def look(images: Any, params: Any, stats: Any) -> tuple[Any, Any]:
    measured, shown = run.measured(images, params, stats, hyper)
    return measured | run.probed(images, params, stats), shown

  spectra = _Spectra(folder.with_name(f"{folder.name}-spectra"))

  def seen(state: training.TrainState) -> tuple[dict[str, float], dict[str, Any]]:
    params = state.params["network"]
    found, shown = look(images, params, state.batch_stats["network"])
    kernel = params["projector"]["layer0"]["kernel"]
    ranks, exact = on_host(settings, shown, kernel)
    spectra.keep(int(state.step), exact)
    numbers = {name: float(x) for name, x in found.items()}
    return numbers | ranks, jax.tree.map(np.asarray, shown) | exact

  start, first_shown = seen(state)
  with training.Checkpoints(folder) as kept:
    result = training.fit(
      state,
      training.make_step(
        functools.partial(objective, run=run, images=images, hyper=hyper),
        chain,
      ),
      _batches(study.train, batch_key, settings.batch, settings.steps),
      steps=settings.steps,
      evaluate=lambda state: seen(state)[0],
      evaluate_every=settings.measure_every,
      checkpoints=kept,
      checkpoint_every=settings.measure_every,
      report_every=settings.measure_every,
    )
  shown = seen(result.state)[1] | spectra.halfway(settings)
  rows = [*result.evaluations], [*result.curve]
  curves = {
    name: np.array([row[name] for row in part])
    for part in rows
    for name in part[0]
    if name not in ("step", "gradient_norm")
  }
  # Of all steps, whenever it was.
  curves["least gap"] = np.full_like(
    curves["loss"], result.state.batch_stats["loss"]["least gap"]
  )
  before = start | first_shown
  own = result.state.params["network"], result.state.batch_stats["network"]
  found = regions(run, images, *own)
  return _Found(curves, {n: np.asarray(x) for n, x in before.items()}, shown, found)

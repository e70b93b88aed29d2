"""`projector_collapse` by the paper's protocol: one network after another, by LARS."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.frame import kept as finished
from experiments.frame.settings import Without
from experiments.self_supervision import spectra as collapse_spectra
from experiments.self_supervision.images import Study
from experiments.self_supervision.runs import (
  Trained,
  given,
  look,
  look_closely,
  regions,
)
from experiments.self_supervision.training import Given, Run, Settings, cells
from spherejax import data, training


@dataclasses.dataclass(frozen=True)
class Full(Settings):
  """What the trainings one after another need beside."""

  warm_up: Annotated[int, Without("at_once", True)] = 3900
  """Steps in which the learning rate rises, and a cosine follows, where networks are
  not trained at once."""
  synchronized: Annotated[bool, Without("at_once", True)] = False
  """Batch norms take their statistics over all devices, not those of one; not of
  networks that are trained at once."""


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
  parts = {name: stacked(name) for name in ("curves", "start", "end", "shown")}
  return Trained(**parts, regions=regions)


class _Spectra(NamedTuple):
  """Those of all measurements of a training, a file each."""

  folder: pathlib.Path

  def keep(self, step: int, spectra: dict[str, np.ndarray]) -> None:
    """In place of those of a run that was stopped."""
    if jax.process_index() == 0:
      done = finished.Finished({}, spectra)
      finished.keep(self.folder / f"{step}", {}, done)

  def halfway(self, settings: Full) -> dict[str, np.ndarray]:
    """Those of the last measurement of the first half, under names of their own."""
    kept = finished.restore(self.folder / f"{settings.halfway}", {})
    found = {} if kept is None else kept.arrays
    return {f"{name}{collapse_spectra.HALFWAY}": x for name, x in found.items()}


class _Found(NamedTuple):
  """As `Trained`, of one network."""

  curves: dict[str, np.ndarray]
  start: dict[str, np.ndarray]
  end: dict[str, np.ndarray]
  shown: dict[str, np.ndarray]
  regions: int


def _network(state: training.TrainState) -> tuple[Any, Any]:
  return state.params["network"], state.batch_stats["network"]


class _Looks(NamedTuple):
  """At one network during its training."""

  run: Run
  images: Given
  hyper: Any
  spectra: _Spectra

  def figures(self, state: training.TrainState) -> dict[str, float]:
    """Numbers; spectra are kept."""
    own = _network(state)
    found, spectra, _ = look(self.run, self.images, *own, self.hyper)
    self.spectra.keep(int(state.step), spectra)
    numbers = found | self.run.probed(self.images, *own)
    return {name: float(x) for name, x in numbers.items()}

  def closely(
    self, state: training.TrainState
  ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Also the geometry, and what pictures show."""
    own = _network(state)
    geometry, shown = look_closely(self.run, self.images, *own, self.hyper)
    numbers = {name: np.asarray(x) for name, x in self.figures(state).items()}
    return geometry | numbers, shown


def _drawn(
  settings: Full, study: Study, images: Given, key: Array, hyper: Any
) -> dict[str, Any]:
  """Variables of a network before its training, the running statistics settled."""
  # On one device, also where training takes statistics over all.
  run = Run(settings, study.classes)
  example = jax.ShapeDtypeStruct((2, *study.train.shape[1:]), jnp.float32)
  variables = run.network.lazy_init(key, example)
  params, begun = variables["params"], variables["batch_stats"]
  settle = jax.jit(run.settled)
  stats = settle(images, params, begun, jax.random.fold_in(key, 1), hyper)
  return {**variables, "batch_stats": stats}


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
  variables = _drawn(settings, study, images, init_key, hyper)
  # Far above any gap, which is at most the logarithm of the negatives.
  start_gap = {"batch_stats": {"least gap": jnp.float32(1e9)}}
  state = training.create_state(step_key, chain, variables, start_gap)
  looks = _Looks(
    run, images, hyper, _Spectra(folder.with_name(f"{folder.name}-spectra"))
  )
  start, first_shown = looks.closely(state)
  with training.Checkpoints(folder) as kept:
    result = training.fit(
      state,
      training.make_step(
        functools.partial(objective, run=run, images=images, hyper=hyper),
        chain,
      ),
      _batches(study.train, batch_key, settings.batch, settings.steps),
      steps=settings.steps,
      evaluate=looks.figures,
      evaluate_every=settings.measure_every,
      checkpoints=kept,
      checkpoint_every=settings.measure_every,
      report_every=settings.measure_every,
    )
  figures, shown = looks.closely(result.state)
  shown |= looks.spectra.halfway(settings)
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
  found = regions(run, images, *_network(result.state))
  return _Found(curves, start | first_shown, figures, shown, found)

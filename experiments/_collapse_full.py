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

from experiments._collapse_runs import Trained, given, regions
from experiments._collapse_sets import Study
from experiments._collapse_training import Network, Run, Settings, cell, strengths
from spherejax import data, losses, training


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
  settings: Full,
  hyper: Any,
  seen: Any,
) -> training.Outcome:
  """InfoNCE over the batch of all devices, and its bound."""
  size = batch["image"].shape[1]
  views = data.simclr_views(
    key, data.to_float(batch["image"]), size=size, strengths=strengths(hyper)
  )
  network = Network(settings, axis_name if settings.synchronized else None)
  (_, outputs), moved = network.apply(
    {"params": params["network"], "batch_stats": batch_stats["network"]},
    seen(jnp.concatenate(views)),
    train=True,
    mutable=["batch_stats"],
  )
  first, second = jnp.split(outputs, 2)
  pairs = ((first, second), (second, first))
  shared: dict[str, Any] = {
    "temperature": 1 / settings.inverse_temperature, "axis_name": axis_name,
  }  # fmt: skip
  sides = [losses.info_nce(a, b, **shared) for a, b in pairs]
  bounds = [losses.info_nce_bound(a, b, **shared) for a, b in pairs]
  mean = functools.partial(training.global_mean, axis_name=axis_name)
  gaps = jnp.stack([b.value - x for b, x in zip(bounds, sides, strict=True)])
  least = -jnp.max(training.gather(-gaps.T, axis_name))
  return training.Outcome(
    mean(jnp.mean(jnp.stack(sides), axis=0)),
    {"network": moved["batch_stats"]},
    {
      "least gap": least,
      **{
        name: mean(jnp.mean(jnp.stack([getattr(b, field) for b in bounds]), axis=0))
        for name, field in (
          ("bound", "value"),
          ("invariance", "invariance"),
          ("repulsion", "repulsion"),
        )
      },
    },
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
  run, images = Run(settings, study.classes), given(study)
  hyper = {name: jnp.float32(x) for name, x in cell(augmentation).items()}
  init_key, step_key, batch_key = jax.random.split(jax.random.key(seed), 3)
  chain = optimizer(settings)
  example = jax.ShapeDtypeStruct((2, *study.train.shape[1:]), jnp.float32)
  variables = run.network.lazy_init(init_key, example)
  state = training.create_state(step_key, chain, variables)

  @jax.jit
  def look(images: Any, params: Any, stats: Any) -> tuple[Any, Any]:
    measured, shown = run.measured(images, params, stats, hyper)
    return measured | run.probed(images, params, stats), shown

  def seen(state: training.TrainState) -> tuple[Any, Any]:
    return look(images, state.params["network"], state.batch_stats["network"])

  start, first_shown = seen(state)
  with training.Checkpoints(folder) as kept:
    result = training.fit(
      state,
      training.make_step(
        functools.partial(objective, settings=settings, hyper=hyper, seen=images.seen),
        chain,
      ),
      _batches(study.train, batch_key, settings.batch, settings.steps),
      steps=settings.steps,
      evaluate=lambda state: {name: float(x) for name, x in seen(state)[0].items()},
      evaluate_every=settings.measure_every,
      checkpoints=kept,
      checkpoint_every=settings.measure_every,
      report_every=settings.measure_every,
    )
  shown = {name: np.asarray(x) for name, x in seen(result.state)[1].items()}
  rows = [*result.evaluations], [*result.curve]
  curves = {
    name: np.array([row[name] for row in part])
    for part in rows
    for name in part[0]
    if name not in ("step", "gradient_norm")
  }
  before = {name: float(x) for name, x in start.items()} | first_shown
  found = regions(settings, result.state.params["network"], shown["features"])
  return _Found(curves, {n: np.asarray(x) for n, x in before.items()}, shown, found)

"""`projector_collapse` by the paper's protocol: one network after another, by LARS."""

import functools
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.frame import kept
from experiments.frame import training as trainer
from experiments.self_supervision.geometry import HALFWAY
from experiments.self_supervision.images import Study
from experiments.self_supervision.runs import (
  Trained,
  given,
  look,
  look_closely,
  regions,
)
from experiments.self_supervision.settings import Full
from experiments.self_supervision.training import Given, Run, cells
from spherejax import data, training


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


def train(
  settings: Full,
  augmentations: Mapping[str, data.ViewStrengths],
  study: Study,
  folder: pathlib.Path,
) -> Trained:
  """All networks, each from its newest checkpoint if there is one."""
  seeds = range(settings.seeds)
  return _stacked(
    _stacked(
      _one(settings, own, study, settings.seed + seed, folder / f"{name}-{seed}")
      for seed in seeds
    )
    for name, own in augmentations.items()
  )


def _stacked(found: Iterable[Trained]) -> Trained:
  """Along a new first axis."""
  return jax.tree.map(lambda *x: np.stack(x), *found)


def _network(state: training.TrainState) -> tuple[Any, Any]:
  return state.params["network"], state.batch_stats["network"]


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
) -> Trained:
  """One network; the spectra of each measurement are kept, a file each."""
  norm_axis = training.AXIS_NAME if settings.synchronized else None
  run, images = Run(settings, study.classes, norm_axis), given(study)
  hyper = {name: jnp.float32(x) for name, (x,) in cells([augmentation]).items()}
  init_key, step_key, batch_key = jax.random.split(jax.random.key(seed), 3)
  chain = optimizer(settings)
  variables = _drawn(settings, study, images, init_key, hyper)
  # Far above any gap, which is at most the logarithm of the negatives.
  start_gap = {"batch_stats": {"least gap": jnp.float32(1e9)}}
  state = training.create_state(step_key, chain, variables, start_gap)
  spectra = folder.with_name(f"{folder.name}-spectra")

  def figures(state: training.TrainState) -> dict[str, float]:
    own = _network(state)
    found, values, _ = look(run, images, *own, hyper)
    if jax.process_index() == 0:  # in place of those of a run that was stopped
      kept.keep(spectra / f"{int(state.step)}", {}, kept.Finished({}, values))
    numbers = found | run.probed(images, *own)
    return {name: float(x) for name, x in numbers.items()}

  def closely(state: training.TrainState) -> tuple[dict[str, Any], dict[str, Any]]:
    geometry, shown = look_closely(run, images, *_network(state), hyper)
    return geometry | {n: np.asarray(x) for n, x in figures(state).items()}, shown

  start, first_shown = closely(state)
  per_epoch = len(study.train) // settings.batch
  result = trainer.one(
    lambda _: state,
    functools.partial(objective, run=run, images=images, hyper=hyper),
    chain,
    trainer.shuffled(
      data.from_arrays(study.train, study.train_labels),
      batch_key,
      batch=settings.batch,
      epochs=-(-settings.steps // per_epoch),
      per_epoch=per_epoch,
    ),
    folder,
    steps=settings.steps,
    evaluate=figures,
    evaluate_every=settings.measure_every,
    checkpoint_every=settings.measure_every,
    report_every=settings.measure_every,
  )
  end, shown = closely(result.state)
  half = kept.restore(spectra / f"{settings.halfway}", {})
  shown |= {f"{n}{HALFWAY}": x for n, x in (half.arrays if half else {}).items()}
  curves = {
    name: np.array([row[name] for row in part])
    for part in (result.evaluations, result.curve)
    for name in part[0]
    if name not in ("step", "gradient_norm")
  }
  # Of all steps, whenever it was.
  least = result.state.batch_stats["loss"]["least gap"]
  curves["least gap"] = np.full_like(curves["loss"], least)
  met = np.asarray(regions(run, images, *_network(result.state)))
  return Trained(curves, start | first_shown, end, shown, met)

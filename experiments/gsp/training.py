"""Training of a pooled network, in parts that are kept, and all variants of a seed."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from experiments.frame import command, ending
from experiments.frame import kept as finished
from experiments.gsp import network as pooled_network
from spherejax import data, models, training

_MEMORY = 1000  # images among whose features prototypes are chosen


def _objective(
  params, stats, batch, *, settings: pooled_network.Settings, classes, key, axis_name
):
  """The mixture for one batch, and what became of the statistics."""
  del key, axis_name  # nothing is drawn, and one device is enough
  images, labels, variant = batch
  variables = {"params": params["network"]}
  if stats:
    variables["batch_stats"] = stats["network"]
  result, changed = pooled_network.Network(settings).apply(
    variables, images, variant.mass, train=True, mutable=["batch_stats"]
  )
  stats = {"network": changed["batch_stats"]} if stats else None
  loss = pooled_network.mixture(
    settings, classes, params["loss"], result, labels, variant.zero_shot_weight
  )
  return training.Outcome(loss, stats)


@functools.partial(jax.jit, static_argnames=("settings", "classes"))
def _initial_state(key, images, *, settings, classes) -> training.TrainState:
  network_key, proxy_key, label_key, step_key = jax.random.split(key, 4)
  parts = pooled_network.loss_parameters(settings, classes, proxy_key, label_key)
  return training.create_state(
    step_key,
    pooled_network.make_optimizer(settings, tuple(parts)),
    pooled_network.Network(settings).lazy_init(network_key, images[:1]),
    {"params": parts},
  )


@functools.partial(jax.jit, static_argnames=("settings", "classes"))
def _some_steps(state, images, labels, table, key, variant, *, settings, classes):
  """One part of a training as one compiled program."""
  objective = functools.partial(_objective, settings=settings, classes=classes)
  optimizer = pooled_network.make_optimizer(
    settings, tuple(pooled_network.loss_modules(settings, classes))
  )
  step = training.make_step(objective, optimizer)
  drawn = min(classes, settings.batch_classes)
  sizes = {"num_classes": drawn, "per_class": settings.per_class}

  def one_step(state, _):
    rows = data.class_balanced_indices(key, table, state.step, **sizes)
    state, values = step(state, (images[rows], labels[rows], variant))
    return state, values["loss"]

  return jax.lax.scan(one_step, state, length=settings.steps // settings.parts)


# With pooled features that cover the others best (DML Algorithm 2).
_choose_prototypes = jax.jit(models.replace_prototypes, static_argnames=("path",))


def _with_backbone(tree: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
  """Parameters or statistics with the backbone's from another network."""
  if "backbone" not in tree.get("network", {}):
    return tree
  network = tree["network"] | {"backbone": other["network"]["backbone"]}
  return tree | {"network": network}


class Run(NamedTuple):
  """A trained network, and of each part of its training the mean loss and the score."""

  state: training.TrainState
  curve: tuple[float, ...]
  scores: tuple[float, ...] = ()


def pretrain(
  settings: pooled_network.Settings,
  steps: int,
  seed: int,
  images: data.Images,
  progress: tqdm.tqdm,
  kept: pathlib.Path,
) -> training.TrainState | None:
  """A network that classifies single images, as DML's begins with; None in no steps."""
  if not steps:
    return None
  settings = dataclasses.replace(settings, loss="proxy_nca", pooling="gap", steps=steps)
  return train(
    settings, seed, {"": pooled_network.AVERAGE}, images, progress, kept=kept
  )[""].state


def _in_parts(
  run: Run,
  parts: int,
  one_part: Callable[[Run], Run],
  folder: pathlib.Path | None,
  progress: tqdm.tqdm,
  best: bool,
) -> Run:
  """Trains until so many parts are done, from the last one that a folder keeps.

  The folder has the state of the highest score too; with `best` it is returned.
  """
  with contextlib.ExitStack() as stack:
    kept = stack.enter_context(training.Checkpoints(folder)) if folder else None
    found = kept.restore(run.state) if kept else None
    if found is not None:
      curve, scores = (tuple(found.record[name]) for name in ("curve", "scores"))
      progress.update(len(curve) - len(run.curve))
      run = Run(found.state, curve, scores)
    while len(run.curve) < parts:
      run = one_part(run)
      if kept:
        if run.scores and run.scores[-1] > max(run.scores[:-1], default=-np.inf):
          kept.save_best(run.state)
        kept.save(run.state, {"curve": run.curve, "scores": run.scores})
    if best and run.scores and kept and (found := kept.restore_best(run.state)):
      run = run._replace(state=found.state)
  return run


def train(
  settings: pooled_network.Settings,
  seed: int,
  variants: dict[str, pooled_network.Variant],
  images: data.Images,
  progress: tqdm.tqdm,
  *,
  pretrained: training.TrainState | None = None,
  kept: pathlib.Path | None = None,
  after: Callable[[Run, pooled_network.Variant], Run] | None = None,
  best: bool = False,
) -> dict[str, Run]:
  """All variants from one seed.

  They share the first part, which pools by averages: prototypes are chosen among
  features that mean something already. They begin with the backbone of `pretrained`,
  where that is given, and with random weights otherwise. Each part is kept below a
  folder, where one is given: a run that was stopped goes on from there.
  What `after` makes of a run after each of its own parts goes on; with `best`, the
  state with the highest of the scores that it gives is returned, and not the last one.
  """
  if best and kept is None:
    raise ValueError("the best state is kept in a folder, got kept=None")
  init_key, data_key = jax.random.split(jax.random.key(seed))
  classes = len(images.label_names)
  pixels, labels = jnp.asarray(images.images), jnp.asarray(images.labels)
  table = data.class_table(
    images.labels, per_class=settings.per_class, label_names=images.label_names
  )
  state = _initial_state(init_key, pixels, settings=settings, classes=classes)
  if pretrained is not None:
    state = state.replace(
      params=_with_backbone(state.params, pretrained.params),
      batch_stats=_with_backbone(state.batch_stats, pretrained.batch_stats),
    )
  if not settings.steps:
    return {name: Run(state, ()) for name in variants}

  begun = jax.tree.leaves((state.params, state.batch_stats))
  made_of = finished.fingerprint([images.images, images.labels, *begun])

  def until(run: Run, parts: int, variant: pooled_network.Variant, name: str) -> Run:
    batches = (
      pixels,
      labels,
      table,
      data_key,
      pooled_network.Variant(*map(jnp.float32, variant)),
    )
    some_steps = functools.partial(_some_steps, settings=settings, classes=classes)

    def one_part(run: Run) -> Run:
      before, title = int(run.state.step), f"seed {seed} of {settings.pooling}"
      state, values = some_steps(run.state, *batches)
      loss = ending.mean_loss(values, before, title, folder)
      progress.set_postfix(loss=f"{loss:.3f}")
      progress.update()
      done = Run(state, (*run.curve, loss), run.scores)
      return after(done, variant) if after and run.curve else done

    # What else an experiment is asked for, such as more seeds, changes no training.
    own = command.only(pooled_network.Settings, settings)
    what = finished.digest((own, seed, variant, _MEMORY, made_of))
    folder = None if kept is None else kept / f"{name}-{what}"
    return _in_parts(run, parts, one_part, folder, progress, best)

  start = until(Run(state, ()), 1, pooled_network.AVERAGE, "start")
  pooling = pooled_network.recipe(settings)
  if pooling.prototypes:
    pooled = pooled_network.embed(start.state, images[:_MEMORY], settings).pooled
    network = _choose_prototypes(
      start.state.params["network"], pooling.averages(pooled), path=pooling.prototypes
    )
    params = start.state.params | {"network": network}
    start = start._replace(state=start.state.replace(params=params))
  return {
    name: until(start, settings.parts, variant, "on")
    for name, variant in variants.items()
  }

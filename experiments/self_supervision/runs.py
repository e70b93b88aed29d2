"""Trainings of `projector_collapse`: all at once, or one after another by LARS."""

import functools
import operator
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import ArrayLike

from experiments.frame import kept
from experiments.frame import training as trainer
from experiments.frame.training import Hyper, Tree
from experiments.self_supervision import geometry
from experiments.self_supervision.geometry import ALL, DRAWN, HALFWAY
from experiments.self_supervision.settings import Full, Settings, Study, cells
from experiments.self_supervision.toy import activation_patterns
from experiments.self_supervision.training import (
  Arrays,
  Projector,
  Run,
  State,
  Variables,
  kernel_of,
)
from spherejax import data, metrics, training


class Trained(NamedTuple):
  """Figures of all runs, [strengths, seeds, ...] each."""

  curves: dict[str, np.ndarray]  # [strengths, seeds, measurements]
  start: dict[str, np.ndarray]  # `end` and `shown` before the first step
  end: dict[str, np.ndarray]  # final measures without a curve
  shown: dict[str, np.ndarray]  # spectra halfway and at the end, distances at the end
  regions: np.ndarray  # linear regions of the projector that features meet at the end

  def at_end(self, name: str) -> np.ndarray:
    """Values of a measure after training, [strengths, seeds]."""
    return self.end[name] if name in self.end else self.curves[name][..., -1]

  @property
  def collapsed(self) -> np.ndarray:
    """Mask of the runs whose outputs collapsed to one point, [strengths, seeds]."""
    ends = self.at_end("invariance"), self.at_end("repulsion")
    return np.asarray(metrics.contrastive_collapse(*map(jnp.asarray, ends)))


def device_data(study: Study) -> Arrays:
  """Moves a study to the device, with mean and deviation of its channels."""
  pixels = study.train.reshape(-1, study.train.shape[-1]) / 255
  moments = (jnp.asarray(x, jnp.float32) for x in (pixels.mean(0), pixels.std(0)))
  return Arrays(*map(jnp.asarray, study[1:]), *moments)


def train(
  settings: Settings,
  strengths: Mapping[str, data.ViewStrengths],
  study: Study,
  folder: pathlib.Path,
) -> Trained:
  """Runs all trainings, or reads them; FloatingPointError names diverged runs."""
  # The digest includes the state's fields, which differ between versions.
  identity = settings, dict(strengths), study.name, State._fields
  record = {"made with": kept.digest(identity)}
  path = folder / f"runs-{record['made with']}"

  def make() -> kept.Finished:
    run, images = Run(settings, study.classes), device_data(study)
    init = jax.tree_util.Partial(run.init, images)
    period = jax.tree_util.Partial(run.period, images)
    result = trainer.many(
      jax.random.key(settings.seed),
      (init, period, lambda state, *_: state.probed["probe"]),
      cells(strengths.values()),
      path.with_name(f"{path.name}-checkpoints"),
      title=f"augmentations {', '.join(strengths)}",
      convolutional=True,
      seeds=range(settings.seed, settings.seed + settings.seeds),
      steps=settings.steps // settings.measure_every,
      evaluate_every=1,
    )
    trained = _of_sweep(run, images, result)
    arrays = {"regions": trained.regions}
    for kind, part in zip(Trained._fields, trained[:-1], strict=False):
      arrays |= {f"{kind} {name}": x for name, x in part.items()}
    return kept.Finished({}, arrays)

  outcome = kept.once(path, made_with=record, make=make)
  parts = {kind: outcome.part(f"{kind} ") for kind in Trained._fields[:-1]}
  return Trained(**parts, regions=outcome.arrays["regions"])


def _hyper(columns: Mapping[str, Sequence[ArrayLike] | np.ndarray], cell: int) -> Hyper:
  """Hyperparameters of a cell, from the columns of a sweep."""
  return {name: jnp.float32(column[cell]) for name, column in columns.items()}


def _of_sweep(run: Run, arrays: Arrays, result: training.SweepResult) -> Trained:
  state: State = result.state

  def of_run(cell: int, seed: int) -> Trained:
    """Outcome without curves, which are measured during training."""
    hyper = _hyper(result.cells, cell)
    single: State = jax.tree.map(operator.itemgetter((cell, seed)), state)
    end = single.params, single.stats
    start, first = measure_geometry(run, arrays, *single.first, hyper)
    figures, plot_values = measure_geometry(run, arrays, *end, hyper)
    start |= first | geometry.to_numpy(single.before)
    halves = measure_network(run, arrays, *single.half, hyper)[1]
    plot_values |= {f"{name}{HALFWAY}": x for name, x in halves.items()}
    return Trained({}, start, figures, plot_values, regions(run, arrays, *end))

  cell_range, seeds = map(range, state.taken.shape)
  trained = _stacked(
    _stacked(of_run(cell, seed) for seed in seeds) for cell in cell_range
  )
  weights = geometry.of_weights(run.settings, state.kernels)
  return trained._replace(curves=geometry.to_numpy(result.curves) | weights)


def measure_network(
  run: Run, arrays: Arrays, params: Tree, stats: Tree, hyper: Hyper
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Array]]:
  """Measures and spectra of a network at one time, and arrays from `Run.measured`."""
  figures, views = run.measured(arrays, params, stats, hyper)
  kernel = kernel_of(params)
  ranks, spectra = geometry.of_features(views, kernel)
  ranks |= geometry.of_weights(run.settings, kernel)
  return geometry.to_numpy(figures) | ranks, spectra, views


def measure_geometry(
  run: Run, arrays: Arrays, params: Tree, stats: Tree, hyper: Hyper
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Measures, geometry and measures on all images, with the values for plots."""
  figures, spectra, views = measure_network(run, arrays, params, stats, hyper)
  figures |= geometry.measured(run, arrays, params, stats, views)
  measures, all_views = run.measured(arrays, params, stats, hyper, len(arrays.train))
  unseen = geometry.of_views(run.settings, all_views, kernel_of(params))
  figures |= {f"{n}{ALL}": np.asarray(x) for n, x in (measures | unseen).items()}
  figures[DRAWN] = np.asarray(run.probed_by_chance(arrays, params, stats))
  return figures, spectra | {"distances": np.asarray(all_views["distances"])}


def regions(run: Run, arrays: Arrays, params: Tree, stats: Tree) -> np.ndarray:
  """Number of linear regions of a network's projector that training images meet."""
  projector = Projector(run.settings.projector)
  variables = {"params": params["projector"]}
  features = _features(run, arrays, params, stats)
  return np.asarray(activation_patterns(projector, variables, features))


@functools.partial(jax.jit, static_argnums=0)
def _features(run: Run, arrays: Arrays, params: Tree, stats: Tree) -> Array:
  return run.features(arrays, params, stats, arrays.train)[0]


def _is_weight(params: optax.Params) -> optax.Params:
  """Mask of the parameters that LARS adapts and decays: no norms, no biases."""
  return jax.tree.map(lambda x: x.ndim > 1, params)


def optimizer(settings: Full) -> optax.GradientTransformation:
  """Returns LARS (You et al. 2017) with a warm-up and a cosine schedule."""
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
  params, batch_stats, batch, *, key, axis_name, run: Run, images: Arrays, hyper
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
    means.pop("loss"), {"network": stats, "loss": {"least gap": least}}, means
  )


def train_apart(
  settings: Full,
  augmentations: Mapping[str, data.ViewStrengths],
  study: Study,
  folder: pathlib.Path,
) -> Trained:
  """Trains the networks one after another, each from its newest checkpoint."""
  return _stacked(
    _stacked(
      _train_on_all_devices(
        settings, strengths, study, settings.seed + seed, folder / f"{name}-{seed}"
      )
      for seed in range(settings.seeds)
    )
    for name, strengths in augmentations.items()
  )


def _stacked(trained: Iterable[Trained]) -> Trained:
  """Stacks outcomes along a new first axis."""
  return jax.tree.map(lambda *x: np.stack(x), *trained)


def _network(state: training.TrainState) -> Variables:
  return state.params["network"], state.batch_stats["network"]


def _curves(result: training.FitResult) -> dict[str, np.ndarray]:
  curves = {
    name: np.array([row[name] for row in part])
    for part in (result.evaluations, result.curve)
    for name in part[0]
    if name not in ("step", "gradient_norm")
  }
  # The least gap is over all steps, and equal at all measurements.
  least = result.state.batch_stats["loss"]["least gap"]
  return curves | {"least gap": np.full_like(curves["loss"], least)}


def _train_on_all_devices(
  settings: Full,
  augmentation: data.ViewStrengths,
  study: Study,
  seed: int,
  folder: pathlib.Path,
) -> Trained:
  """Trains one network; stores the spectra of each measurement in a file."""
  norm_axis = training.AXIS_NAME if settings.synchronized else None
  run, images = Run(settings, study.classes, norm_axis), device_data(study)
  hyper = _hyper(cells([augmentation]), 0)
  init_key, step_key, batch_key = jax.random.split(jax.random.key(seed), 3)
  chain = optimizer(settings)
  # On one device, even if training shares statistics over all devices.
  variables = Run(settings, study.classes).initial_variables(images, init_key, hyper)
  # Far above any gap, which is at most the logarithm of the negatives.
  start_gap = {"batch_stats": {"least gap": jnp.float32(1e9)}}
  state = training.create_state(step_key, chain, variables, start_gap)
  spectra = folder.with_name(f"{folder.name}-spectra")

  def figures(state: training.TrainState) -> dict[str, float]:
    network_variables = _network(state)
    measures, values, _ = measure_network(run, images, *network_variables, hyper)
    if jax.process_index() == 0:  # replaces spectra of a stopped run
      kept.keep(spectra / f"{int(state.step)}", {}, kept.Finished({}, values))
    numbers = measures | run.probed(images, *network_variables)
    return {name: float(x) for name, x in numbers.items()}

  def closely(state: training.TrainState):
    measures, plot_values = measure_geometry(run, images, *_network(state), hyper)
    return measures | {n: np.asarray(x) for n, x in figures(state).items()}, plot_values

  start, first_plot_values = closely(state)
  of_batch = functools.partial(objective, run=run, images=images, hyper=hyper)
  pictures = data.from_arrays(study.train, study.train_labels)
  with training.Checkpoints(folder) as checkpoints:
    result = training.fit(
      state,
      training.make_step(of_batch, chain),
      data.batches(pictures, batch_key, batch_size=settings.batch),
      checkpoints=checkpoints,
      steps=settings.steps,
      evaluate=figures,
      evaluate_every=settings.measure_every,
      checkpoint_every=settings.measure_every,
      report_every=settings.measure_every,
    )
  end, plot_values = closely(result.state)
  half = kept.restore(spectra / f"{settings.halfway}", {})
  plot_values |= {f"{n}{HALFWAY}": x for n, x in (half.arrays if half else {}).items()}
  met = regions(run, images, *_network(result.state))
  return Trained(_curves(result), start | first_plot_values, end, plot_values, met)

"""Slopes, classifiers, episodes and angles of a sample of features."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments.counting.features import Sample
from spherejax import data, distances, losses, metrics, prototypes

POINTS = ("1/4", "1/2", "3/4")
LEVEL = 0.05 / 3
"""Of three tests at once (Bonferroni)."""
STRICT = 1e-3
"""Below it p is "p < .001"."""
_RATES = (1.0, 0.1, 0.01)
_EPOCHS, _BATCH, _VALIDATION = 100, 256, 0.2

Figures = dict[str, float]


@jax.jit
def _regressions(norms: Array, counts: Array) -> tuple[Any, Array]:
  """Of norms [networks, n]."""
  own = functools.partial(metrics.norm_count_regression, counts=counts)
  rho = functools.partial(metrics.norm_count_correlation, counts=counts)
  return jax.vmap(own)(norms), jax.vmap(rho)(norms)


def parabolas(norms: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Coefficients and their covariances for norms [networks, n]."""
  found, _ = _regressions(norms, counts)
  return np.asarray(found.coefficients), np.asarray(found.covariance)


def correlations(norms: np.ndarray, counts: np.ndarray, mode: str) -> list[Figures]:
  """Of each network, whose norms are a row."""
  _, rho = _regressions(norms, counts)
  name = f"correlation of norm and count, {mode}"
  return [{name: float(one)} for one in np.asarray(rho)]


def slopes(norms: np.ndarray, counts: np.ndarray, mode: str) -> list[Figures]:
  """Of each network: slopes, p-values, their least lower bounds, the correlation."""
  from scipy import stats

  found, _ = jax.tree.map(np.asarray, _regressions(norms, counts))
  result = correlations(norms, counts, mode)
  for i in range(len(norms)):
    if not found.valid[i]:
      raise ValueError(
        "the regression of norms on counts is not identifiable: the counts are "
        f"{np.unique(counts).tolist()} and {np.isnan(norms[i]).sum()} norms are NaN"
      )
    figures = {}
    for q, s, p in zip(POINTS, found.slopes[i], found.p_values[i], strict=True):
      figures[f"s at {q}, {mode}"] = float(s)
      figures[f"p at {q}, {mode}"] = float(p)
    figures[f"largest log p, {mode}"] = float(max(found.log_p_values[i].max(), -1e6))
    for name, level in (("bound", LEVEL), ("strict bound", STRICT)):
      quantile = stats.t.isf(level, len(counts) - 3)
      least = found.slopes[i] - quantile * found.standard_errors[i]
      figures[f"{name}, {mode}"] = float(least.min())
      figures[f"{name} at 1/2, {mode}"] = float(least[1])
    result[i] = figures | result[i]
  return result


@functools.partial(jax.jit, static_argnames="classes")
def _nearest_mean(fitted, fitted_labels, asked, asked_labels, classes: int) -> Array:
  """Accuracies of the nearest class mean: features as they are, and normalised."""

  def one(known: Array, points: Array) -> Array:
    means, sizes = prototypes.class_means(
      known, fitted_labels, classes, normalize="none"
    )
    away = distances.pairwise_squared_euclidean(points, means)
    nearest = jnp.argmin(jnp.where(sizes[None] > 0, away, jnp.inf), axis=1)
    return jnp.mean(nearest == asked_labels)

  both = (lambda x: x), distances.l2_normalize
  return jnp.stack([one(change(fitted), change(asked)) for change in both])


@functools.partial(jax.jit, static_argnames="classes")
def _linear(key, fitted, fitted_labels, asked, asked_labels, classes: int) -> Array:
  """Accuracies of linear classifiers by SGD: as they are, and normalised.

  For both sides the rate is the one with the best validation accuracy.
  """
  order_key, key = jax.random.split(key)
  order = jax.random.permutation(order_key, len(fitted))
  kept = round(len(fitted) * (1 - _VALIDATION))
  own, judges = order[:kept], order[kept:]
  per_epoch = max(1, kept // _BATCH)
  batch = min(_BATCH, kept)

  def train(x: Array, y: Array, rate: Array) -> Any:
    schedule = optax.cosine_decay_schedule(1.0, _EPOCHS * per_epoch)
    optimizer = optax.chain(
      optax.add_decayed_weights(1e-4), optax.sgd(schedule, momentum=0.9)
    )
    weights = jnp.zeros((x.shape[1], classes)), jnp.zeros(classes)

    def step(number: Array, state: Any) -> Any:
      weights, opt_state = state
      rows = jax.random.permutation(
        jax.random.fold_in(key, number // per_epoch), len(y)
      )
      rows = jax.lax.dynamic_slice(rows, (number % per_epoch * batch,), (batch,))

      def loss(weights: Any) -> Array:
        scores = x[rows] @ weights[0] + weights[1][None]
        return jnp.mean(losses.softmax(scores, y[rows]))

      updates, opt_state = optimizer.update(jax.grad(loss)(weights), opt_state, weights)
      moved = jax.tree.map(lambda w, u: w + rate * u, weights, updates)
      return moved, opt_state

    state = weights, optimizer.init(weights)
    return jax.lax.fori_loop(0, _EPOCHS * per_epoch, step, state)[0]

  def accuracy(weights: Any, x: Array, y: Array) -> Array:
    found = jnp.argmax(x @ weights[0] + weights[1][None], axis=1)
    return jnp.mean(found == y)

  def one(change: Any) -> Array:
    x, points = change(fitted), change(asked)

    def try_out(rate: Array) -> tuple[Array, Array]:
      weights = train(x[own], fitted_labels[own], rate)
      judged = accuracy(weights, x[judges], fitted_labels[judges])
      return judged, accuracy(weights, points, asked_labels)

    judged, found = jax.vmap(try_out)(jnp.array(_RATES))
    return found[jnp.argmax(judged)]

  return jnp.stack([one(change) for change in ((lambda x: x), distances.l2_normalize)])


def classifiers(
  fitted: Sample, asked: Sample, network: int, key: Array
) -> dict[str, float]:
  """Accuracies of two classifiers, before and after normalisation."""
  classes = int(max(fitted.labels.max(), asked.labels.max())) + 1
  arrays = fitted.z[network], fitted.labels, asked.z[network], asked.labels
  figures = {}
  for name, found in (
    ("nearest mean", _nearest_mean(*arrays, classes)),
    ("SGD", _linear(key, *arrays, classes)),
  ):
    plain, normalised = (100 * float(x) for x in found)
    figures[f"{name} [%]"] = plain
    figures[f"{name}, l2 [%]"] = normalised
    figures[f"{name}, change [points]"] = normalised - plain
  return figures


def few_shot_table(labels: np.ndarray) -> data.ClassTable:
  """Where the images of each class are; classes are renumbered."""
  return data.class_table(labels, per_class=1)


def draw_episodes(
  labels: np.ndarray, key: Array, *, shots: int, ways: int, queries: int, number: int
) -> Array:
  """[number, ways, shots + queries], rows of the images."""
  return _episodes(key, few_shot_table(labels), number, ways, shots, queries)


def episodes(
  sample: Sample, network: int, drawn: Array, *, shots: int
) -> dict[str, float]:
  """Few-shot accuracies, their intervals, and the correlation within episodes."""
  z = jnp.asarray(sample.z[network])
  figures = {}
  for transform in ("none", "l2"):
    found = _accuracies(z, drawn, shots, transform)
    mean, low, high, _ = metrics.mean_interval(np.asarray(found))
    name = f"{shots}-shot" + (", l2" if transform == "l2" else "")
    figures[name] = mean
    figures[f"{name}, half-width"] = (high - low) / 2
  norms = np.linalg.norm(sample.z[network], axis=1)
  return figures | within(norms, sample.counts, drawn, shots=shots)


def within(
  norms: np.ndarray, counts: np.ndarray, drawn: Array, *, shots: int
) -> dict[str, float]:
  """The mean correlation within episodes, of those that have one."""
  rho = np.asarray(_correlations(jnp.asarray(norms), jnp.asarray(counts), drawn))
  kept = np.isfinite(rho)
  mean = float(rho[kept].mean()) if kept.any() else np.nan
  return {
    f"{shots}-shot, correlation of norm and count": mean,
    f"{shots}-shot, episodes without a correlation": float((~kept).sum()),
  }


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _episodes(
  key: Array, table: data.ClassTable, number: int, ways: int, shots: int, queries: int
) -> Array:
  draw = functools.partial(
    data.sample_episode,
    table=table,
    num_ways=ways,
    num_shots=shots,
    num_queries=queries,
  )
  return jax.vmap(lambda key: draw(key))(jax.random.split(key, number))


@functools.partial(jax.jit, static_argnums=(2, 3))
def _accuracies(z: Array, drawn: Array, shots: int, transform: Any) -> Array:
  return prototypes.episode_accuracies(z, drawn, num_shots=shots, transform=transform)


@jax.jit
def _correlations(norms: Array, counts: Array, drawn: Array) -> Array:
  rows = drawn.reshape(len(drawn), -1)
  return jax.vmap(metrics.norm_count_correlation)(norms[rows], counts[rows])


@jax.jit
def _cosines(z: Array, counts: Array, labels: Array) -> tuple[Array, Array]:
  unit = distances.l2_normalize(z)
  cosines = unit @ unit.T
  same_label = labels[:, None] == labels[None]
  same_count = counts[:, None] == counts[None]
  first, second = same_label & ~same_count, ~same_label & same_count
  return (
    jnp.sum(jnp.where(first, cosines, 0)) / jnp.sum(first),
    jnp.sum(jnp.where(second, cosines, 0)) / jnp.sum(second),
  )


def angles(sample: Sample, network: int) -> dict[str, float]:
  """Mean cosines of one class with two counts, and of two classes with one."""
  first, second = _cosines(sample.z[network], sample.counts, sample.labels)
  return {
    "cosine of one class, two counts": float(first),
    "cosine of two classes, one count": float(second),
  }

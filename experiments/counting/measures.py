"""Measures of a sample of features: slopes, classifiers, episodes and angles."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.counting.features import Sample
from spherejax import distances, metrics, prototypes

POINTS = ("1/4", "1/2", "3/4")
LEVEL = 0.05 / 3  # of each of three simultaneous tests (Bonferroni)
# Penalties of logistic regression, for features of variance 1 on average.
_PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
_STEPS, _VALIDATION, _LEAST = 300, 0.2, 1e-30

Figures = dict[str, float]
_accuracies = jax.jit(
  prototypes.episode_accuracies, static_argnames=("num_shots", "transform")
)


@jax.jit
def _regressions(
  norms: Array, counts: Array
) -> tuple[metrics.NormCountRegression, Array]:
  """Regressions and correlations of norms [networks, n]."""
  regression = functools.partial(metrics.norm_count_regression, counts=counts)
  rho = functools.partial(metrics.norm_count_correlation, counts=counts)
  return jax.vmap(regression)(norms), jax.vmap(rho)(norms)


def correlations(norms: np.ndarray, counts: np.ndarray, mode: str) -> list[Figures]:
  """Correlation of norm and count for each network, a row of the norms."""
  _, rho = _regressions(norms, counts)
  name = f"correlation of norm and count, {mode}"
  return [{name: float(x)} for x in np.asarray(rho)]


def slopes(norms: np.ndarray, counts: np.ndarray, mode: str) -> list[Figures]:
  """Slopes, p-values, lower bounds and correlation of each network."""
  from scipy import stats

  fits, _ = jax.tree.map(np.asarray, _regressions(norms, counts))
  result = correlations(norms, counts, mode)
  for i in range(len(norms)):
    if not fits.valid[i]:
      raise ValueError(
        "the regression of norms on counts is not identifiable: the counts are "
        f"{np.unique(counts).tolist()} and {np.isnan(norms[i]).sum()} norms are NaN"
      )
    figures = {}
    for q, s, p in zip(POINTS, fits.slopes[i], fits.p_values[i], strict=True):
      figures[f"s at {q}, {mode}"] = float(s)
      figures[f"p at {q}, {mode}"] = float(p)
    figures[f"largest log p, {mode}"] = float(max(fits.log_p_values[i].max(), -1e6))
    quantile = stats.t.isf(LEVEL, len(counts) - 3)
    least = fits.slopes[i] - quantile * fits.standard_errors[i]
    figures[f"bound, {mode}"] = float(least.min())
    figures[f"bound at 1/2, {mode}"] = float(least[1])
    result[i] = figures | result[i]
  return result


@functools.partial(jax.jit, static_argnames="classes")
def _nearest_mean(
  _, fitted, fitted_labels, queries, query_labels, classes: int
) -> Array:
  means, sizes = prototypes.class_means(
    fitted, fitted_labels, classes, normalize="none"
  )
  squares = distances.pairwise_squared_euclidean(queries, means)
  nearest = jnp.argmin(jnp.where(sizes[None] > 0, squares, jnp.inf), axis=1)
  return jnp.mean(nearest == query_labels)


@functools.partial(jax.jit, static_argnames="classes")
def _linear(key, fitted, fitted_labels, queries, query_labels, classes: int) -> Array:
  """Accuracy of logistic regression, whose penalty validation accuracy chooses."""
  order = jax.random.permutation(key, len(fitted))
  train, judges = jnp.split(order, [round(len(fitted) * (1 - _VALIDATION))])
  # A shift and a common scale change the penalty, but not what can be separated.
  shift = fitted[train].mean(0, keepdims=True)
  scale = jnp.maximum((fitted[train] - shift).std(), _LEAST)
  features, points = (
    jnp.pad((x - shift) / scale, ((0, 0), (0, 1)), constant_values=1.0)
    for x in (fitted, queries)
  )

  def try_out(penalty: Array) -> tuple[Array, Array]:
    weights = _regressed(features[train], fitted_labels[train], penalty, classes)
    judged, tested = (
      jnp.argmax(x @ weights, axis=1) for x in (features[judges], points)
    )
    return jnp.mean(judged == fitted_labels[judges]), jnp.mean(tested == query_labels)

  judged, tested = jax.vmap(try_out)(jnp.array(_PENALTIES))
  return tested[jnp.argmax(judged)]


def _regressed(x: Array, y: Array, penalty: Array, classes: int) -> Array:
  """Weights [dim, classes] that minimise cross-entropy with a quadratic penalty."""
  targets = jax.nn.one_hot(y, classes)
  # This bounds the second derivative everywhere (Boehning 1992), so that steps by its
  # inverse descend; momentum speeds them up (Nesterov 1983).
  # One decomposition serves all penalties. On a CPU, batched factorisations in two
  # programs at once can deadlock.
  curvature, axes = jnp.linalg.eigh(x.T @ x / (2 * len(x)))
  bound = jnp.maximum(curvature, 0)[:, None] + penalty

  def step(number: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
    before, ahead = state
    wrong = jax.nn.softmax(x @ ahead) - targets
    gradient = x.T @ wrong / len(x) + penalty * ahead
    after = ahead - axes @ ((axes.T @ gradient) / bound)
    return after, after + number / (number + 3) * (after - before)

  start = jnp.zeros((x.shape[1], classes))
  return jax.lax.fori_loop(0, _STEPS, step, (start, start))[0]


def classifiers(fitted: Sample, queries: Sample, network: int, key: Array) -> Figures:
  """Accuracies of two classifiers, before and after normalisation."""
  classes = int(max(fitted.labels.max(), queries.labels.max())) + 1
  points = fitted.z[network], queries.z[network]
  figures = {}
  for name, accuracy in (
    ("nearest mean", _nearest_mean), ("logistic regression", _linear),
  ):  # fmt: skip
    plain, normalised = (
      100 * float(accuracy(key, x, fitted.labels, y, queries.labels, classes))
      for x, y in (points, map(distances.l2_normalize, points))
    )
    figures[f"{name} [%]"] = plain
    figures[f"{name}, l2 [%]"] = normalised
    figures[f"{name}, change [points]"] = normalised - plain
  return figures


def episodes(sample: Sample, network: int, rows: Array, *, shots: int) -> Figures:
  """Few-shot accuracies, their intervals, and the correlation within episodes."""
  z = jnp.asarray(sample.z[network])
  figures = {}
  for transform in ("none", "l2"):
    accuracies = _accuracies(z, rows, num_shots=shots, transform=transform)
    mean, low, high, _ = metrics.mean_interval(np.asarray(accuracies))
    name = f"{shots}-shot" + (", l2" if transform == "l2" else "")
    figures[name] = mean
    figures[f"{name}, half-width"] = (high - low) / 2
  norms = np.linalg.norm(sample.z[network], axis=1)
  return figures | within(norms, sample.counts, rows, shots=shots)


def within(
  norms: np.ndarray, counts: np.ndarray, rows: Array, *, shots: int
) -> Figures:
  """Mean correlation within episodes, over those where it is defined."""
  rho = np.asarray(_correlations(jnp.asarray(norms), jnp.asarray(counts), rows))
  defined = np.isfinite(rho)
  mean = float(rho[defined].mean()) if defined.any() else np.nan
  return {
    f"{shots}-shot, correlation of norm and count": mean,
    f"{shots}-shot, episodes without a correlation": float((~defined).sum()),
  }


@jax.jit
def _correlations(norms: Array, counts: Array, episode_rows: Array) -> Array:
  rows = episode_rows.reshape(len(episode_rows), -1)
  return jax.vmap(metrics.norm_count_correlation)(norms[rows], counts[rows])


@jax.jit
def _cosines(z: Array, counts: Array, labels: Array) -> list[Array]:
  unit = distances.l2_normalize(z)
  same_label, same_count = (x[:, None] == x[None] for x in (labels, counts))
  masks = same_label & ~same_count, ~same_label & same_count
  return [metrics.mean_where(unit @ unit.T, mask) for mask in masks]


def angles(sample: Sample, network: int) -> Figures:
  """Mean cosines of one class with two counts, and of two classes with one count."""
  names = "cosine of one class, two counts", "cosine of two classes, one count"
  cosines = _cosines(sample.z[network], sample.counts, sample.labels)
  return dict(zip(names, map(float, cosines), strict=True))

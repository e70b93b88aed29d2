"""Nearest-neighbour classifiers: exact decisions, and scores with gradients.

The decision judges an attack and the scores guide it. They are two functions because
the decision has no gradient and the scores break ties differently.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Integer, Real

from spherejax import _checks, _numerics, distances
from spherejax.distances._lp import Norm

Ties = Literal["nearest", "label"]
_LARGE = 1e30  # finite distance in place of a missing neighbour


def nearest_neighbours(
  points: Float[ArrayLike, "batch dim"],
  sites: Float[ArrayLike, "sites dim"],
  labels: Integer[ArrayLike, " sites"],
  *,
  num_classes: int,
  k: int = 1,
  ties: Ties = "nearest",
  norm: Norm = "l2",
  where: Bool[ArrayLike, " sites"] | None = None,
  block_size: int = 128,
) -> Int[Array, " batch"]:
  """Classifies points by the majority of their k nearest sites.

      k = 1: the label of argmin_i ||s_i - x||_p, the lowest index among equals
      k > 1: the label of most of the k nearest; among equals the smaller sum of
             distances wins, then the lower label

  With the class means as sites and k = 1 this is the nearest-prototype classifier;
  `where` then leaves out classes without a mean.

  Args:
    points: [batch, dim], floating.
    sites: [sites, dim], floating: the training points, or prototypes. For l2 they may
      be split over devices, as in `distances.k_nearest`.
    labels: [sites], integer in [0, num_classes).
    num_classes: static.
    k: static, at most the number of sites.
    ties: winner among several labels with most votes: "nearest", the label with the
      smaller sum of distances; or "label", the lowest label. Static.
    norm: "linf", "l2" or "l1". Static.
    where: [sites], boolean, True keeps; masked sites may be NaN. None keeps all. Where
      fewer than k are kept, all of them vote.
    block_size: static. Points at once; memory is block_size x sites.

  Returns:
    [batch], int32; -1 for a point that is not finite, or if no site is kept.

  Raises:
    TypeError: points or sites not floating, labels not integers, where not boolean.
    ValueError: shapes do not match, a known label outside [0, num_classes), fewer
      sites than k, or an unknown norm or `ties`.

  Differentiable in: nothing; see `neighbour_logits`. Cost: O(batch sites dim).

  Source: DIST 5.2; DIST I 2.4 (`ties="label"`); Cover and Hart 1967, "Nearest neighbor
  pattern classification".

  Example:
    >>> sites, labels = jnp.array([[0.0], [1.0], [1.5]]), jnp.array([0, 1, 1])
    >>> spherejax.prototypes.nearest_neighbours(
    ...   jnp.array([[0.4], [0.6]]), sites, labels, num_classes=2)
    Array([0, 1], dtype=int32)
  """
  points, sites = _checks.array("points", points), _checks.array("sites", sites)
  labels = _checks.integers("labels", labels)
  check_points(points, sites)
  _checks.count("num_classes", num_classes)
  _checks.labels(labels, sites)
  _checks.one_of("ties", ties, Ties)
  mask = _checks.where_mask(where, labels.shape)
  _checks.known_labels(labels, num_classes, mask)
  groups = None
  if where is not None:
    # Every point leaves out the sites of group 0, whatever they hold.
    groups = jnp.zeros(len(points), jnp.int32), mask.astype(jnp.int32)
  points = _numerics.upcast(points)  # a distance may overflow in half precision
  neighbours = distances.k_nearest(
    points, sites, k=k, norm=norm, apart=groups, block_size=block_size
  )
  voted = jnp.where(mask, labels, -1)[neighbours.indices].astype(jnp.int32)
  # A point or a site that is NaN is no neighbour.
  voted = jnp.where(jnp.isinf(neighbours.distances), -1, voted)
  if k == 1:
    return voted[:, 0]
  votes, totals = _ballots(voted, neighbours.distances, num_classes)
  most = jnp.max(votes, axis=1, keepdims=True)
  if ties == "label":
    chosen = jnp.argmax(votes, axis=1)
  else:
    chosen = jnp.argmin(jnp.where(votes == most, totals, jnp.inf), axis=1)
  return jnp.where(most[:, 0] > 0, chosen, -1).astype(jnp.int32)


def _ballots(voted: Array, lengths: Array, num_classes: int) -> tuple[Array, Array]:
  """[batch, classes]: votes, and the sums of the voters' distances."""
  rows = jnp.arange(len(voted))
  # A negative index would count from the end.
  voted = jnp.where(voted < 0, num_classes, voted)

  def count_vote(carry: tuple[Array, Array], neighbour: tuple[Array, Array]):
    votes, totals = carry
    label, length = neighbour
    votes = votes.at[rows, label].add(1, mode="drop")
    return (votes, totals.at[rows, label].add(length, mode="drop")), None

  shape = len(voted), num_classes
  start = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, lengths.dtype)
  return jax.lax.scan(count_vote, start, (voted.T, lengths.T))[0]


def neighbour_logits(
  points: Float[ArrayLike, "batch dim"],
  sites: Float[ArrayLike, "sites dim"],
  labels: Integer[ArrayLike, " sites"],
  *,
  num_classes: int,
  k: int = 1,
  sharpness: Real[ArrayLike, ""] = 20.0,
  norm: Norm = "l2",
) -> Float[Array, "batch classes"]:
  """Smooth scores of classes by near sites, for attacks on `nearest_neighbours`.

      k = 1: z_y = 1/b log sum_{i: y_i = y} exp(-b d_i),    b = sharpness
      k > 1: z_y = log sum_{i: y_i = y} sigmoid(b (m - d_i)),
             m = the middle between the k-th and the next distance

  For k = 1 the scores decide like the nearest neighbour wherever the second class is
  farther by more than log(largest class) / b. If every class has one site, they are the
  negative distances. Attack them with `loss="margin"`: cross-entropy is nearly flat at
  a site and breaks few of the images that the margin breaks.

  Args:
    points: [batch, dim], floating.
    sites: [sites, dim], floating.
    labels: [sites], integer in [0, num_classes).
    num_classes: static.
    k: static, below the number of sites if above 1.
    sharpness: b, positive, in units of 1 / distance; may be traced. A large
      value is exact, a small one smooth.
    norm: "linf", "l2" or "l1". Static. "l2" uses matrix products, which round distances
      below 1e-3 to 2e-3 of the norms to 0.

  Returns:
    [batch, classes], dtype of `points`; for an empty class -1e30 or less, for a point
    that is not finite NaN. A site that is not finite does not count.

  Raises:
    TypeError: points or sites not floating, labels not integers.
    ValueError: shapes do not match, a known label outside [0, num_classes), too few
      sites, an unknown norm, or a static sharpness that is not positive.

  Differentiable in: points, sites, sharpness; m is held constant. Cost: O(batch sites
  dim) time, O(batch sites) memory.

  Source: DIST 5.2 names the classifiers; the scores for k = 1 follow Sitawarin and
  Wagner 2019, "On the robustness of deep k-nearest neighbors".

  Example:
    >>> sites, labels = jnp.array([[0.0], [1.0]]), jnp.array([0, 1])
    >>> spherejax.prototypes.neighbour_logits(
    ...   jnp.array([[0.25]]), sites, labels, num_classes=2)
    Array([[-0.25, -0.75]], dtype=float32)
  """
  points, sites, labels = _labelled_sites(points, sites, labels, num_classes)
  _checks.positive("sharpness", sharpness)
  _checks.count("k", k)
  if len(sites) < k + (k > 1):
    raise ValueError(f"sites must be at least {k + (k > 1)}, got {len(sites)}")
  wide, known, usable = _computing(points, sites)
  lengths = (
    distances.pairwise_euclidean(wide, known)
    if norm == "l2"
    else distances.pairwise_lp(wide, known, norm=norm)
  )
  rate = _checks.scalar("sharpness", sharpness, wide.dtype)
  if k == 1:
    logs = -rate * lengths
  else:
    known_lengths = jnp.where(usable[None], jax.lax.stop_gradient(lengths), jnp.inf)
    near = -jax.lax.top_k(-known_lengths, k + 1)[0]
    middle = near[:, k - 1 : k] / 2 + near[:, k:] / 2
    # Finite also if there are fewer than k + 1 finite sites: then each of them votes.
    middle = jnp.minimum(middle, jnp.finfo(wide.dtype).max)
    logs, rate = -_numerics.softplus(rate * (lengths - middle)), jnp.ones_like(rate)
  logs = jnp.where(usable[None], logs, -jnp.inf)
  return _of_finite(points, _by_class(logs, labels, num_classes, rate))


def _by_class(logs: Array, labels: Array, num_classes: int, rate: Array) -> Array:
  """[batch, classes]: log-sum-exp over each class, divided by the rate."""
  shift = jax.ops.segment_max(
    jax.lax.stop_gradient(logs).T, labels, num_classes
  )  # -inf of an empty class
  shift = jnp.where(jnp.isfinite(shift), shift, 0)
  total = jax.ops.segment_sum(jnp.exp(logs.T - shift[labels]), labels, num_classes)
  sizes = (jnp.log(jnp.where(total > 0, total, 1)) + shift) / rate
  return jnp.where(total > 0, sizes, -_LARGE).T


def nearest_neighbour_scores(
  points: Float[ArrayLike, "batch dim"],
  sites: Float[ArrayLike, "sites dim"],
  labels: Integer[ArrayLike, " sites"],
  *,
  num_classes: int,
) -> Float[Array, "batch classes"]:
  """Scores of classes by the nearest site of each in l2, linear between boundaries.

      z_y = max_{i: y_i = y} 2 <x - c, s_i - c> - |s_i - c|^2
          = |x - c|^2 - min_{i: y_i = y} |x - s_i|^2,    c the mean of the sites

  The decision is that of `nearest_neighbours`, up to the rounding of a product: squared
  distances that differ by less than about (4 + sqrt(dim)) eps |x - c|^2 are ordered by
  chance. While the nearest sites stay the same, the boundary of two classes is the
  plane of zero lead. So minimal-norm attacks, which linearise, reach
  `nearest_neighbour_distance`; with the smooth `neighbour_logits` they end beyond it.

  Args:
    points: [batch, dim], floating.
    sites: [sites, dim], floating.
    labels: [sites], integer in [0, num_classes).
    num_classes: static.

  Returns:
    [batch, classes], dtype of `points`; -1e30 for an empty class, NaN for a point that
    is not finite. A site that is not finite does not count.

  Raises:
    TypeError: points or sites not floating, labels not integers.
    ValueError: shapes do not match, or a known label outside [0, num_classes).

  Differentiable in: points, sites. Cost: O(batch sites dim) time, O(batch sites)
  memory.

  Source: DIST 5.2 names the classifier; the scores are ours.

  Example:
    >>> sites, labels = jnp.array([[0.0], [1.0]]), jnp.array([0, 1])
    >>> spherejax.prototypes.nearest_neighbour_scores(
    ...   jnp.array([[0.25]]), sites, labels, num_classes=2)
    Array([[ 0. , -0.5]], dtype=float32)
  """
  points, sites, labels = _labelled_sites(points, sites, labels, num_classes)
  wide, known, usable = _computing(points, sites)
  power = _numerics.shrinking(known)  # a score may be finite where a term is not
  wide, known, grow = wide * power, known * power, 1 / power
  # Products round less near the origin.
  centre = jnp.mean(known, axis=0, keepdims=True, where=usable[:, None])
  known = jnp.where(usable[:, None], known - centre, 0)
  along = _numerics.product(wide - centre, known.T)
  heights = 2 * along - jnp.sum(known**2, axis=1)[None]
  heights = jnp.where(usable[None], heights, -jnp.inf)
  top = jax.ops.segment_max(heights.T, labels, num_classes).T
  scores = jnp.where(top == -jnp.inf, -_LARGE, top * grow * grow)
  return _of_finite(points, scores)


def _computing(points: Array, sites: Array) -> tuple[Array, Array, Array]:
  """Points and sites with 0 where not finite, and the mask of the finite sites."""
  finite, usable = (jnp.all(jnp.isfinite(x), axis=1) for x in (points, sites))
  wide = _numerics.upcast(jnp.where(finite[:, None], points, 0))
  return wide, jnp.where(usable[:, None], sites, 0).astype(wide.dtype), usable


def _of_finite(points: Array, scores: Array) -> Array:
  """Scores in the type of the points, NaN for a point that is not finite."""
  finite = jnp.all(jnp.isfinite(points), axis=1, keepdims=True)
  return jnp.where(finite, scores, jnp.nan).astype(points.dtype)


def _labelled_sites(
  points: ArrayLike, sites: ArrayLike, labels: ArrayLike, num_classes: int
) -> tuple[Array, Array, Array]:
  """The checked points, sites and labels."""
  points, sites = _checks.array("points", points), _checks.array("sites", sites)
  labels = _checks.integers("labels", labels)
  check_points(points, sites)
  _checks.labels(labels, sites)
  _checks.count("num_classes", num_classes)
  _checks.known_labels(labels, num_classes)
  return points, sites, labels


def nearest_neighbour_radius(
  points: Float[ArrayLike, "batch dim"],
  point_labels: Integer[ArrayLike, " batch"],
  sites: Float[ArrayLike, "sites dim"],
  labels: Integer[ArrayLike, " sites"],
  *,
  norm: Norm = "l2",
  block_size: int = 128,
) -> Float[Array, " batch"]:
  """Radius within which the nearest-neighbour classifier is certain to be right.

      r = max((d_other - d_own) / 2, 0)

  with the distances to the nearest site of another class and of the point's own class.
  By the triangle inequality no smaller move changes the decision, in any norm. In l2,
  at a point that is a site, let m be the midpoint between it and the nearest site of
  another class. If no other site of its class is nearer to m than these two, no larger
  radius is certain.

  Args:
    points: [batch, dim], floating.
    point_labels: [batch], integer, the right classes.
    sites: [sites, dim], floating.
    labels: [sites], integer.
    norm: of the classifier and of the radius, "linf", "l2" or "l1". Static.
    block_size: static. Points at once; memory is block_size x sites.

  Returns:
    [batch], dtype of `points`; 0 where the decision is wrong, inf without another
    class.

  Raises:
    TypeError: points or sites not floating, labels not integers.
    ValueError: shapes do not match, or an unknown norm.

  Differentiable in: nothing. Cost: O(batch sites dim).

  Source: DIST III lemma 1 (its argument); Yang et al. 2020, "A closer look at accuracy
  vs. robustness".

  Example:
    >>> spherejax.prototypes.nearest_neighbour_radius(
    ...   jnp.array([[0.5]]), jnp.array([0]), jnp.array([[0.0], [3.0]]),
    ...   jnp.array([0, 1]))
    Array([1.], dtype=float32)
  """
  points, sites = _checks.array("points", points), _checks.array("sites", sites)
  names, labels = _checks.names(("point_labels", point_labels), ("labels", labels))
  check_points(points, sites)
  _checks.labels(names, points, "point_labels")
  _checks.labels(labels, sites)
  wide = _numerics.upcast(points)  # a distance may overflow in half precision
  anything = distances.k_nearest(wide, sites, k=1, norm=norm, block_size=block_size)
  other = distances.k_nearest(
    wide, sites, k=1, norm=norm, apart=(names, labels), block_size=block_size
  )
  # Where the nearest site is of another class, the difference is 0.
  radius = (other.distances[:, 0] - anything.distances[:, 0]) / 2
  return radius.astype(points.dtype)


def check_points(points: Array | np.ndarray, sites: Array | np.ndarray) -> None:
  """Raises unless points and sites are rows of one length."""
  for name, array in (("points", points), ("sites", sites)):
    _checks.expect(name, array, "floating", rank=2)
  _checks.shape("sites", sites, (len(sites), points.shape[1]), "the points")

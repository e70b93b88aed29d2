"""Classification losses for a tree of classes or for distances between classes."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, _compiled, _numerics
from spherejax.losses import _batch, _classes

Discount = Literal["depth", "height"]


def _tree(ancestors: ArrayLike, logits: Array, axis: int) -> tuple[Array, int]:
  """Checked matrix and its number of levels, at most one per node.

  Call it inside `_compiled.at_once`: a known matrix is checked entry by
  entry, and its levels are counted. The columns of the logits are the classes (axis 0)
  or the nodes (axis 1).
  """
  tree = _checks.array("ancestors", ancestors, "boolean", rank=2)
  expected = list(tree.shape)
  expected[axis] = logits.shape[1]
  _checks.shape("ancestors", tree, expected, f"the columns of logits {logits.shape}")
  levels = _compiled.known(_levels, tree)
  return tree, tree.shape[1] if levels is None else levels


def _levels(ancestors: ArrayLike) -> int:
  """Largest number of nodes above a class; raises unless `ancestors` is a tree."""
  known = np.asarray(ancestors)
  if not known.all(axis=0).any():
    raise ValueError("ancestors must have a root above all classes, got none")
  empty = np.flatnonzero(~known.any(axis=0))
  if empty.size:
    raise ValueError(f"ancestors must have a class below every node, got {empty[0]}")
  size = known.sum(axis=1)
  below = known.astype(np.float32) @ known.T.astype(np.float32) == size[:, None]
  inner = np.flatnonzero(below.sum(axis=1) > 1)
  if inner.size:
    raise ValueError(
      f"classes must be leaves of the tree, got {inner[0]} above another"
    )
  return int(size.max(initial=0))


def _shared_nodes(tree: Array) -> Array:
  """[classes, classes], number of nodes above both classes, the root included."""
  wide = tree.astype(jnp.float32)  # counts below 2^24 are exact
  return _numerics.product(wide, wide.T).astype(jnp.int32)


def _discount(
  shared: Array, depths: Array, level: Array, alpha: Array, discount: Discount
) -> Array:
  """[rows]: weight of the node at this depth on the path of each row's class."""
  if discount == "depth":
    return jnp.broadcast_to(jnp.exp(-alpha * level), shared.shape[:1])
  deepest = jnp.max(jnp.where(shared > level, depths[None], 0), axis=1, initial=0)
  return jnp.exp(-alpha * jax.nn.relu((deepest - level).astype(alpha.dtype)))


def hierarchical_cross_entropy(
  logits: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  ancestors: Bool[ArrayLike, "classes nodes"],
  *,
  alpha: Real[ArrayLike, ""] = 0.1,
  discount: Discount = "depth",
  normalize_weights: bool = False,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Hierarchical cross-entropy: each step down the tree has its own weight.

  The probability of a node is the sum over the classes below it. The probability of a
  class is the product, from the root down, of the probabilities of each node given its
  parent. With c_0 = y_i, ..., c_d the root:

      loss_i = -sum_{l < d} w(c_l) log(P(c_l) / P(c_{l+1}))
      w(v) = exp(-alpha depth(v))      "depth"
      w(v) = exp(-alpha height(v))     "height", the longest way down to a class

  With alpha = 0 the loss is cross-entropy. "depth" makes mistakes among near classes
  cheaper than mistakes among far classes, as the method intends. "height" is the
  printed formula and does the opposite.

  Args:
    logits: [batch, classes], floating; not probabilities. Known rows that look like
      probabilities cause a warning; traced rows are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    ancestors: [classes, nodes], boolean: True where the node is the class or above it.
      One column is the root, and every class has a column of its own. If the array is
      known when the function is traced, everything that depends on it alone is computed
      then.
    alpha: at least 0, may be traced.
    discount: "depth" or "height". Static.
    normalize_weights: divides by the sum of w over all nodes, root included, as the
      released code does. Static.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `logits`; 0 for masked rows, +inf with derivative 0 where the
    logit of the true class is -inf. `loss.mean()` is the paper's scalar. Rows do not
    depend on each other.

  Raises:
    TypeError: logits are not floating, labels not integers, ancestors not boolean,
      normalize_weights not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), a known tree
      with no root, a class above another or a node above no class, an unknown
      `discount`, or a static alpha below 0.

  Differentiable in: logits, alpha. Cost: O(batch classes depth); if the tree is traced,
  the number of nodes replaces the depth.

  Source: DIST 4.2; Bertinetto et al. 2020, "Making better mistakes", eq. 3. DIST
  and that paper print the height; the released code uses the depth.

  Example:
    >>> ancestors = jnp.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 0, 0, 1]])
    >>> spherejax.losses.hierarchical_cross_entropy(
    ...   jnp.zeros((2, 3)), jnp.array([0, 2]), ancestors.astype(bool), alpha=0.5
    ... )
    Array([0.5009216, 0.6663421], dtype=float32)
  """
  _checks.flag("normalize_weights", normalize_weights)
  _checks.one_of("discount", discount, Discount)
  _checks.between("alpha", alpha, 0)
  wide, class_mask, dtype, _ = _classes.scores("logits", logits, labels, where)
  rate = _checks.scalar("alpha", alpha, wide.dtype)
  with _compiled.at_once(ancestors):
    tree, levels = _tree(ancestors, wide, 0)
    shared_by_class = _shared_nodes(tree)
    depths = jnp.sum(tree, axis=1, dtype=jnp.int32) - 1
  shared = jnp.take(
    shared_by_class, _checks.integers("labels", labels), axis=0, mode="clip"
  )

  def descend(carry: tuple[Array, Array], level: Array) -> tuple[tuple, None]:
    # Upwards: from the classes below the node at this depth to the other classes below
    # its parent. Ratios of sums, not differences of logarithms, keep the digits.
    inside, loss = carry
    siblings_sum = _numerics.logsumexp(wide, (shared == level) & ~class_mask)
    weight = _discount(shared, depths, level, rate, discount)
    loss += weight * _numerics.softplus(siblings_sum - inside)
    return (jnp.logaddexp(inside, siblings_sum), loss), None

  logit = _numerics.masked_sum(wide, class_mask)
  impossible = logit == -jnp.inf
  start = (jnp.where(impossible, 0, logit), jnp.zeros_like(logit))
  start = _numerics.varying(start, shared)
  (_, loss), _ = jax.lax.scan(descend, start, jnp.arange(levels - 1, 0, -1))
  if normalize_weights:

    def of_level(level: Array) -> Array:
      weight = _discount(shared_by_class, depths, level, rate, discount)
      members = jnp.sum(shared_by_class > level, axis=1, dtype=jnp.int32)
      return jnp.sum(_numerics.divide(weight, members.astype(weight.dtype)))

    loss /= jnp.sum(jax.lax.map(of_level, jnp.arange(levels)))
  loss = jnp.where(impossible, jnp.inf, loss)
  return jnp.where(jnp.any(class_mask, axis=1), loss, 0).astype(dtype)


@jax.jit  # one program, also where the tree is known and runs eagerly
def _parents(tree: Array) -> tuple[Array, Array]:
  """[nodes] each: number of nodes above, and index of the parent (0 for the root).

  If two nodes are above the same classes, the node in the earlier column is higher.
  """
  nodes = tree.shape[1]
  sizes = jnp.sum(tree, axis=0, dtype=jnp.int32)
  holds = _shared_nodes(tree.T) == sizes[None]
  earlier = jnp.arange(nodes)[:, None] < jnp.arange(nodes)[None]
  larger = sizes[:, None] > sizes[None]
  above = holds & (larger | ((sizes[:, None] == sizes[None]) & earlier))
  depths = jnp.sum(above, axis=0, dtype=jnp.int32)
  return depths, jnp.argmax(jnp.where(above, depths[:, None], -1), axis=0)


@jax.jit
def _steps(tree: Array) -> Array:
  """[classes, nodes]: depth of a node on the class's path or beside it, else 0.

  The nodes beside a path are the other children of its nodes.
  """
  depths, parents = _parents(tree)
  return jnp.where(tree[:, parents], depths[None], 0)


def conditional_softmax(
  logits: Float[ArrayLike, "batch nodes"],
  labels: Integer[ArrayLike, " batch"],
  ancestors: Bool[ArrayLike, "classes nodes"],
  *,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Conditional softmax: a softmax among the children of every node of a tree.

      P(v | parent of v) = softmax over the siblings of v, itself included
      loss_i = -sum_{v on the path of y_i} log P(v | parent of v)

  The probabilities of the classes add to one, and an only child has probability 1;
  `conditional_log_probabilities` gives them.

  Args:
    logits: [batch, nodes], floating, one logit per node; the root's logit is not used.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    ancestors: [classes, nodes], boolean: True where the node is the class or above it.
      One column is the root, every class has a column of its own, and an only child
      comes after its parent. If the array is known when the function is traced,
      everything that depends on it alone is computed then.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `logits`; 0 for masked rows, +inf with derivative 0 where the
    logit of the true class or of a node above it is -inf. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: logits are not floating, labels not integers, ancestors not boolean.
    ValueError: shapes do not match, a known label outside [0, classes), or a known tree
      with no root, a class above another or a node above no class.

  Differentiable in: logits. Cost: O(batch nodes depth); if the tree is traced, the
  number of nodes replaces the depth.

  Source: DIST 4.2; Redmon and Farhadi 2017, "YOLO9000", section 4.

  Example:
    >>> ancestors = jnp.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 0, 0, 1]])
    >>> spherejax.losses.conditional_softmax(
    ...   jnp.zeros((2, 5)), jnp.array([0, 2]), ancestors.astype(bool)
    ... )
    Array([1.3862944, 0.6931472], dtype=float32)
  """
  logits = _checks.array("logits", logits, "floating", rank=2, empty=False)
  labels = _checks.integers("labels", labels)
  _checks.labels(labels, logits)
  mask = _batch.keep_all(where, logits)
  with _compiled.at_once(ancestors):
    tree, levels = _tree(ancestors, logits, 1)
    steps_by_class = _steps(tree)
  wide = jnp.where(mask[:, None], _numerics.upcast(logits), 0)
  known = mask & _checks.inside(labels, tree.shape[0], mask)
  on_path = jnp.take(tree, labels, axis=0, mode="clip")
  steps = jnp.take(steps_by_class, labels, axis=0, mode="clip")
  # The root takes no step.
  impossible = jnp.any(on_path & (steps > 0) & (wide == -jnp.inf), axis=1)
  wide = jnp.where(impossible[:, None], 0, wide)

  def step(depth: Array) -> Array:
    siblings = steps == depth
    siblings_sum = _numerics.logsumexp(wide, siblings & ~on_path)
    chosen = _numerics.masked_sum(wide, siblings & on_path)
    return _numerics.softplus(siblings_sum - chosen)

  loss = jnp.sum(jax.lax.map(step, jnp.arange(1, levels)), axis=0)
  loss = jnp.where(impossible, jnp.inf, loss)
  return jnp.where(known, loss, 0).astype(logits.dtype)


def conditional_log_probabilities(
  logits: Float[ArrayLike, "batch nodes"], ancestors: Bool[ArrayLike, "classes nodes"]
) -> Float[Array, "batch classes"]:
  """Log-probabilities of all classes under a softmax among the children of every node.

      log P(class) = sum_{v on the path of the class} log P(v | parent of v)

  These are the predictions of a network that was trained with `conditional_softmax`:
  that loss is minus the entry of the label. Every entry has its full relative accuracy.

  Args:
    logits: [batch, nodes], floating, one logit per node; the root's logit is not used.
    ancestors: [classes, nodes], boolean, as for `conditional_softmax`.

  Returns:
    [batch, classes], dtype of `logits`; -inf with derivative 0 for a class whose logit,
    or that of a node above it, is -inf.

  Raises:
    TypeError: logits are not floating, ancestors not boolean.
    ValueError: shapes do not match, or a known tree that `conditional_softmax` refuses.

  Differentiable in: logits. Cost: O(batch classes nodes).

  Source: DIST 4.2; Redmon and Farhadi 2017, "YOLO9000", section 4.

  Example:
    >>> ancestors = jnp.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 0, 0, 1]])
    >>> found = spherejax.losses.conditional_log_probabilities(
    ...   jnp.zeros((1, 5)), ancestors.astype(bool)
    ... )
    >>> jnp.exp(found)
    Array([[0.25, 0.25, 0.5 ]], dtype=float32)
  """
  logits = _checks.array("logits", logits, "floating", rank=2, empty=False)
  with _compiled.at_once(ancestors):
    tree, _ = _tree(ancestors, logits, 1)
    depths, parents = _parents(tree)
    nodes = len(depths)
    parents = jnp.where(depths > 0, parents, nodes)  # the root has no sibling
  # The root's logit, which may be anything, is not used.
  wide = _numerics.keep(_numerics.upcast(logits).T, (depths > 0)[:, None])

  def among_siblings(function, values: Array) -> Array:
    return function(values, parents, num_segments=nodes + 1)[parents]

  # Relative to the largest sibling; its own logarithm comes from the sum of the others.
  column = jnp.arange(nodes)[:, None]
  largest = wide == among_siblings(jax.ops.segment_max, wide)
  first = among_siblings(jax.ops.segment_min, jnp.where(largest, column, nodes))
  # Among siblings that are all ruled out none leads: -inf - -inf is NaN.
  leads = (column == first) & (wide != -jnp.inf)
  top = among_siblings(jax.ops.segment_sum, _numerics.keep(wide, leads))
  behind = _numerics.keep(wide - top, ~leads)
  mass = _numerics.keep(jnp.exp(behind), ~leads)
  steps = behind - jnp.log1p(among_siblings(jax.ops.segment_sum, mass))
  possible = steps != -jnp.inf
  paths = tree.astype(wide.dtype)
  total = _batch.dot(_numerics.keep(steps, possible).T, paths)
  ruled_out = _batch.dot((~possible).astype(wide.dtype).T, paths) > 0
  return jnp.where(ruled_out, -jnp.inf, total).astype(logits.dtype)


def soft_label_cross_entropy(
  logits: Float[ArrayLike, "batch classes"],
  labels: Integer[ArrayLike, " batch"],
  class_distances: Real[ArrayLike, "classes classes"],
  *,
  beta: Real[ArrayLike, ""] = 10.0,
  where: Bool[ArrayLike, " batch"] | None = None,
) -> Float[Array, " batch"]:
  """Cross-entropy with soft labels that decay with the distance of the classes.

      q_ik = softmax_k(-beta d(y_i, k) / max d)
      loss_i = -sum_k q_ik log softmax_k(logits_i)

  A large beta gives cross-entropy, beta = 0 gives a uniform target; on a flat tree the
  loss is label smoothing. The least value is the entropy of q_i, reached at the
  probabilities q_i.

  Args:
    logits: [batch, classes], floating; not probabilities. Known rows that look like
      probabilities cause a warning; traced rows are not checked.
    labels: [batch], integer in [0, classes). A traced label out of range masks its
      row.
    class_distances: [classes, classes], floating or integer, at least 0, row y the
      distances from class y. Not differentiated.
    beta: at least 0, may be traced.
    where: [batch], boolean, True keeps. None keeps all.

  Returns:
    [batch], dtype of `logits`; 0 for masked rows. `loss.mean()` is the paper's
    scalar. Rows do not depend on each other.

  Raises:
    TypeError: logits are not floating, labels not integers, class_distances not
      numbers.
    ValueError: shapes do not match, a known label outside [0, classes), a known
      distance or a static beta below 0.

  Differentiable in: logits, beta. Cost: O(batch classes).

  Source: DIST 4.2; Bertinetto et al. 2020, "Making better mistakes", eq. 5, beta from 4
  to 30. Differs from DIST in two ways. DIST does not divide distances by their maximum,
  so its beta is this function's `beta` / max d. Its denominator sums over the true
  classes, not over the classes of one row as here; see errata.

  Example:
    >>> spherejax.losses.soft_label_cross_entropy(
    ...   jnp.array([[2.0, 0.0]]), jnp.array([0]), 1 - jnp.eye(2), beta=1.0
    ... )
    Array([0.6648109], dtype=float32)
  """
  _checks.between("beta", beta, 0)
  wide, class_mask, dtype, _ = _classes.scores("logits", logits, labels, where)
  sharpness = _checks.scalar("beta", beta, wide.dtype)
  with _compiled.at_once(class_distances):
    class_matrix = _checks.array("class_distances", class_distances, "real")
    _checks.shape("class_distances", class_matrix, (wide.shape[1],) * 2, "the logits")
    _checks.between("class_distances", class_matrix, 0)
    gaps = jax.lax.stop_gradient(class_matrix).astype(wide.dtype)
    gaps = _numerics.divide(gaps, jnp.max(gaps, initial=0))
  from_own = jnp.take(gaps, _checks.integers("labels", labels), axis=0, mode="clip")
  targets = jax.nn.softmax(-sharpness * from_own, axis=1)
  # Where a target underflows the class may be impossible: 0 log 0 = 0.
  wanted = targets > 0
  terms = targets * _numerics.keep(_numerics.log_softmax(wide), wanted)
  loss = -_numerics.masked_sum(terms, wanted)
  return jnp.where(jnp.any(class_mask, axis=1), loss, 0).astype(dtype)

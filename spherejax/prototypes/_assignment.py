"""Assigns prototypes to classes, and measures the choice."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int, Integer, Key

from spherejax import _checks, _numerics, solvers
from spherejax.prototypes import _moving


class AssignmentState(NamedTuple):
  """Representatives of the classes and the prototypes assigned to them.

  The training step moves `representatives` by `ema_update` or adds to `sums` by
  `class_sums_update`; `assignment_update` does the rest.
  """

  representatives: _moving.MovingPrototypes
  """Representatives of the classes, [classes, dim]."""
  sums: _moving.ClassSums
  """Sums since the last matching; zeros if `representatives` are moved instead."""
  assignment: Int[Array, " classes"]
  """Prototype of each class, all different."""
  column_dual: Float[Array, " prototypes"]
  """Duals of the last matching, from which the next one starts."""
  change: Float[Array, ""]
  """Share of the classes whose prototype the last matching changed."""


def assign_prototypes(
  representatives: Float[ArrayLike, "classes dim"],
  prototypes: Float[ArrayLike, "prototypes dim"],
  *,
  start: tuple[Integer[ArrayLike, " classes"], Float[ArrayLike, " prototypes"]]
  | None = None,
  host: bool = False,
) -> solvers.Assignment:
  """Assigns each class its own prototype, with the largest sum of cosines.

      max_a  sum_k cos(m_k, p_{a_k})                a_k all different

  which also maximises the likelihood of the softmax over the prototypes, whose
  denominator is the same for every a, and minimises sum_k |m_k - p_{a_k}|^2 for unit
  rows. Representatives and prototypes are normalised here, since the length of a
  representative would change the result.

  Args:
    representatives: m, [classes, dim], floating; zero rows have no preference.
    prototypes: p, [prototypes, dim], floating, at least as many as classes.
    start: assignment [classes] and column duals [prototypes] of an earlier result for
      similar representatives. The result is equally exact, with less work.
    host: static; True matches on the host, as in `solvers.linear_assignment`.

  Returns:
    `solvers.Assignment` for the costs -cos(m_k, p_j); `-cost / classes` is the
    alignment.

  Raises:
    TypeError: representatives or prototypes not floating, host not boolean.
    ValueError: shapes do not match, fewer prototypes than classes, or a known entry
      that is not finite. With such an entry traced, the cost is NaN and nothing is
      matched.

  Not differentiable. Cost: O(classes prototypes (classes + dim)) time at worst.

  Source: DL2P eqs. 8, 9. The loss there differs: the matching need not minimise the
  pull loss summed over the samples.

  Example:
    >>> m = jnp.array([[0.0, 2.0], [1.0, 0.5]])
    >>> spherejax.prototypes.assign_prototypes(m, jnp.eye(2)).assignment
    Array([1, 0], dtype=int32)
  """
  _checks.flag("host", host)
  m, p = _pair(representatives, prototypes)
  if len(m) > len(p):
    raise ValueError(f"{len(m)} classes need as many prototypes, got {len(p)}")
  _checks.known_finite("representatives", representatives)
  _checks.known_finite("prototypes", prototypes)
  return solvers.linear_assignment(-_numerics.product(m, p.T), start=start, host=host)


def assignment_init(
  key: Key[Array, ""],
  prototypes: Float[ArrayLike, "prototypes dim"],
  *,
  num_classes: int | None = None,
  host: bool = False,
) -> AssignmentState:
  """Random representatives matched with the prototypes, which is a random assignment.

  Args:
    key: typed key.
    prototypes: [prototypes, dim], floating.
    num_classes: static, at most the number of prototypes; None takes as many.
    host: static; True matches on the host, as in `solvers.linear_assignment`.

  Returns:
    AssignmentState with a change of 0.

  Raises:
    TypeError: prototypes not floating, host not boolean.
    ValueError: fewer prototypes than classes.

  Not differentiable. Cost: that of `assign_prototypes`.

  Source: DL2P algorithm 1.

  Example:
    >>> state = spherejax.prototypes.assignment_init(jax.random.key(0), jnp.eye(4))
    >>> state.assignment
    Array([1, 0, 2, 3], dtype=int32)
  """
  _checks.key("key", key)
  _checks.flag("host", host)
  p = _checks.array("prototypes", prototypes, "floating", rank=2)
  classes = len(p) if num_classes is None else num_classes
  representatives = _moving.ema_init(key, classes, p.shape[1])
  matching = assign_prototypes(representatives.prototypes, p, host=host)
  return AssignmentState(
    representatives,
    _moving.class_sums_init(classes, p.shape[1]),
    jnp.asarray(matching.assignment),
    jnp.asarray(matching.column_dual),
    jnp.zeros((), representatives.prototypes.dtype),
  )


def assignment_update(
  state: AssignmentState,
  prototypes: Float[ArrayLike, "prototypes dim"],
  *,
  host: bool = False,
) -> AssignmentState:
  """Matches classes and prototypes again, starting from the last matching.

  Sums become representatives first: a class with embeddings in its sum takes the sum's
  direction, and all sums restart from 0. Sums of zeros change nothing.

  Args:
    state: from `assignment_init` or the last update.
    prototypes: [prototypes, dim], floating; the same as before.
    host: static; True matches on the host, as in `solvers.linear_assignment`.

  Returns:
    AssignmentState. If the representatives did not move, nothing changes and `change`
    is 0. If one of them is not finite, the assignment stays and the change is NaN.

  Raises:
    TypeError: prototypes not floating, host not boolean.
    ValueError: shapes do not match, or a known entry that is not finite.

  Not differentiable. Cost: that of `assign_prototypes`; after small movements a single
  pass over the costs.

  Source: DL2P algorithm 1.

  Example:
    >>> state = spherejax.prototypes.assignment_init(jax.random.key(0), jnp.eye(2))
    >>> x, labels = jnp.eye(2), jnp.array([1, 0])
    >>> sums = spherejax.prototypes.class_sums_update(state.sums, x, labels)
    >>> state = state._replace(sums=sums)
    >>> spherejax.prototypes.assignment_update(state, jnp.eye(2)).assignment
    Array([1, 0], dtype=int32)
  """
  _checks.flag("host", host)
  _checks.instance("state", state, AssignmentState)
  moving, sums = state.representatives, state.sums
  rows = _moving.class_sums_directions(sums, moving.prototypes)
  present = moving.seen | jnp.any(sums.sums != 0, axis=1)
  start = state.assignment, state.column_dual
  matching = assign_prototypes(rows, prototypes, start=start, host=host)
  matched, dual = jnp.isfinite(matching.cost), jnp.asarray(matching.column_dual)
  change = assignment_change(matching.assignment, state.assignment)
  return AssignmentState(
    _moving.MovingPrototypes(rows, present),
    jax.tree.map(jnp.zeros_like, sums),
    jnp.where(matched, matching.assignment, state.assignment),
    jnp.where(matched, dual, state.column_dual).astype(state.column_dual.dtype),
    jnp.where(matched, change, jnp.nan).astype(state.change.dtype),
  )


def assignment_change(
  assignment: Integer[ArrayLike, " classes"], before: Integer[ArrayLike, " classes"]
) -> Float[Array, ""]:
  """Share of the classes whose prototype has changed.

  Args:
    assignment: [classes], integer.
    before: [classes], integer.

  Returns:
    Scalar in [0, 1], float32 (float64 under x64).

  Raises:
    TypeError: assignments not integers.
    ValueError: shapes do not match.

  Not differentiable. Cost: O(classes).

  Source: DL2P figure 4b.

  Example:
    >>> spherejax.prototypes.assignment_change(jnp.array([0, 2, 1]), jnp.arange(3))
    Array(0.6666667, dtype=float32)
  """
  new, old = (
    _checks.integers("assignment", assignment),
    _checks.integers("before", before),
  )
  _checks.expect("assignment", new, "integer")
  _checks.expect("before", old, "integer")
  _checks.expect("assignment", new, rank=1)
  _checks.shape("before", old, new.shape, "the assignment")
  return jnp.mean(new != old)


def assignment_alignment(
  representatives: Float[ArrayLike, "classes dim"],
  prototypes: Float[ArrayLike, "prototypes dim"],
  assignment: Integer[ArrayLike, " classes"],
) -> Float[Array, ""]:
  """Mean cosine between the classes' representatives and their prototypes.

      1/C sum_k cos(m_k, p_{a_k})

  Args:
    representatives: m, [classes, dim], floating.
    prototypes: p, [prototypes, dim], floating.
    assignment: a, [classes], integer, in [0, prototypes).

  Returns:
    Scalar in [-1, 1], dtype of `representatives`.

  Raises:
    TypeError: representatives or prototypes not floating, assignment not integer.
    ValueError: shapes do not match, or a known index outside [0, prototypes).

  Not differentiated. Cost: O(classes dim).

  Source: DL2P eq. 9.

  Example:
    >>> spherejax.prototypes.assignment_alignment(
    ...   jnp.array([[0.0, 2.0], [3.0, 4.0]]), jnp.eye(2), jnp.array([1, 0])
    ... )
    Array(0.8, dtype=float32)
  """
  m, p = _pair(representatives, prototypes)
  chosen = _class_prototypes(p, assignment, len(m))
  return jnp.mean(jnp.sum(m * chosen, axis=1)).astype(
    jnp.asarray(representatives).dtype
  )


def sibling_gap(
  prototypes: Float[ArrayLike, "prototypes dim"],
  assignment: Integer[ArrayLike, " classes"],
  superclasses: Integer[ArrayLike, " classes"],
) -> Float[Array, ""]:
  """Mean cosine of prototypes of related classes minus that of unrelated ones.

      mean of cos(p_{a_k}, p_{a_l}) over pairs of classes k < l of one superclass
      - mean over the pairs of two superclasses

  Args:
    prototypes: p, [prototypes, dim], floating.
    assignment: a, [classes], integer, in [0, prototypes).
    superclasses: [classes], integer: classes of the same superclass are related.

  Returns:
    Scalar in [-2, 2], dtype of `prototypes`; 0 for a simplex whatever the assignment,
    NaN where there are no pairs of one of the two kinds.

  Raises:
    TypeError: prototypes not floating, assignment or superclasses not integers.
    ValueError: shapes do not match, or a known index outside [0, prototypes).

  Not differentiated. Cost: O(classes^2 dim).

  Source: none; it tests the claim of DL2P 3.1 that related classes get nearby
  prototypes.

  Example:
    >>> p = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> superclasses = jnp.array([0, 0, 1, 1])
    >>> spherejax.prototypes.sibling_gap(p, jnp.arange(4), superclasses)
    Array(0.5, dtype=float32)
  """
  p = _checks.array("prototypes", prototypes, "floating", rank=2, empty=False)
  (groups,) = _checks.names(("superclasses", superclasses))
  _checks.expect("superclasses", groups, "integer", rank=1)
  chosen = _class_prototypes(
    _numerics.normalize(_numerics.upcast(p)), assignment, len(groups)
  )
  pairs = jnp.triu(jnp.ones((len(groups), len(groups)), bool), 1)
  related = groups[:, None] == groups[None]
  cosines = _numerics.product(chosen, chosen.T)
  siblings = jnp.mean(cosines, where=pairs & related)
  others = jnp.mean(cosines, where=pairs & ~related)
  return (siblings - others).astype(p.dtype)


def _pair(representatives: ArrayLike, prototypes: ArrayLike) -> tuple[Array, Array]:
  """Representatives and prototypes as unit rows."""
  m = _checks.array("representatives", representatives)
  p = _checks.array("prototypes", prototypes)
  for name, rows in (("representatives", m), ("prototypes", p)):
    _checks.expect(name, rows, "floating", rank=2, empty=False)
  _checks.shape("prototypes", p, (len(p), m.shape[1]), "the representatives")
  m, p = (jax.lax.stop_gradient(_numerics.upcast(rows)) for rows in (m, p))
  return _numerics.normalize(m), _numerics.normalize(p).astype(m.dtype)


def _class_prototypes(p: Array, assignment: ArrayLike, classes: int) -> Array:
  """Prototype of each class."""
  a = _checks.integers("assignment", assignment)
  _checks.expect("assignment", a, "integer")
  _checks.shape("assignment", a, (classes,), "the classes")
  _checks.known_labels(a, len(p), name="assignment")
  return p[a]

"""Miners choose the pairs of every anchor that count, from a matrix and masks.

A miner looks at one row at a time, so neither blocks nor devices change its choice.
Losses tell it what their matrix holds (`of`). Nothing is differentiated.
"""

from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from spherejax import _checks
from spherejax.losses import _batch, _extremes, _selection, _triplet_counts
from spherejax.losses._batch import Measure
from spherejax.losses._triplet_counts import Kind

Strategy = Literal["hard", "semihard", "easy", "all"]


def operands(
  matrix: ArrayLike, positives: ArrayLike, negatives: ArrayLike, of: Measure
) -> tuple[Array, Array, Array]:
  """The checked matrix with smaller entries closer, and its masks."""
  _checks.one_of("of", of, Measure)
  block, _ = _batch.matrix(matrix, positives, negatives, None, "matrix")
  values = -block.values if of == "similarity" else block.values
  return values, block.positives, block.negatives


def squared_distances(matrix: Array, of: Measure) -> Array:
  """Squared distances; a matrix of similarities must be of unit vectors."""
  if of == "similarity":
    return jnp.maximum(2 - 2 * matrix, 0)
  return matrix if of == "squared_distance" else matrix**2


def mine_multi_similarity(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  epsilon: Real[ArrayLike, ""] = 0.1,
  of: Measure = "similarity",
) -> tuple[_selection.Selected, _selection.Selected]:
  """Keeps pairs that are not clearly better than the worst pair of the other kind.

      keep positive p of anchor i:  S_ip - epsilon < max_{n negative} S_in
      keep negative n of anchor i:  S_in + epsilon > min_{p positive} S_ip

  An anchor keeps a positive if and only if it keeps a negative.

  Args:
    matrix: [queries, references], floating.
    positives: [queries, references], boolean, or weights.
    negatives: [queries, references], boolean, or weights.
    epsilon: in units of the matrix, may be traced.
    of: what the matrix holds: "distance", "squared_distance" or "similarity". Static;
      a loss that mines sets it.

  Returns:
    The kept part of `positives` and of `negatives`.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating.
    ValueError: shapes do not match, or an unknown `of`.

  Not differentiated. Cost: O(queries references).

  Source: Wang et al. 2019, "Multi-similarity loss", eqs. 11 and 12.

  Example:
    >>> same = jnp.array([[True, True, False, False]])
    >>> s = jnp.array([[0.9, 0.4, 0.5, 0.1]])
    >>> spherejax.losses.mine_multi_similarity(s, same, ~same)[0]
    Array([[False,  True, False, False]], dtype=bool)
  """
  d, positives, negatives = operands(matrix, positives, negatives, of)
  slack = _checks.scalar("epsilon", epsilon, d.dtype)
  near, far = _selection.chosen(positives), _selection.chosen(negatives)
  hard_positives = d + slack > _extremes.smallest(d, far)
  hard_negatives = d < _extremes.largest(d, near) + slack
  return _selection.part(positives, hard_positives), _selection.part(
    negatives, hard_negatives
  )


def mine_pair_margin(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  positive_margin: Real[ArrayLike, ""] = 0.2,
  negative_margin: Real[ArrayLike, ""] = 0.8,
  of: Measure = "distance",
) -> tuple[_selection.Selected, _selection.Selected]:
  """Keeps positives farther than one margin and negatives closer than another.

      keep positive p of anchor i:  D_ip > positive_margin
      keep negative n of anchor i:  D_in < negative_margin

  For similarities the inequalities are reversed: positives less similar than
  `positive_margin`, negatives more similar than `negative_margin`.

  Args:
    matrix: [queries, references], floating.
    positives: [queries, references], boolean, or weights.
    negatives: [queries, references], boolean, or weights.
    positive_margin: in units of the matrix, may be traced.
    negative_margin: in units of the matrix, may be traced.
    of: what the matrix holds: "distance", "squared_distance" or "similarity". Static;
      a loss that mines sets it.

  Returns:
    The kept part of `positives` and of `negatives`.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating.
    ValueError: shapes do not match, or an unknown `of`.

  Not differentiated. Cost: O(queries references).

  Source: Musgrave et al. 2020, "PyTorch metric learning" (defaults).

  Example:
    >>> same = jnp.array([[True, True, False, False]])
    >>> d = jnp.array([[0.1, 0.4, 0.7, 0.9]])
    >>> spherejax.losses.mine_pair_margin(d, same, ~same)[1]
    Array([[False, False,  True, False]], dtype=bool)
  """
  d, positives, negatives = operands(matrix, positives, negatives, of)
  sign = -1 if of == "similarity" else 1
  near = sign * _checks.scalar("positive_margin", positive_margin, d.dtype)
  far = sign * _checks.scalar("negative_margin", negative_margin, d.dtype)
  return _selection.part(positives, d > near), _selection.part(negatives, d < far)


def mine_triplet_margin(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  margin: Real[ArrayLike, ""] = 0.2,
  kind: Kind = "all",
  of: Measure = "distance",
) -> tuple[_selection.Selected, _selection.Selected]:
  """Weights each pair by the number of its triplets that violate a margin.

      "all":       D_in - D_ip <= margin
      "hard":      and D_in <= D_ip
      "semihard":  and D_in > D_ip
      "easy":      D_in - D_ip > margin

  Args:
    matrix: [queries, references], floating.
    positives: [queries, references], boolean, or weights; a triplet then counts as
      much as the product of its two weights.
    negatives: [queries, references], boolean, or weights.
    margin: in units of the matrix, may be traced.
    kind: "all", "hard", "semihard" or "easy". Static.
    of: what the matrix holds: "distance", "squared_distance" or "similarity". Static;
      a loss that mines sets it.

  Returns:
    Weights of positives and of negatives, [queries, references] each. A loss over pairs
    with these weights is the sum over triplets of the terms of both pairs.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating.
    ValueError: shapes do not match, or an unknown `kind` or `of`.

  Not differentiated. Cost: O(queries references log references); no triplet is formed.

  Source: Schroff et al. 2015, "FaceNet", section 3.2 (the kinds).

  Example:
    >>> same = jnp.array([[True, True, False, False]])
    >>> d = jnp.array([[0.1, 0.4, 0.5, 0.9]])
    >>> spherejax.losses.mine_triplet_margin(d, same, ~same)[0]
    Array([[0., 1., 0., 0.]], dtype=float32)
  """
  _checks.one_of("kind", kind, Kind)
  d, positives, negatives = operands(matrix, positives, negatives, of)
  m = _checks.scalar("margin", margin, d.dtype)
  return _triplet_counts.count_triplets(d, m, positives, negatives, kind, False)


def mine_batch_hard(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  of: Measure = "distance",
) -> tuple[_selection.Selected, _selection.Selected]:
  """Keeps the farthest positive and the closest negative of every anchor.

      keep p = argmax_{p positive} D_ip and n = argmin_{n negative} D_in

  Ties go to the lowest index; an anchor without a positive or without a negative keeps
  nothing. Entries are compared without a tolerance: in a matrix from a product,
  rounding decides between nearly equal pairs; in a matrix by `method="difference"` it
  does not. With the triplet loss, `mining="batch_hard"` gives the same result at less
  cost.

  Args:
    matrix: [queries, references], floating.
    positives: [queries, references], boolean, or weights.
    negatives: [queries, references], boolean, or weights.
    of: what the matrix holds: "distance", "squared_distance" or "similarity". Static;
      a loss that mines sets it.

  Returns:
    The kept part of `positives` and of `negatives`.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating.
    ValueError: shapes do not match, or an unknown `of`.

  Not differentiated. Cost: O(queries references).

  Source: Hermans et al. 2017, "In defense of the triplet loss", eq. 5.

  Example:
    >>> same = jnp.array([[True, True, False, False]])
    >>> d = jnp.array([[0.1, 0.4, 0.5, 0.9]])
    >>> spherejax.losses.mine_batch_hard(d, same, ~same)[0]
    Array([[False,  True, False, False]], dtype=bool)
  """
  return mine_batch_easy_hard(
    matrix, positives, negatives, positive="hard", negative="hard", of=of
  )


def mine_batch_easy_hard(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  positive: Strategy = "easy",
  negative: Strategy = "semihard",
  of: Measure = "distance",
) -> tuple[_selection.Selected, _selection.Selected]:
  """Picks a positive and a negative, easy or hard, for every anchor.

      positive: "hard" farthest, "easy" closest, "semihard" the farthest that is closer
        than the kept negative, "all" every one
      negative: "hard" closest, "easy" farthest, "semihard" the closest that is farther
        than the kept positive, "all" every one

  Easy positives let a class keep several clusters. Ties go to the lowest index. An
  anchor keeps nothing where one of the strategies finds no partner, unless either is
  "all".

  Args:
    matrix: [queries, references], floating.
    positives: [queries, references], boolean, or weights.
    negatives: [queries, references], boolean, or weights.
    positive: "hard", "semihard", "easy" or "all". Static.
    negative: same choices. "semihard" needs "easy" or "hard" on the other side. Static.
    of: what the matrix holds: "distance", "squared_distance" or "similarity". Static;
      a loss that mines sets it.

  Returns:
    The kept part of `positives` and of `negatives`.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating.
    ValueError: shapes do not match, an unknown strategy or `of`, or "semihard" with
      "semihard" or "all".

  Not differentiated. Cost: O(queries references).

  Source: Xuan et al. 2020, "Improved embeddings with easy positive triplet mining".

  Example:
    >>> same = jnp.array([[True, True, False, False]])
    >>> d = jnp.array([[0.6, 0.7, 0.5, 0.9]])
    >>> spherejax.losses.mine_batch_easy_hard(d, same, ~same)[1]
    Array([[False, False, False,  True]], dtype=bool)
  """
  _checks.one_of("positive", positive, Strategy)
  _checks.one_of("negative", negative, Strategy)
  if "semihard" in (positive, negative) and {positive, negative} <= {"semihard", "all"}:
    raise ValueError(
      f"positive and negative must not be {positive!r} and {negative!r}: "
      "'semihard' needs 'easy' or 'hard' on the other side"
    )
  d, positives, negatives = operands(matrix, positives, negatives, of)
  near, far = _selection.chosen(positives), _selection.chosen(negatives)
  if positive == "semihard":
    far = _extreme_pair(d, far, negative == "easy")
    near = _extreme_pair(d, near & (d < _extremes.smallest(d, far)), True)
  elif negative == "semihard":
    near = _extreme_pair(d, near, positive == "hard")
    far = _extreme_pair(d, far & (d > _extremes.largest(d, near)), False)
  else:
    near = near if positive == "all" else _extreme_pair(d, near, positive == "hard")
    far = far if negative == "all" else _extreme_pair(d, far, negative == "easy")
  if "all" not in (positive, negative):
    both = jnp.any(near, 1, keepdims=True) & jnp.any(far, 1, keepdims=True)
    near, far = near & both, far & both
  return _selection.part(positives, near), _selection.part(negatives, far)


def _extreme_pair(values: Array, among: Array, largest: bool) -> Array:
  """Mask of the largest or the smallest entry of each row."""
  find = _extremes.where_largest if largest else _extremes.where_smallest
  return _extremes.one_hot(find(values, among), values.shape[1])


def mine_hardest_fraction(
  matrix: Float[ArrayLike, "queries references"],
  positives: _selection.Selection,
  negatives: _selection.Selection,
  *,
  fraction: Real[ArrayLike, ""] = 0.5,
  of: Measure = "distance",
) -> tuple[_selection.Selected, _selection.Selected]:
  """Keeps a share of every anchor's pairs: farthest positives, closest negatives.

      keep the ceil(fraction |P_i|) farthest positives of anchor i
      keep the ceil(fraction |N_i|) closest negatives of anchor i

  Args:
    matrix: [queries, references], floating.
    positives: [queries, references], boolean, or weights (which do not count here).
    negatives: [queries, references], boolean, or weights.
    fraction: in [0, 1], may be traced.
    of: what the matrix holds: "distance", "squared_distance" or "similarity". Static;
      a loss that mines sets it.

  Returns:
    The kept part of `positives` and of `negatives`; ties go to the lowest index.

  Raises:
    TypeError: the matrix is not floating, a mask neither boolean nor floating.
    ValueError: shapes do not match, an unknown `of`, or a static fraction outside
      [0, 1].

  Not differentiated. Cost: O(queries references log references).

  Source: Yuan et al. 2017, "Hard-aware deeply cascaded embedding", section 3.2. Differs
  from the paper: the fraction refers to every anchor's pairs, not to all pairs of the
  batch, so blocks of rows and several devices give the same result.

  Example:
    >>> same = jnp.array([[True, True, False, False]])
    >>> d = jnp.array([[0.6, 0.7, 0.5, 0.9]])
    >>> spherejax.losses.mine_hardest_fraction(d, same, ~same)[0]
    Array([[False,  True, False, False]], dtype=bool)
  """
  _checks.between("fraction", fraction, 0, 1)
  d, positives, negatives = operands(matrix, positives, negatives, of)
  share = _checks.scalar("fraction", fraction, d.dtype)
  near, far = _selection.chosen(positives), _selection.chosen(negatives)
  hard_positives = _hardest(-d, near, share)
  hard_negatives = _hardest(d, far, share)
  return _selection.part(positives, hard_positives), _selection.part(
    negatives, hard_negatives
  )


def _hardest(values: Array, among: Array, share: Array) -> Array:
  order = jnp.argsort(jnp.where(among, values, jnp.inf), axis=1)
  rank = jnp.argsort(order, axis=1)
  exact = share * _selection.count_over(among, values.dtype)
  # Rounding must not turn a whole number into the next one.
  number = jnp.ceil(exact * (1 - 4 * jnp.finfo(values.dtype).eps))
  return among & (rank < number[:, None])

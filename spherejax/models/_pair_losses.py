"""Loss modules over pairs, with parameters."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, losses
from spherejax.losses._batch import Normalization
from spherejax.losses._margin import Form


class Margin(nn.Module):
  """Margin loss with learned boundaries.

  Owns `boundary` []; with `num_classes`, also `class_boundaries` [num_classes]; with
  `num_examples`, also `example_boundaries` [num_examples]. Calls
  `spherejax.losses.margin` with their sum. Give the boundaries their own learning rate:
  500 times the network's in the paper.

  Attributes:
    num_classes: static. Number of training classes, each with a boundary; None for no
      such boundaries.
    num_examples: static. Number of training examples, each with a boundary; None for no
      such boundaries.
    margin: in units of a distance.
    boundary_weight: weight of the mean boundary.
    form: static. "pairs" or "triplets".
    normalize: static. "l2", "unit_ball" or "none".
    miner: static. Chooses the pairs that count, given the distances; None keeps all.
    block_size: static. Rows at a time; None takes all at once.
    axis_name: static. Device axis over which the batch is spread; None for one
      device.
    init_boundary: draws the boundary at the start. The other parts start at 0.

  Call: `(embeddings [batch, dim], labels [batch], *, examples, where, references)`
    gives [batch]; the last three may be None. `examples` [batch] holds the rows'
    indices in the training set, in [0, num_examples).

  Raises:
    TypeError: embeddings not floating, labels or examples not integer.
    ValueError: shapes do not match; no `examples` although `num_examples` is given.

  Differentiable in: boundaries, embeddings. Cost: O(batch^2 dim).

  Source: Wu et al. 2017, "Sampling matters in deep embedding learning", section 4.2.

  Example:
    >>> module = spherejax.models.Margin(num_classes=3)
    >>> embeddings, labels = jnp.eye(2, 4), jnp.array([0, 2])
    >>> variables = module.init(jax.random.key(0), embeddings, labels)
    >>> module.apply(variables, embeddings, labels).shape
    (2,)
  """

  num_classes: int | None = None
  num_examples: int | None = None
  margin: Real[ArrayLike, ""] = 0.2
  boundary_weight: Real[ArrayLike, ""] = 0.0
  form: Form = "pairs"
  normalize: Normalization = "l2"
  miner: Callable[..., tuple[Array, Array]] | None = None
  block_size: int | None = None
  axis_name: str | None = None
  init_boundary: Initializer = nn.initializers.constant(1.2)

  @nn.compact
  def __call__(
    self,
    embeddings: Float[ArrayLike, "batch dim"],
    labels: Integer[ArrayLike, " batch"],
    *,
    examples: Integer[ArrayLike, " batch"] | None = None,
    where: Bool[ArrayLike, " batch"] | None = None,
    references: losses.References | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    by_class = by_example = None
    if self.num_classes is not None:
      _checks.count("num_classes", self.num_classes)
      by_class = self.param(
        "class_boundaries", nn.initializers.zeros, (self.num_classes,)
      )
    if self.num_examples is not None:
      _checks.count("num_examples", self.num_examples)
      if examples is None:
        raise ValueError(
          f"examples must say which of the {self.num_examples} training examples "
          "the rows are, got None"
        )
      index = _checks.integers("examples", examples)
      _checks.expect("examples", index, "integer")
      table = self.param(
        "example_boundaries", nn.initializers.zeros, (self.num_examples,)
      )
      by_example = jnp.take(table, index, mode="fill", fill_value=0)
    return losses.margin(
      embeddings,
      labels,
      boundary=self.param("boundary", _checks.initializer(self, "init_boundary"), ()),
      class_boundaries=by_class,
      example_boundaries=by_example,
      margin=self.margin,
      boundary_weight=self.boundary_weight,
      form=self.form,
      normalize=self.normalize,
      where=where,
      references=references,
      miner=self.miner,
      block_size=self.block_size,
      axis_name=None if self.is_initializing() else self.axis_name,
    )

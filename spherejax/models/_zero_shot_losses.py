"""Zero-shot prediction module, with label embeddings as parameters."""

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Integer, Real

from spherejax import _checks, losses


class ZeroShotPrediction(nn.Module):
  """Cross-batch zero-shot prediction loss with learned label embeddings.

  Owns `label_embeddings` [num_classes, dim], splits the batch into halves of
  disjoint classes by `spherejax.losses.split_by_class` and calls
  `spherejax.losses.zero_shot_prediction`. The label embeddings train at the network's
  learning rate.

  Attributes:
    num_classes: static. Training classes; labels are in [0, num_classes).
    dim: static. Dimension of a label embedding.
    ridge: positive, strength of the ridge.
    scale: multiplies the logits.
    axis_name: static. Device axis over which the batch is spread; None for one
      device.
    init_label_embeddings: draws the label embeddings at the start.

  Call: `(attributes [batch, prototypes], labels [batch], *, where=None)` gives [batch],
    in the order of the batch. The mean over the batch is half of the paper's scalar if
    the halves have equally many rows. The authors' implementation uses this form, and
    the published mixing weights refer to it.

  Raises:
    TypeError: attributes not floating, labels not integer.
    ValueError: shapes do not match; a ridge that is not positive.

  Differentiable in: label embeddings, attributes. Cost: that of
  `spherejax.losses.zero_shot_prediction` for twice the batch.

  Source: DML 5.2.3, eq. 5.2.4; normal start with variance 2 / num_classes as in the
  authors' implementation.

  Example:
    >>> module = spherejax.models.ZeroShotPrediction(num_classes=4, dim=8)
    >>> attributes, labels = jnp.eye(4), jnp.array([0, 1, 2, 3])
    >>> variables = module.init(jax.random.key(0), attributes, labels)
    >>> module.apply(variables, attributes, labels).shape
    (4,)
  """

  num_classes: int
  dim: int = 128
  ridge: Real[ArrayLike, ""] = 0.05
  scale: Real[ArrayLike, ""] = 1.0
  axis_name: str | None = None
  init_label_embeddings: Initializer = nn.initializers.he_normal()

  @nn.compact
  def __call__(
    self,
    attributes: Float[ArrayLike, "batch prototypes"],
    labels: Integer[ArrayLike, " batch"],
    *,
    where: Bool[ArrayLike, " batch"] | None = None,
  ) -> Float[Array, " batch"]:
    """Loss of each example."""
    attributes = _checks.array("attributes", attributes, "floating", rank=2)
    _checks.count("num_classes", self.num_classes)
    _checks.count("dim", self.dim)
    table = self.param(
      "label_embeddings",
      _checks.initializer(self, "init_label_embeddings"),
      (self.num_classes, self.dim),
    )
    axis_name = None if self.is_initializing() else self.axis_name
    half_a, half_b = losses.split_by_class(labels, where=where, axis_name=axis_name)
    # Both halves are the whole batch with complementary masks: a row has a value in one
    # half and 0 in the other.
    both = losses.zero_shot_prediction(
      attributes,
      labels,
      attributes,
      labels,
      table,
      ridge=self.ridge,
      scale=self.scale,
      where_a=half_a,
      where_b=half_b,
      axis_name=axis_name,
    )
    in_a, in_b = jnp.split(both, 2)
    return in_a + in_b

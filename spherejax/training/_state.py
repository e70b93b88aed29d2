"""State that a training step takes and returns, and its optimiser."""

import collections
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax import Array

from spherejax import _checks, _numerics

_APART = (
  "pass both parts apart, create_state(key, optimizer, network=variables, "
  "loss=loss_variables)"
)


class TrainState(flax.struct.PyTreeNode):
  """Everything that changes during training, as one pytree of arrays.

  Attributes:
    step: int32 scalar, steps taken.
    params: {"network": ..., "loss": ...}, the learned parameters.
    batch_stats: {"network": ..., "loss": ...}, values that move without a gradient:
      BatchNorm statistics, the assignment of `reassign`; may be empty.
    opt_state: state of the optimiser.
    learning_rate_scale: float32 scalar that multiplies every update; 1 until the
      learning rate is reduced on a plateau.
    key: typed PRNG key of the run; never changes; each step folds in its number.
  """

  step: Any
  params: Any
  batch_stats: Any
  opt_state: Any
  learning_rate_scale: Any
  key: Any

  def variables(self, part: str = "network") -> dict[str, Any]:
    """Flax variables of one part, as its module's `apply` takes them."""
    stats = self.batch_stats.get(part)
    return {"params": self.params[part]} | ({"batch_stats": stats} if stats else {})


def create_state(
  key: Array,
  optimizer: optax.GradientTransformation,
  network: Mapping[str, Any],
  loss: Mapping[str, Any] | None = None,
) -> TrainState:
  """Creates the state before the first step.

  Args:
    key: typed PRNG key for everything random inside the steps.
    optimizer: the result of `optimizer`, or any optax transformation of {"network":
      ..., "loss": ...}.
    network: variables from the network's `init`.
    loss: variables from the loss module's `init`, such as proxies; None for a loss
      without parameters.

  Returns:
    TrainState with step 0.

  Raises:
    TypeError: a key of the old untyped kind.
    ValueError: a collection other than "params" and "batch_stats"; a parameter that no
      group of the optimiser names, or a group without a parameter.

  Cost: memory of the optimiser's state.

  Source: none.

  Example:
    >>> import optax
    >>> optimizer = spherejax.training.optimizer({"network": optax.sgd(0.1)})
    >>> variables = {"params": {"kernel": jnp.ones((2, 2))}}
    >>> state = spherejax.training.create_state(
    ...     jax.random.key(0), optimizer, variables
    ... )
    >>> int(state.step)
    0
  """
  check_optimizer(optimizer)
  _checks.key("key", key)
  if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
    raise TypeError(f"key must be typed (jax.random.key), got dtype {key.dtype}")
  parts = {"network": network} | ({} if loss is None else {"loss": loss})
  for name, variables in parts.items():
    _checks.mapping(name, variables)
    unknown = sorted(set(variables) - {"params", "batch_stats"}, key=str)
    if unknown:
      advice = (
        _APART if {"network", "loss"} & {*unknown} else "{'params': ...} holds them"
      )
      raise ValueError(
        f"{name} may have the collections 'params' and 'batch_stats', got {unknown}; "
        f"{advice}"
      )
  params = {name: variables.get("params", {}) for name, variables in parts.items()}
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=params,
    batch_stats={
      name: variables["batch_stats"]
      for name, variables in parts.items()
      if "batch_stats" in variables
    },
    opt_state=optimizer.init(params),
    learning_rate_scale=jnp.ones((), jnp.float32),
    key=key,
  )


def _group_of(path: str, groups: Mapping[str, Any]) -> str:
  """Longest group name that is the path or a prefix of it."""
  matches = [name for name in groups if f"{path}/".startswith(f"{name}/")]
  if not matches:
    raise ValueError(
      f"parameter {path!r} belongs to no group of the optimizer; groups are "
      f"{sorted(groups)}"
    )
  return max(matches, key=len)


def _check_paths(params: Any):
  """Raises ValueError for two parameters of one path: {"a": {"b": ...}, "a/b": ...}."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  paths = [jax.tree_util.keystr(at, simple=True, separator="/") for at, _ in leaves]
  if repeated := [x for x, n in collections.Counter(paths).items() if n > 1]:
    raise ValueError(
      f"params must have one parameter of each path, got {repeated[0]!r} twice; a name "
      "must not hold '/'"
    )


def check_optimizer(value: object, name: str = "optimizer") -> None:
  """Raises TypeError unless the value is an optax transformation."""
  if not (hasattr(value, "init") and hasattr(value, "update")):
    raise TypeError(f"{name} must be an optax transformation, got {value!r}")


def global_norm(tree: Any) -> Array:
  """Euclidean norm of all arrays of a tree; no square overflows or vanishes."""
  power, size = _scaled_norm(tree)
  return size / power


def _scaled_norm(tree: Any) -> tuple[Array, Array]:
  """Power of two, and the norm of its product with the tree."""
  leaves = [_numerics.upcast(leaf) for leaf in jax.tree.leaves(tree)]
  leaves = leaves or [jnp.zeros(())]
  power = _numerics.shrinking(*leaves, least=0.0, grow=True)
  return power, optax.tree.norm([power * leaf for leaf in leaves])


def _clip_by_norm(max_norm: float | int) -> optax.GradientTransformation:
  """Clips like `optax.clip_by_global_norm`, also if squares overflow or vanish."""

  def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
    power, size = _scaled_norm(updates)
    small = size / power < max_norm

    def clipped(leaf: Array) -> Array:
      scaled = power * _numerics.upcast(leaf) / size * max_norm
      return jnp.where(small, leaf, scaled.astype(leaf.dtype))

    return jax.tree.map(clipped, updates), state

  return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def optimizer(
  groups: Mapping[str, optax.GradientTransformation],
  *,
  max_norm: int | float | None = None,
  max_value: int | float | None = None,
) -> optax.GradientTransformationExtraArgs:
  """Combines one optimiser per group of parameters, after clipping all gradients.

  A group is named by the path of its parameters: "network", "loss", "network/head",
  "loss/proxies". The longest matching name wins, and a parameter without a group is an
  error, so proxies never train at the network's learning rate by oversight.
  `optax.set_to_zero()` freezes a group.

  Args:
    groups: optax transformation for each path.
    max_norm: positive. Gradients are scaled down to this global norm, taken over all
      groups; None does not clip.
    max_value: positive. Each entry is then clipped to [-max_value, max_value]; None
      does not clip.

  Returns:
    An optax transformation of {"network": ..., "loss": ...}.

  Raises:
    TypeError: groups not a mapping, max_norm not a number.
    ValueError: no group; a number that is not positive; at the first use, a
      parameter without a group or a group without a parameter, or two parameters of
      one path.

  Cost: that of the groups.

  Source: DML 3.3.2.1 (proxies at 100 times the rate) and its released code (clipping);
  `optax.partition`.

  Example:
    >>> import optax
    >>> optimizer = spherejax.training.optimizer(
    ...     {"network": optax.adam(1e-5), "loss": optax.adam(1e-3)}, max_norm=10.0
    ... )
    >>> params = {"network": {"w": jnp.ones(2)}, "loss": {"proxies": jnp.ones(2)}}
    >>> state = optimizer.init(params)
  """
  _checks.mapping("groups", groups)
  for name, group in groups.items():
    check_optimizer(group, f"groups[{name!r}]")
  if not groups:
    raise ValueError("groups must name at least one optimizer, got none")
  clipping = []
  if max_norm is not None:
    _checks.positive("max_norm", max_norm)
    clipping.append(_clip_by_norm(max_norm))
  if max_value is not None:
    _checks.positive("max_value", max_value)
    clipping.append(optax.clip(max_value))

  def labels(params: Any) -> Any:
    _check_paths(params)
    named = jax.tree_util.tree_map_with_path(
      lambda path, _: _group_of(
        jax.tree_util.keystr(path, simple=True, separator="/"), groups
      ),
      params,
    )
    unused = sorted(set(groups) - set(jax.tree.leaves(named)))
    if unused:
      without_loss = isinstance(params, Mapping) and "loss" not in params
      raise ValueError(
        f"groups {unused} of the optimizer match no parameter; each must, got {named}"
        + (f"; {_APART}" if without_loss else "")
      )
    return named

  return optax.chain(*clipping, optax.partition({**groups}, labels))

"""Prototypes chosen among pooled embeddings, after some training."""

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks, distances, prototypes


def replace_prototypes(
  params: Any,
  points: Float[ArrayLike, "n dim"],
  *,
  path: str,
  project: bool = True,
  where: Bool[ArrayLike, " n"] | None = None,
) -> Any:
  """Replaces the prototypes in parameters by points that cover all points well.

  A pooling by prototypes starts with random prototypes. Prototypes near the features
  are better, but can only be chosen once the features are useful. So train with average
  pooling for a while (`models.GSP` of mass 1), pool some training images, and continue
  with the parameters that this function returns:

      new prototypes = unit_ball(points)[greedy_k_centre(unit_ball(points), k)]

  with as many prototypes as the pooling has. Everything else stays as it is, including
  the optimiser's moments.

  Args:
    params: nested dictionaries of parameters, as Flax makes them, or the `nnx.State` of
      a module of flax.nnx.
    points: [n, dim], floating: pooled embeddings before normalisation, such as those
      of a `losses.Memory`. 1024 in DML's experiments.
    path: static. Names from the root of `params` to the prototypes, joined by "/":
      "pooling/prototypes". Any parameter [k, dim] will do: prototypes of `models.GSP`
      and `models.OTP`, centres of `models.NetVLAD`.
    project: static. False leaves the points as they are instead of projecting them into
      the unit ball: for `models.NetVLAD`, which compares raw features.
    where: [n], boolean, True keeps: the filled slots of a memory. None keeps all.

  Returns:
    A tree like `params`. Where a traced `where` keeps fewer points than there are
    prototypes, the last prototypes stay as they were.

  Raises:
    TypeError: points not floating, where not boolean, project not boolean.
    ValueError: no parameter at `path`, points of another dimension, more prototypes
      than points, or than points that a known `where` keeps.

  Not differentiable. Cost: O(n k dim).

  Source: DML 4.3 and algorithm 2; the time and the points follow the authors'
  implementation.

  Example:
    >>> params = {"GSP_0": {"prototypes": jnp.zeros((2, 1))}}
    >>> points = jnp.array([[0.1], [0.2], [0.9]])
    >>> replace = jax.jit(spherejax.models.replace_prototypes, static_argnames="path")
    >>> replace(params, points, path="GSP_0/prototypes")
    {'GSP_0': {'prototypes': Array([[0.1],
           [0.9]], dtype=float32)}}
  """
  _checks.flag("project", project)
  points = _checks.array("points", points, "floating", rank=2)
  mask = None if where is None else _checks.array("where", where)
  if mask is not None:
    _checks.mask(mask, points.shape[:1])
  leaves, structure = jax.tree_util.tree_flatten_with_path(
    params, is_leaf=lambda node: _checks.unwrapped(node) is not node
  )
  names = [jax.tree_util.keystr(at, simple=True, separator="/") for at, _ in leaves]
  if names.count(path) != 1:
    often = (
      "" if path not in names else f", {names.count(path)} parameters of that name"
    )
    raise ValueError(f"path must be one of {names}, got {path!r}{often}")
  replaced = leaves[names.index(path)][1]
  old = jnp.asarray(replaced)
  _checks.expect(f"the parameter {path!r}", old, rank=2)
  _checks.shape("points", points, (len(points), old.shape[1]), f"{path!r} {old.shape}")
  available = len(points)
  if mask is not None and not isinstance(mask, jax.core.Tracer):
    available = int(jnp.sum(mask))
  if len(old) > available:
    raise ValueError(f"{len(old)} prototypes need as many points, got {available}")
  new = jax.tree.unflatten(
    jax.tree.structure(replaced), [_cover(points, old, mask, project)]
  )
  values = [
    new if name == path else leaf for name, (_, leaf) in zip(names, leaves, strict=True)
  ]
  return jax.tree.unflatten(structure, values)


def _cover(points: Array, old: Array, mask: Array | None, project: bool) -> Array:
  """Chooses as many points as there are prototypes; old ones fill any gap."""
  inside = distances.unit_ball(points) if project else points
  chosen = prototypes.greedy_k_centre(inside, len(old), where=mask).indices
  new = inside[chosen].astype(old.dtype)
  return new if mask is None else jnp.where(mask[chosen][:, None], new, old)

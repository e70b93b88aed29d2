"""Second-order pooling (GSoP): attention from the covariances of a feature map."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from spherejax import _checks, _numerics
from spherejax.pooling import _tokens

Fuse = Literal["max", "sum"]


class GSoPBranch(NamedTuple):
  """Learned parameters of a branch of `gsop`, with any affine normalisation folded in.

  Rows are those of the branch's covariance: its channels, or its positions.
  """

  reduce_kernel: Float[ArrayLike, "channels reduced"]
  """Maps the channels of the map to the channels of the covariance."""
  reduce_bias: Float[ArrayLike, " reduced"]
  row_kernel: Float[ArrayLike, "rows rows hidden"]
  """Row i of the covariance times entry i gives its `hidden` numbers."""
  row_bias: Float[ArrayLike, "rows hidden"]
  out_kernel: Float[ArrayLike, "rows*hidden gates"]
  """Maps to one gate for each channel of the map, or for each position."""
  out_bias: Float[ArrayLike, " gates"]


class _Arrays(NamedTuple):
  """A branch in the type of the tokens, its shapes checked."""

  reduce_kernel: Array
  reduce_bias: Array
  row_kernel: Array
  row_bias: Array
  out_kernel: Array
  out_bias: Array


Normalize = Callable[[str, Array, Array], Array]


def gsop(
  features: Float[ArrayLike, "batch *positions channels"],
  channel: GSoPBranch | None,
  spatial: GSoPBranch | None,
  *,
  fuse: Fuse = "max",
  centred: bool = True,
  size: int | None = None,
  normalize: Normalize | None = None,
  where: Bool[ArrayLike, "batch *positions"] | None = None,
) -> Float[Array, "batch channels"]:
  """Average of a map whose covariances gate its channels and positions (GSoP).

      pooled = mean_j fuse(g x_j, relu(s_j x_j))
      Y = relu(norm(relu(X) A + a))                                in each branch
      channel:  S = Y^T (I - 1 1^T / n) Y / n,   g = sigmoid(h O + o)
                                                 h_i = norm(S)_i R_i + r_i
      spatial:  S = Y (I - 1 1^T / c) Y^T / c,   s = sigmoid(h O + o)
                                                 h_i = relu(norm(S)_i R_i + r_i)

  with n positions and c reduced channels. A branch has kernels A, R, O and biases a, r,
  o: for its reduction, for each row, and for its gates.

  Args:
    features: [batch, tokens, channels] or [batch, height, width, channels], floating.
    channel: parameters of the channel branch, with a gate for each channel; None
      leaves it out.
    spatial: parameters of the spatial branch, with a row and a gate for each position.
      They fit maps of one size unless `size` is given. None leaves it out.
    fuse: static. "max" or "sum" of the two branches.
    centred: static. True takes covariances; False (DML's form) takes the products
      Y^T Y / n^2 and Y Y^T / c^2.
    size: static. The spatial branch sees the map averaged to size x size cells (8 in
      the original); its gates are spread back to the map. None uses the map as it is.
    normalize: function of (place, x, mask) that computes "norm" above. The last axis of
      x holds its rows or channels, and the mask broadcasts against x. The places are
      "channel_map", "channel_rows", "spatial_map" and "spatial_rows". None normalises
      nothing: the parameters include any affine part. See `models.GSoP`.
    where: boolean, the shape of `features` without channels, True keeps; masked
      positions may be NaN. None keeps all.

  Returns:
    [batch, channels], dtype of `features`. 0 where nothing is kept.

  Raises:
    TypeError: features or parameters not floating, where not boolean, size not a static
      integer, centred not boolean.
    ValueError: shapes do not match, no branch, unknown fuse, a size for features that
      are not a map.

  Differentiable in: features, channel, spatial. Cost: O(batch (n channels c + n c^2 +
  n^2 c)) and, for the rows, O(batch (c^2 + n^2) hidden).

  Source: Gao et al. 2019, "Global second-order pooling convolutional networks";
  DML 5.3.5, where the two branches see the projected map, are fused by their maximum
  and averaged, without a residual connection.

  Example:
    >>> def of(*shape):
    ...   return jnp.zeros(shape)
    >>> branch = spherejax.pooling.GSoPBranch(
    ...   of(3, 2), of(2), of(2, 2, 4), of(2, 4), of(8, 3), of(3)
    ... )
    >>> jax.jit(spherejax.pooling.gsop)(jnp.ones((1, 5, 3)), branch, None)  # half
    Array([[0.5, 0.5, 0.5]], dtype=float32)
  """
  _checks.flag("centred", centred)
  features = _checks.array("features", features)
  tokens, token_mask = _tokens.flatten(features, where)
  _checks.one_of("fuse", fuse, Fuse)
  if normalize is not None:
    _checks.function("normalize", normalize)
  if channel is None and spatial is None:
    raise ValueError("gsop needs the channel or the spatial branch, got neither")
  cells = None
  if size is not None:
    _checks.count("size", size)
    _checks.expect("features", features, rank=4)
    cells = _cells(features.shape[1], features.shape[2], size)
  if token_mask is None:
    token_mask = jnp.ones(tokens.shape[:2], bool)

  def norm(place: str, x: Array, mask: Array) -> Array:
    return x if normalize is None else normalize(place, x, mask)

  branches = []
  if channel is not None:
    branches.append(_channel_branch(tokens, token_mask, channel, centred, norm))
  if spatial is not None:
    branches.append(_spatial_branch(tokens, token_mask, spatial, centred, cells, norm))
  gated = branches[0]
  if len(branches) == 2:
    first, second = branches
    # Not jnp.maximum, whose derivative is split between ties.
    larger = jnp.where(first >= second, first, second)
    gated = larger if fuse == "max" else first + second
  number = _tokens.count(token_mask, tokens.dtype)
  total = _numerics.masked_sum(gated, token_mask[..., None], axis=1)
  return (total / number[:, None]).astype(features.dtype)


def _channel_branch(
  tokens: Array, token_mask: Array, params: GSoPBranch, centred: bool, norm: Normalize
) -> Array:
  """Tokens with each channel gated."""
  _checks.instance("channel", params, GSoPBranch)
  p = _checked("channel", params, tokens, None, tokens.shape[2])
  y = _reduced(tokens, token_mask, p, "channel_map", norm)
  number = _tokens.count(token_mask, y.dtype)[:, None, None]
  if centred:
    y = jnp.where(
      token_mask[..., None], y - jnp.sum(y, axis=1, keepdims=True) / number, 0
    )
  products = _numerics.einsum("bni,bnj->bij", y, y) / (number if centred else number**2)
  some = jnp.any(token_mask, axis=1)[:, None, None]
  hidden = _hidden(norm("channel_rows", products, some), p)
  return _gates(hidden, p)[:, None] * tokens


def _spatial_branch(
  tokens: Array,
  token_mask: Array,
  params: GSoPBranch,
  centred: bool,
  cells: tuple[np.ndarray, np.ndarray] | None,
  norm: Normalize,
) -> Array:
  """Tokens with each position gated."""
  _checks.instance("spatial", params, GSoPBranch)
  rows = tokens.shape[1] if cells is None else len(cells[0])
  p = _checked("spatial", params, tokens, rows, rows)
  y = _reduced(tokens, token_mask, p, "spatial_map", norm)
  visible = token_mask
  if cells is not None:
    inside = jnp.asarray(cells[0], y.dtype)
    number = _numerics.einsum("cn,bn->bc", inside, token_mask.astype(y.dtype))
    visible = number > 0
    y = _numerics.divide(_numerics.einsum("cn,bnd->bcd", inside, y), number[..., None])
  width = y.shape[2]
  if centred:
    y -= jnp.mean(y, axis=2, keepdims=True)
  products = _numerics.einsum("bid,bjd->bij", y, y) / (width if centred else width**2)
  normalized = norm("spatial_rows", products, visible[..., None])
  both = visible[:, :, None] & visible[:, None, :]
  hidden = jax.nn.relu(_hidden(jnp.where(both, normalized, 0), p))
  gates = _gates(jnp.where(visible[..., None], hidden, 0), p)
  if cells is not None:
    gates = _numerics.einsum("nc,bc->bn", jnp.asarray(cells[1], y.dtype), gates)
  return jax.nn.relu(gates[..., None] * tokens)


def _reduced(
  tokens: Array, token_mask: Array, p: _Arrays, place: str, norm: Normalize
) -> Array:
  """Y [batch, n, c], 0 where masked."""
  y = _numerics.einsum("bnd,dc->bnc", jax.nn.relu(tokens), p.reduce_kernel)
  y = norm(place, y + p.reduce_bias[None, None], token_mask[..., None])
  return jnp.where(token_mask[..., None], jax.nn.relu(y), 0)


def _hidden(rows: Array, p: _Arrays) -> Array:
  """Hidden numbers of each row: [batch, r, r] -> [batch, r, hidden]."""
  # The matrix is symmetric, so a normalisation of the last axis is one of the rows.
  return _numerics.einsum("bji,ijh->bih", rows, p.row_kernel) + p.row_bias[None]


def _gates(hidden: Array, p: _Arrays) -> Array:
  flat = hidden.reshape(len(hidden), hidden.shape[1] * hidden.shape[2])
  return jax.nn.sigmoid(_numerics.product(flat, p.out_kernel) + p.out_bias[None])


def _cells(height: int, width: int, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Positions of each cell [cells, n], and the averages back [n, cells]."""
  inside = np.kron(_bins(height, size), _bins(width, size))
  spread = np.kron(_bins(size, height), _bins(size, width))
  return inside, spread / spread.sum(axis=1, keepdims=True)


def _bins(length: int, number: int) -> np.ndarray:
  """Mask [number, length] of the places that each of `number` even intervals touches.

  Averages over the intervals shrink an axis, or stretch it.
  """
  place, interval = np.arange(length)[None], np.arange(number)[:, None]
  starts = place * number < (interval + 1) * length
  ends = (place + 1) * number > interval * length
  return (starts & ends).astype(np.float64)


def _checked(
  name: str, params: GSoPBranch, tokens: Array, rows: int | None, gates: int
) -> _Arrays:
  """The parameters of a branch; raises where a shape does not match."""
  arrays = [jnp.asarray(value) for value in params]
  for field, array in zip(GSoPBranch._fields, arrays, strict=True):
    _checks.expect(f"{name}.{field}", array, "floating")
  reduced, hidden = arrays[1].shape[-1:], arrays[3].shape[-1:]
  side = reduced if rows is None else (rows,)
  shapes = (
    (tokens.shape[2], *reduced),
    reduced,
    (*side, *side, *hidden),
    (*side, *hidden),
    (*(a * b for a, b in zip(side, hidden, strict=False)), gates),
    (gates,),
  )
  for field, array, shape in zip(GSoPBranch._fields, arrays, shapes, strict=True):
    _checks.shape(f"{name}.{field}", array, shape, f"features {tokens.shape}")
  return _Arrays(*(array.astype(tokens.dtype) for array in arrays))

"""Parameters of our networks from arrays with other people's names."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from spherejax import _checks
from spherejax.models._weight_names import BUFFERS, LEAVES, TABLES

_HEADS = ("fc.", "head.", "linear.", "last_linear.", "classifier.", "AuxLogits.")


def import_weights(
  variables: Mapping[str, Any],
  weights: Mapping[str, ArrayLike],
  *,
  ignore: Sequence[str] = _HEADS,
  fresh: Sequence[str] = (),
  names: Sequence[tuple[str, str]] | None = None,
) -> dict[str, Any]:
  """Variables of a network with the parameters and statistics of a weight file.

  Every parameter and statistic is filled exactly once, and every array of the file is
  used, or the import fails and says which are left. Convolutions and matrices are
  turned from torch's order of axes into ours, and a row [1, n] is taken for a vector
  [n] as Caffe's conversions have it. Knows the names that torchvision, timm and the
  authors' code give the parameters of `ResNet`, `InceptionV3`, `BNInception` (those of
  pretrained-models.pytorch) and `SwinT`, and takes those that fit.

  Args:
    variables: of the backbone alone, as `init` gives them, with the collections
      "params" and "batch_stats"; or their shapes, from `jax.eval_shape`.
    weights: arrays by name, as `read_weights` gives them.
    ignore: beginnings of names in `weights` that are not wanted. The default leaves
      out classifiers ("fc.", "head.", "linear.", "last_linear.", "classifier.",
      "AuxLogits."), as the networks here end with a feature map.
    fresh: beginnings of our paths, such as "stem/", whose variables stay as they are:
      a first convolution for other channels, for example. Their counterparts in
      `weights` are left out, whatever their shapes.
    names: pairs of a pattern and its replacement, applied in turn by `re.sub` to our
      paths, such as "stage1_0/norm1/scale" and "stage1_0/norm1/mean", whose last part
      is torch's already ("weight", "running_mean"). None takes the known tables.

  Returns:
    A dictionary of the structure and dtypes of `variables`.

  Raises:
    TypeError: text instead of a sequence of texts.
    ValueError: `fresh` for a variable that is a shape without values, a parameter
      without weights, weights without a parameter, a shape that
      differs, one array for two parameters; the message lists them. So of another
      architecture nothing is taken.

  Differentiable in: nothing. Cost: one copy of the weights.

  Source: none. DIST IV, in its released code: a newly initialised first convolution.

  Example:
    >>> variables = {"params": {"stem": {"kernel": jnp.zeros((3, 3, 1, 2))}}}
    >>> weights = {"conv1.weight": jnp.ones((2, 1, 3, 3)), "fc.bias": jnp.ones(5)}
    >>> filled = spherejax.models.import_weights(variables, weights)
    >>> filled["params"]["stem"]["kernel"].mean()
    Array(1., dtype=float32)
  """
  for name, value in (("ignore", ignore), ("fresh", fresh), ("names", names or ())):
    _checks.sequence(name, value)
  for name, value in (("ignore", ignore), ("fresh", fresh)):
    _checks.texts(name, value)
  for name, value in (("variables", variables), ("weights", weights)):
    _checks.mapping(name, value)
    if not value:
      raise ValueError(f"{name} must hold an array, got none")
  flat, structure = jax.tree.flatten_with_path(dict(variables))
  paths = ["/".join(str(entry.key) for entry in path[1:]) for path, _ in flat]
  tables = {"names": tuple(names)} if names is not None else TABLES
  title, found = max(
    ((title, _translate(paths, table)) for title, table in tables.items()),
    key=lambda option: sum(name in weights for name in option[1]),
  )
  _once(paths, found)
  kept = [path.startswith(tuple(fresh)) for path in paths]
  missing, shapes, leaves = [], [], []
  for path, name, (_, leaf), stays in zip(paths, found, flat, kept, strict=True):
    if stays:
      if isinstance(leaf, jax.ShapeDtypeStruct):
        raise ValueError(f"fresh needs the values of {path}, got its shape only")
      leaves.append(leaf)
    elif name not in weights:
      missing.append(f"{path} ({name})")
    else:
      array = _oriented(path, np.asarray(weights[name]), len(leaf.shape))
      if array.shape != leaf.shape:
        shapes.append(f"{path} {leaf.shape} ({name} gives {array.shape})")
      leaves.append(array)
  unused = [
    name
    for name in weights
    if name not in set(found)
    and not name.startswith(tuple(ignore))
    and name.rpartition(".")[2] not in BUFFERS
  ]
  _complain(title, missing, unused, shapes)
  return jax.tree.unflatten(
    structure,
    [
      value if stays else jnp.asarray(value, leaf.dtype)
      for value, (_, leaf), stays in zip(leaves, flat, kept, strict=True)
    ],
  )


def _translate(paths: Sequence[str], table: Sequence[tuple[str, str]]) -> list[str]:
  result = []
  for path in paths:
    module, slash, leaf = path.rpartition("/")
    name = module + slash + LEAVES.get(leaf, leaf)
    for pattern, replacement in table:
      name = re.sub(pattern, replacement, name)
    result.append(name)
  return result


def _oriented(path: str, array: np.ndarray, axes: int) -> np.ndarray:
  """Torch's order of axes, [out, in, height, width] and [out, in], into ours."""
  if not path.endswith("kernel"):
    return array[0] if axes == 1 and array.ndim == 2 and len(array) == 1 else array
  return array.transpose((2, 3, 1, 0) if array.ndim == 4 else None)


def _once(paths: Sequence[str], found: Sequence[str]) -> None:
  taken: dict[str, str] = {}
  for path, name in zip(paths, found, strict=True):
    if name in taken:
      raise ValueError(f"names give {name} to {taken[name]} and to {path}")
    taken[name] = path


def _complain(
  title: str, missing: list[str], unused: list[str], shapes: list[str]
) -> None:
  problems = [
    f"{len(items)} {what}: {', '.join(items[:6])}{', ...' if items[6:] else ''}"
    for what, items in (
      ("of the network are not in the weights", missing),
      ("of the weights are not in the network", unused),
      ("have another shape", shapes),
    )
    if items
  ]
  if problems:
    raise ValueError(f"weights do not fit ({title}); " + "; ".join(problems))

"""Imports parameters of our networks from arrays with other libraries' names."""

import collections
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from spherejax import _checks
from spherejax.models._weight_names import BUFFERS, LEAVES, TABLES, unwrapped

_HEADS = (
  "fc.", "_fc.", "head.", "linear.", "last_linear.", "classifier.", "AuxLogits.",
)  # fmt: skip


def import_weights(
  variables: Mapping[str, Any],
  weights: Mapping[str, ArrayLike],
  *,
  ignore: Sequence[str] = _HEADS,
  fresh: Sequence[str] = (),
  names: Sequence[tuple[str, str]] | None = None,
) -> dict[str, Any]:
  """Fills the variables of a network with the arrays of a weight file.

  Every parameter and statistic is filled exactly once and every array of the file is
  used; otherwise the import fails and lists the rest. Convolutions and matrices are
  converted from torch's order of axes to ours. A row [1, n] counts as a vector [n], as
  in Caffe's conversions. The known tables cover the names of torchvision, timm and the
  authors' code for `ResNet`, `InceptionV3`, `BNInception` (pretrained-models.pytorch),
  `EfficientNetLite` and `SwinT`; the table that fits is used. Wrapper prefixes that all
  names share are removed ("module.", "_orig_mod.", "model.", "backbone.", "encoder.",
  also nested); the error names a prefix that only some names have.

  Args:
    variables: of the backbone alone, as `init` gives them, with the collections
      "params" and "batch_stats"; or their shapes, from `jax.eval_shape`.
    weights: arrays by name, as `read_weights` gives them.
    ignore: prefixes of names in `weights` to leave out. The default leaves out
      classifiers ("fc.", "_fc.", "head.", "linear.", "last_linear.", "classifier.",
      "AuxLogits."), as the networks here end with a feature map.
    fresh: prefixes of our paths, such as "stem/", whose variables stay as they are: for
      example a first convolution for other channels. Their counterparts in `weights`
      are left out, whatever their shapes.
    names: pairs of a pattern and its replacement, applied in turn by `re.sub` to our
      paths. The last part of a path is torch's already: "stage1_0/norm1/weight" for our
      scale, "stage1_0/norm1/running_mean" for our mean. None takes the known tables.

  Returns:
    A dictionary of the structure and dtypes of `variables`.

  Raises:
    TypeError: text instead of a sequence of texts, `names` that are not pairs of texts.
    ValueError: `fresh` for a variable that is a shape without values, a parameter
      without weights, weights without a parameter, a shape that differs, one array for
      two parameters; the message lists them. So weights of another architecture fail.
      Also patterns that `re` refuses, and weights beyond the network's dtype.

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
  for pair in names or ():
    _check_pair(pair)
  for name, value in (("variables", variables), ("weights", weights)):
    _checks.mapping(name, value)
    if not value:
      raise ValueError(f"{name} must hold an array, got none")
  _checks.texts("names of weights", list(weights))
  flat, structure = jax.tree.flatten_with_path(dict(variables))
  paths = ["/".join(str(entry.key) for entry in path[1:]) for path, _ in flat]
  tables = {"names": tuple(names)} if names is not None else TABLES
  translations = {title: _translate(paths, table) for title, table in tables.items()}
  bare = dict(zip(unwrapped(weights), weights, strict=True))
  title, names_in_file, files = max(
    (
      (title, names_of_ours, files)
      for title, translated in translations.items()
      for names_of_ours in (unwrapped(translated), translated)
      for files in (bare, {name: name for name in weights})
    ),
    key=lambda option: sum(name in option[2] for name in option[1]),
  )
  _once(paths, names_in_file)
  is_fresh = [path.startswith(tuple(fresh)) for path in paths]
  missing, shapes, leaves = [], [], []
  for path, name, (_, leaf), stays in zip(
    paths, names_in_file, flat, is_fresh, strict=True
  ):
    if stays:
      if isinstance(leaf, jax.ShapeDtypeStruct):
        raise ValueError(f"fresh needs the values of {path}, got its shape only")
      leaves.append(leaf)
    elif name not in files:
      missing.append(f"{path} ({name})")
    else:
      array = _checked(name, np.asarray(weights[files[name]]), leaf.dtype)
      array = _oriented(path, array, len(leaf.shape))
      if array.shape != leaf.shape:
        shapes.append(f"{path} {leaf.shape} ({name} gives {array.shape})")
      leaves.append(array)
  unused = [
    name
    for name, file in files.items()
    if name not in set(names_in_file)
    and not name.startswith(tuple(ignore))
    and not file.startswith(tuple(ignore))
    and name.rpartition(".")[2] not in BUFFERS
  ]
  hint = (
    _hint(translations.values(), files, len(names_in_file) - len(missing))
    if missing
    else ""
  )
  _complain(title, missing, unused, shapes, hint)
  return jax.tree.unflatten(
    structure,
    [
      value if stays else jnp.asarray(value, leaf.dtype)
      for value, (_, leaf), stays in zip(leaves, flat, is_fresh, strict=True)
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
  """Converts torch's order of axes, [out, in, height, width] and [out, in], to ours."""
  if not path.endswith("kernel"):
    return array[0] if axes == 1 and array.ndim == 2 and len(array) == 1 else array
  return array.transpose((2, 3, 1, 0) if array.ndim == 4 else None)


def _checked(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
  """The array; raises an error for numbers that the network's dtype cannot hold."""
  if not (array.dtype == jnp.bfloat16 or array.dtype.kind in "biuf"):
    raise ValueError(f"weights must be real, got {array.dtype} at {name!r}")
  with np.errstate(over="ignore"):
    fits = np.isfinite(array) == np.isfinite(array.astype(dtype))
  if not fits.all():
    raise ValueError(
      f"weights at {name!r} must fit into {dtype}, got {array[~fits][0]}"
    )
  return array


def _check_pair(pair: object) -> None:
  """Raises an error for what is no pattern and replacement."""
  if not isinstance(pair, (tuple, list)) or list(map(type, pair)) != [str, str]:
    raise TypeError(f"names must hold pairs of texts, got {pair!r}")
  try:
    re.sub(pair[0], pair[1], "")
  except re.error as error:
    raise ValueError(
      f"names must hold regular expressions, {pair!r}: {error}"
    ) from None


def _once(paths: Sequence[str], names: Sequence[str]) -> None:
  taken: dict[str, str] = {}
  for path, name in zip(paths, names, strict=True):
    if name in taken:
      raise ValueError(f"names give {name} to {taken[name]} and to {path}")
    taken[name] = path


def _hint(known: Iterable[Sequence[str]], names: Iterable[str], fitting: int) -> str:
  """Sentence that names a prefix under which more of the network is found."""
  wanted = [set(translated) for translated in known]
  behind = collections.Counter(
    (table, name[: place.end()])
    for name in names
    for place in re.finditer(r"\.", name)
    for table, names_of_table in enumerate(wanted)
    if name[place.end() :] in names_of_table
  )
  (_, prefix), count = max(
    behind.items(), key=lambda item: item[1], default=((0, ""), 0)
  )
  if count <= fitting:
    return ""
  return (
    f"; {count} of the weights fit behind the prefix {prefix!r}: give"
    f" {{name.removeprefix({prefix!r}): array for name, array in weights.items()"
    f" if name.startswith({prefix!r})}}"
  )


def _complain(
  title: str, missing: list[str], unused: list[str], shapes: list[str], hint: str
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
    raise ValueError(f"weights do not fit ({title}); {'; '.join(problems)}{hint}")

"""Chooses the best known prototypes for a number of classes and dimensions."""

from typing import NamedTuple

from jax import Array
from jaxtyping import Float, Key

from spherejax import _checks
from spherejax.prototypes import _closed_forms, _optimized


class UniformPrototypes(NamedTuple):
  """Result of `uniform_prototypes`."""

  prototypes: Float[Array, "num_classes dim"]
  """Unit rows."""
  construction: str
  """Name of the function that made the prototypes."""


def uniform_prototypes(
  key: Key[Array, ""],
  num_classes: int,
  dim: int,
  *,
  steps: int = 2000,
  restarts: int = 2,
  constant_run: bool = True,
) -> UniformPrototypes:
  """Prototypes with the best known separation, in a random orientation.

      classes                 construction            largest cosine
      C <= dim + 1            simplex                 -1 / (C - 1), least possible
      dim + 2 <= C <= 2 dim   orthogonal_simplices    0, least possible
      C > 4, dim = 2          circle                  cos(2 pi / C), least possible
      C > 2 dim               annealed_prototypes     a local minimum

  Args:
    key: typed key of the orientation, or of the starts.
    num_classes: C. Static.
    dim: length of a prototype. Static.
    steps: of each annealed run. Static, as the next two: see `annealed_prototypes`.
    restarts: annealed runs.
    constant_run: one more run, whose sharpness does not grow.

  Returns:
    UniformPrototypes: prototypes [num_classes, dim], unit rows, float32 (float64 under
    x64), and the name of their construction, which depends on the sizes alone.

  Raises:
    TypeError: sizes, steps or restarts that are not static integers, constant_run not
      boolean.
    ValueError: one of them below 1, or more than 2 classes in one dimension.

  Not differentiable. Cost: that of the construction.

  Source: DL2P 3.2.1; Rankin 1955. Differs from the paper, which descends
  `gaussian_potential` for all sizes; here a best set is taken where one is known.

  Example:
    >>> found = spherejax.prototypes.uniform_prototypes(jax.random.key(0), 100, 64)
    >>> found.prototypes.shape, found.construction
    ((100, 64), 'orthogonal_simplices')
  """
  _checks.flag("constant_run", constant_run)
  _checks.count("steps", steps)
  _checks.count("restarts", restarts)
  _checks.key("key", key)
  _closed_forms.check_sizes(num_classes, dim)
  if num_classes <= dim + 1:
    return UniformPrototypes(_closed_forms.simplex(key, num_classes, dim), "simplex")
  if num_classes <= 2 * dim:
    points = _closed_forms.orthogonal_simplices(key, num_classes, dim)
    return UniformPrototypes(points, "orthogonal_simplices")
  if dim == 2:
    return UniformPrototypes(_closed_forms.circle(key, num_classes), "circle")
  points = _optimized.annealed_prototypes(
    key, num_classes, dim, steps=steps, restarts=restarts, constant_run=constant_run
  )
  return UniformPrototypes(points, "annealed_prototypes")

"""Every exported operator against one contract. A new export needs a row here.

Losses have their own sweep, `tests/losses/test_every_loss.py`, and so have poolings
without a solver, `tests/pooling/test_every_pooling.py`.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from tests.test_names import EVERY


def normal(seed, *shape, scale=1.0):
  return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


class Row(NamedTuple):
  """A valid call of one operator.

  Attributes:
    arrays: floating data arguments by name; batched over their first axis.
    fixed: all other arguments that are not traced numbers.
    numbers: traced hyperparameters, away from kinks.
    rtol: relative tolerance of float32 against float64 on the same data.
  """

  arrays: Mapping[str, np.ndarray]
  fixed: Mapping[str, Any] = {}
  numbers: Mapping[str, float] = {}
  rtol: float = 1e-4


X = {"x": normal(0, 6, 4)}
XY = {"x": normal(0, 6, 4), "y": normal(1, 6, 4)}
BALL = {"x": normal(0, 6, 4, scale=0.3), "y": normal(1, 6, 4, scale=0.3)}
BASE = {"base": BALL["x"], "tangent": BALL["y"]}
POINT = {"base": BALL["x"], "point": BALL["y"]}
CURVED = {"curvature": 0.7}
FEATURES = {"features": np.abs(normal(6, 2, 5, 3)) + 0.1}
COSTS = {"costs": np.abs(normal(7, 4, 5)) + 0.1}
GSP = {"mass": 0.4, "inverse_temperature": 4.0}
SITES = {"points": normal(0, 6, 4), "sites": normal(11, 7, 4)}
OF_SITES = {"labels": np.arange(7) % 3, "num_classes": 3}
HALVES = {
  "attributes_a": np.abs(normal(8, 3, 5)),
  "attributes_b": np.abs(normal(9, 3, 5)),
  "label_embeddings": normal(10, 4, 3),
}

OF_TWO = (
  "squared_euclidean", "euclidean", "dot", "cosine", "cosine_distance", "chordal",
  "angle", "poincare",
)  # fmt: skip
ROWS: dict[str, Row] = {
  **{
    f"distances.{kind}{name}": (
      Row(BALL, numbers=CURVED) if name == "poincare" else Row(XY)
    )
    for kind in ("", "pairwise_")
    for name in OF_TWO
  },
  # These depend only on the ratio of the radii, so one radius is fixed.
  "distances.combined_norm": Row(X, {"epsilon_inf": 0.7}, {"epsilon_1": 1.7}),
  "distances.hull_gauge": Row(X, {"epsilon_inf": 0.7}, {"epsilon_1": 1.7}),
  "distances.lp_norm": Row(X, {"norm": "linf"}),
  "distances.pairwise_lp": Row(XY, {"norm": "l1"}),
  "distances.mobius_add": Row(BALL, numbers=CURVED),
  "distances.poincare_exp": Row(BASE, numbers=CURVED),
  "distances.poincare_log": Row(POINT, numbers=CURVED),
  # Its margin from the boundary, 4e-3 or 1e-5, depends on the type by definition.
  "distances.poincare_project": Row(
    {"x": normal(0, 6, 4, scale=2)}, numbers=CURVED, rtol=1e-2),
  "distances.distance_ratio": Row(
    {"squared_distances": np.abs(normal(4, 6, 4)) + 0.1},
    numbers={"exponent": 2.0, "offset": 0.1}),
  "distances.l2_normalize": Row(X),
  "distances.l2_normalize_additive": Row(X, numbers={"offset": 0.3}),
  "distances.l2_normalize_clipped": Row(X, numbers={"floor": 2.5}),
  "distances.unit_ball": Row(X),
  "losses.ridge_attribute_embeddings": Row(
    {"attributes": np.abs(normal(8, 6, 4)), "targets": normal(9, 6, 3)},
    numbers={"ridge": 0.5}),
  "losses.zero_shot_prediction": Row(
    HALVES, {"labels_a": np.int32([0, 0, 1]), "labels_b": np.int32([2, 3, 3])},
    {"ridge": 0.5, "scale": 2.0}),
  "pooling.gsp": Row(FEATURES | {"prototypes": normal(11, 4, 3)}, numbers=GSP),
  "pooling.gsp_weights": Row(COSTS, numbers=GSP),
  "pooling.gsp_fixed_point": Row(COSTS, {"steps": 20}, GSP),
  **{
    f"prototypes.{name}": Row({"prototypes": X["x"]}, numbers={"t": 3.0})
    for name in ("gaussian_potential", "smooth_max_cosine")
  },
  "prototypes.support_squared_distances": Row(
    {"queries": X["x"], "supports": normal(3, 2, 3, 4)}),
  "prototypes.prototype_quality": Row({"prototypes": X["x"]}),
  "prototypes.proxy_spread": Row({"proxies": normal(11, 2, 3, 4)}),
  "prototypes.class_covering_radii": Row(
    {"points": X["x"], "centres": normal(11, 3, 2, 4)},
    {"labels": np.int32([0, 1, 2, 2, 1, 0])}),
  "prototypes.covering_radius": Row({"points": X["x"], "prototypes": normal(11, 3, 4)}),
  **{
    f"prototypes.prototype_{name}": Row(FEATURES | {"prototypes": normal(11, 4, 3)})
    for name in ("convex_combination", "histogram")
  },
  "prototypes.neighbour_logits": Row(SITES, OF_SITES, {"sharpness": 2.0}),
  "prototypes.nearest_neighbour_scores": Row(SITES, OF_SITES),
}  # fmt: skip

# Exports that are not differentiable operators have their own tests.
NO_OPERATORS = {
  "distances.combined_direction", "distances.hull_direction",
  "distances.inscribed_radius", "distances.project_combined", "distances.project_hull",
  "distances.k_nearest", "prototypes.annealed_prototypes",
  "prototypes.assign_prototypes", "prototypes.assignment_alignment",
  "prototypes.assignment_change", "prototypes.assignment_init",
  "prototypes.assignment_update", "prototypes.circle", "prototypes.class_means",
  "prototypes.class_sums_directions", "prototypes.class_sums_init",
  "prototypes.class_sums_update", "prototypes.covering_curve",
  "prototypes.cross_polytope", "prototypes.ema_init", "prototypes.ema_update",
  "prototypes.episode_accuracies", "prototypes.gaussian_potential_prototypes",
  "prototypes.greedy_k_centre", "prototypes.hierarchical_prototypes",
  "prototypes.hpn_prototypes", "prototypes.levenshtein_bound",
  "prototypes.mean_covering_radius", "prototypes.nearest_neighbour_distance",
  "prototypes.nearest_neighbour_radius", "prototypes.nearest_neighbours",
  "prototypes.orthogonal_simplices", "prototypes.rankin_bound",
  "prototypes.renew_proxies", "prototypes.sibling_gap", "prototypes.simple_shot",
  "prototypes.simplex", "prototypes.uniform_prototypes", "prototypes.vector_prototypes",
  "prototypes.welch_bound", "solvers.fixed_point", "solvers.host_linear_assignment",
  "solvers.host_nonnegative_least_squares", "solvers.k_means",
  "solvers.linear_assignment", "solvers.newton", "solvers.project_ball",
  "solvers.project_halfspace", "solvers.sinkhorn", "solvers.sphere_mds",
}  # fmt: skip
OPERATOR_ROOMS = ("distances", "prototypes", "solvers")


def function(name: str) -> Callable:
  room, symbol = name.split(".")
  return getattr(importlib.import_module(f"spherejax.{room}"), symbol)


@functools.cache
def compiled(name: str) -> Callable:
  """The jitted operator as a function of (arrays, numbers)."""
  return jax.jit(call(name))


def call(name: str) -> Callable:
  row = ROWS[name]

  def plain(arrays, numbers):
    return function(name)(**arrays, **row.fixed, **numbers)

  return plain


def floats(tree: Any) -> list[jax.Array]:
  return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]


def floating(tree: Any) -> list[np.ndarray]:
  return list(map(np.asarray, floats(tree)))


def close(actual: Any, expected: Any, rtol: float = 2e-5, atol: float = 2e-6) -> None:
  for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(
      np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=rtol, atol=atol
    )


def cast(row: Row, dtype: Any) -> dict[str, Any]:
  return {name: jnp.asarray(value, dtype) for name, value in row.arrays.items()}


def test_every_operator_has_a_row():
  missing = [
    f"{room}.{name}"
    for room, name in EVERY
    if room in OPERATOR_ROOMS
    and f"{room}.{name}" not in ROWS.keys() | NO_OPERATORS
    and not isinstance(function(f"{room}.{name}"), type)
  ]
  assert not missing


def is_shown_elsewhere(name):
  """Whether other tests check types and derivatives, except those of curved ones."""
  function = name.removeprefix("distances.").removeprefix("pairwise_")
  return name == "pooling.gsp" or (function in OF_TWO and function != "poincare")


# Transformations treat all operators alike.
QUARTER = [
  pytest.param(name, marks=[pytest.mark.slow] * (k % 4 > 0))
  for k, name in enumerate(ROWS)
]
SHOWN = [
  pytest.param(name, marks=[pytest.mark.slow] * is_shown_elsewhere(name))
  for name in ROWS
]


class TestContract:
  @pytest.mark.parametrize("name", ROWS)
  def test_vmap_over_data_and_every_number_equals_the_loop(self, name):
    row, one = ROWS[name], compiled(name)
    plain = floating(one(row.arrays, row.numbers))
    assert all(np.isfinite(leaf).all() for leaf in plain)
    factors = np.array([0.8, 1.0, 1.2], np.float32)
    stacked = {key: np.stack([v, 0.9 * v, v[::-1]]) for key, v in row.arrays.items()}
    grid = {key: value * factors for key, value in row.numbers.items()}
    together = jax.jit(jax.vmap(call(name)))(stacked, grid)
    for index, factor in enumerate(factors):
      single = {key: value[index] for key, value in stacked.items()}
      numbers = {key: value * factor for key, value in row.numbers.items()}
      at_index = jax.tree.map(lambda leaf, index=index: leaf[index], together)
      close(at_index, one(single, numbers), rtol=1e-4, atol=1e-5)
    for key, value in row.numbers.items():
      ends = [one(row.arrays, row.numbers | {key: value * factor}) for factor in (1, 2)]
      changes = [np.abs(a - b).max() for a, b in zip(*map(floating, ends), strict=True)]
      assert max(changes) > 0, f"{key} has no effect"

  @pytest.mark.parametrize("name", SHOWN)
  def test_derivatives_agree_with_differences(self, name, x64):
    row = ROWS[name]
    point = cast(row, jnp.float64), {k: np.float64(v) for k, v in row.numbers.items()}

    def values(*point):
      return floats(call(name)(*point))

    check_grads(jax.jit(values), point, 1, rtol=1e-5, atol=1e-6)

  @pytest.mark.parametrize("name", SHOWN)
  def test_dtypes(self, name, x64):
    row, one = ROWS[name], compiled(name)
    exact = one(cast(row, jnp.float64), row.numbers)
    assert all(leaf.dtype == np.float64 for leaf in floating(exact))
    for dtype, rtol in ((jnp.float32, row.rtol), (jnp.bfloat16, 2e-2)):
      # Both use the same rounded data, so that only the arithmetic differs.
      rounded = cast(row, dtype)
      reference = one(
        {k: v.astype(jnp.float64) for k, v in rounded.items()}, row.numbers
      )
      result = one(rounded, row.numbers)
      for leaf, expected in zip(floating(result), floating(reference), strict=True):
        assert leaf.dtype == dtype
        np.testing.assert_allclose(
          leaf.astype(np.float64), expected, rtol=rtol, atol=rtol
        )

  @pytest.mark.parametrize("name", ROWS)
  def test_degenerate_data_stay_finite(self, name):
    row, one = ROWS[name], compiled(name)
    inside = not any(v is BALL["x"] or v is BALL["y"] for v in row.arrays.values())

    def total(arrays):
      return sum(map(jnp.sum, floats(call(name)(arrays, row.numbers))))

    slope = jax.jit(jax.grad(total))
    cases = {
      "zero": {key: np.zeros_like(v) for key, v in row.arrays.items()},
      "identical": {k: np.broadcast_to(v[:1], v.shape) for k, v in row.arrays.items()},
      "huge": {key: 1e4 * v for key, v in row.arrays.items()},
      "tiny": {key: 1e-20 * v for key, v in row.arrays.items()},
    }
    for case, arrays in cases.items():
      if case == "huge" and not inside:
        continue  # outside the ball, where the docstring says NaN
      for result in (one(arrays, row.numbers), slope(arrays)):
        assert all(np.isfinite(leaf).all() for leaf in floating(result)), case


@pytest.mark.parametrize("name", QUARTER)
def test_calls_without_jit_and_in_pmap_on_two_devices_equal_the_jitted_one(name):
  row, one = ROWS[name], compiled(name)
  close(call(name)(row.arrays, row.numbers), one(row.arrays, row.numbers))
  stacked = {key: np.stack([v, 0.9 * v]) for key, v in row.arrays.items()}
  numbers = {key: np.full(2, value, np.float32) for key, value in row.numbers.items()}
  result = jax.pmap(call(name), devices=jax.devices()[:2])(stacked, numbers)
  single = {key: value[1] for key, value in stacked.items()}
  at_index = jax.tree.map(lambda leaf: leaf[1], result)
  close(at_index, one(single, row.numbers), rtol=1e-4, atol=1e-5)

"""Arguments that do not fit each other are refused, and the message says why.

`test_wrong_uses.py` tests single wrong arguments, for every function.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import (
  attacks,
  data,
  distances,
  hierarchy,
  metrics,
  plotting,
  pooling,
  prototypes,
  solvers,
  training,
  voronoi,
)

KEY = jax.random.key(0)
X = np.random.default_rng(0).random((6, 3)).astype(np.float32)
Y = np.array([0, 1, 2, 0, 1, 2])
EYE = np.eye(3, dtype=np.float32)
MAP = np.ones((2, 3, 4, 4), np.float32)
IMAGE = np.ones((7, 9, 2), np.float32)
KERNELS = np.zeros((4, 2), np.float32), np.zeros((2, 4), np.float32)
BRANCH = pooling.GSoPBranch(
  *(jnp.zeros(s) for s in ((4, 2), (2,), (9, 9, 1), (9, 1), (9, 9), (9,)))
)
RADII = {"epsilon_1": 1.0, "epsilon_inf": 0.5}
PAIR = np.array([[0.0, 1.0], [1.0, 0.0]])


def linear(x):
  return x @ EYE


def cells(x=X[:3], own=Y[:3], **options):
  return voronoi.voronoi_cells(x, own, X, **options)


ATTACKS = [
  (attacks.fab, (linear, X, Y), {"restarts": 2}, "restarts need a key"),
  (attacks.carlini_wagner, (linear, X, Y), {"high": np.inf}, "high must be finite"),
  (attacks.clopper_pearson, (4, 3), {}, r"count must be in \[0, 3\], got 4"),
  (attacks.seal, (EYE[0], EYE[0, :2], 1.0), {}, "center must have shape"),
  (attacks.attack_loss, (EYE, Y[:3]), {"loss": "kl"}, "reference, got loss 'kl'"),
  (attacks.attack_loss, (EYE, Y[:3]), {"reference": EYE}, "reference, got loss 'ce'"),
  (
    attacks.attack_loss,
    (EYE, Y[:3]),
    {"loss": "kl", "targets": Y[:3], "reference": EYE},
    '"kl" has no targets',
  ),
  (
    attacks.attack_loss,
    (EYE, Y[:3]),
    {"loss": "dlr", "targets": (Y[:3] + 1) % 3},
    '"dlr" with targets .* 4 classes, got 3',
  ),
  (
    attacks.attack_loss,
    (EYE[:, :2], 0 * Y[:3]),
    {"loss": "dlr"},
    '"dlr" needs at least 3 classes, got 2',
  ),
  (cells, (), {"own": np.array([0, 0, 2])}, "row 1 is not 0"),
  (cells, (), {"own": np.array([0, 48, 2])}, "got 48"),
  (cells, (), {"low": 0.9}, "x must be at least low = 0.9"),
  (cells, (), {"low": 1.0, "high": 0.5}, "low must be at most high, got 1.0 > 0.5"),
  (cells, (), {"high": np.full(3, 0.1)}, r"x must be at most high = 0.1, got .* at \["),
  (cells, (), {"ball_norm": "l3"}, "ball_norm must be .* got 'l3'"),
  (cells, (), {"norm": "linf", "high": np.inf}, "epsilon inf needs a finite box"),
  (
    voronoi.cell_margin,
    (X[:2], Y[:2], X),
    {"site_labels": Y[:3]},
    r"site_labels must have shape \(6,\)",
  ),
  (
    voronoi.cell_margin,
    (X[:2], Y[:2], X),
    {"site_labels": X[:, 0]},
    "site_labels must be integers",
  ),
  (voronoi.cell_margin, (X[:2], np.array([0, -1]), X), {}, r"\[0, 6\), got -1"),
]
DATA = [
  (data.center_crop, (IMAGE, 8), {}, r"\(8, 8\) must fit into .*7, 9"),
  (
    data.random_crop,
    (KEY, IMAGE),
    {"size": 12, "padding": 1},
    r"size \(12, 12\) must fit into images \(7, 9, 2\) with padding 1",
  ),
  (data.random_resized_crop, (KEY, IMAGE), {"size": 4, "area": (0, 1)}, r"area\[0\]"),
  (data.random_resized_crop, (KEY, IMAGE), {"size": 4, "aspect": (2, 1)}, r"aspect\[1"),
  (data.random_affine, (KEY, IMAGE), {"scale": (0.0, 1.0)}, r"scale\[0\] must be in"),
  (
    data.random_affine,
    (KEY, IMAGE),
    {"scale": (1.1, 0.9)},
    r"scale\[1\] must be .*0.9",
  ),
  (data.random_blur, (KEY, IMAGE), {"sigma": (0, 1)}, r"sigma\[0\]"),
  (data.random_blur, (KEY, IMAGE), {"sigma": (2, 1)}, r"sigma\[1\]"),
  (data.random_blur, (KEY, IMAGE[:1]), {}, r"sides of at least 2, got shape \(1, 9"),
  (data.normalize, (IMAGE, (0, 0), (1,)), {}, r"std must have shape \(2,\).*\(1,\)"),
  (
    data.fit_canvas,
    (np.zeros((2, 2), np.uint8), 4),
    {"fill": 256},
    r"fill must be in \[0, 255\], got 256",
  ),
  (
    data.fit_canvas,
    (np.zeros((2, 2), np.uint8), 4),
    {"fill": 0, "shrink": 3},
    "divide the side 4, got 3",
  ),
  (
    data.image_grid,
    (KEY, np.ones((7, 2, 2, 1), np.float32), np.arange(7)),
    {"rows": 2, "columns": 3, "min_count": 7},
    "at most the 6 cells, got 7",
  ),
  (data.class_table, (np.array([3, -1]),), {"per_class": 1}, "negative, got -1 at 1"),
  (data.class_table, (np.zeros(0, int),), {"per_class": 1}, "data set is empty"),
  (
    data.class_balanced_indices,
    (KEY, data.class_table(Y, per_class=2), 0),
    {"num_classes": 4, "per_class": 2},
    r"at most the 3 classes that .* got 4",
  ),
]
HIERARCHY = [
  *(
    (function, (matrix,), {}, message)
    for function in (hierarchy.chordal_distances, hierarchy.neighbor_joining)
    for matrix, message in (
      (np.array([[0, 1.0], [2.0, 0]]), "symmetric, got 1 from 0 to 1 and 2 back"),
      (-PAIR, "got -1"),
      (np.nan * PAIR, "got nan"),
      (PAIR + np.diag([0, 0.5]), "0 on the diagonal, got 0.5 at 1"),
    )
  ),
  (hierarchy.confusion_distances, (np.array([[1.0, -1.0]]),), {}, "at least 0"),
]
METRICS = [
  (metrics.retrieval, (X, Y, X), {}, "references and reference_labels go together"),
  (metrics.retrieval, (X, Y, X[:, :1], Y), {}, r"3 columns .* got shape \(6, 1\)"),
  (metrics.retrieval, (X, Y, X, Y[:1]), {}, r"reference_labels must have shape \(6,\)"),
  (
    metrics.retrieval,
    (X, Y),
    {"reference_where": Y[:1] == 0},
    "reference_where must have",
  ),
  (metrics.nearest, (X, X), {"k": 6, "exclude": np.arange(6)}, "at most 5, .* got 6"),
  (metrics.nearest, (X, X), {"k": 7}, "k must be at most 6, .* got 7"),
  (metrics.nearest, (X, X), {"k": 1, "exclude": X[:, 0]}, "exclude must be integers"),
  (
    metrics.common_confusions,
    (np.eye(2, dtype=int),),
    {"k": 3},
    "2 pairs of 2 classes",
  ),
  (metrics.lie_action, (np.eye(5), X, X[:, 0]), {}, r"\(3, 3\).*got \(5, 5\)"),
  (
    metrics.hierarchical_precision,
    (EYE, Y[:3], 1 - EYE),
    {"k": 2, "rank_offset": 2},
    "at most the 3 classes, got 4",
  ),
  (metrics.average_hierarchical_similarity, (np.ones((3, 1)),), {}, "two ranks"),
  (metrics.best_accuracy, (X, Y, np.array([1, -1])), {}, "budgets .* got -1"),
  (metrics.mean_interval, ([],), {}, r"at least one figure, got shape \(0,\)"),
  (metrics.paired_interval, ([1.0, 2.0], [1.0]), {}, r"second must have shape \(2,\)"),
  (metrics.displacement_alignment, (X, X), {}, r"3 axes.*\(6, 3\)"),
  (metrics.local_affine, (jnp.sum, X[0]), {}, r"projector.*\(\)"),
  (metrics.contrastive_collapse, (X[0], X[0, :2]), {}, r"\(3,\).*\(2,\)"),
  (metrics.spectrum, (metrics.triangle_init(3),), {"components": 4}, "got 4"),
  (metrics.triangle_update, (metrics.triangle_init(2), X), {}, r"\(6, 3\)"),
  (metrics.factorial_effects, ({"a": [1, 2, 3]}, [1.0, 2.0, 3.0]), {}, "two levels"),
  (metrics.factorial_effects, ({"a": [1, 2, 2]}, [1.0, 2.0, 3.0]), {}, "half of the"),
  (metrics.factorial_effects, ({"a": [1, 2]}, [1.0, 2.0, 3.0]), {}, "as many runs"),
  (metrics.factorial_effects, ({}, [1.0]), {}, "at least one factor"),
]
POOLING = [
  (pooling.gsp, (MAP, X), {}, r"prototypes must have shape .*got"),
  (pooling.gsp, (MAP, KERNELS[1]), {"mass": jnp.array([0.5, 5.0])}, "mass .* got 5"),
  (pooling.gsp, (MAP, KERNELS[1]), {"mass": jnp.full(3, 0.3)}, r"mass .*\(3,\)"),
  (pooling.gsp, (MAP, KERNELS[1]), {"inverse_temperature": -X[:2, 0]}, "inverse_temp"),
  *(
    (solve, (jnp.ones((5, 2, 3)),), {"mass": jnp.full(4, 0.3)}, r"\(5,\).*got \(4,\)")
    for solve in (
      pooling.gsp_weights,
      pooling.gsp_fixed_point,
      pooling.gsp_linear_program,
    )
  ),
  (pooling.gem, (MAP,), {"power": jnp.ones(2)}, r"power .*\(4,\).*got \(2,\)"),
  (pooling.cbam, (MAP, *KERNELS, np.zeros((2, 2, 2))), {}, "odd size, got 2"),
  (pooling.cbam, (MAP, KERNELS[0], KERNELS[0], np.zeros((3, 3, 2))), {}, "expand_ker"),
  (
    pooling.cbam,
    (MAP, *KERNELS, np.zeros((3, 3, 2))),
    {"reduce_bias": np.zeros(3)},
    r"reduce_bias .*\(2,\), got \(3,\)",
  ),
  (pooling.delf, (MAP, KERNELS[0], X[0], X[0], 0.0), {}, r"hidden_kernel .*\(4, 3\)"),
  (pooling.solar, (MAP, *[KERNELS[0]] * 4), {}, r"output_kernel .*\(2, 4\).*\(4, 2\)"),
  (pooling.otp, (MAP, X), {}, "prototypes must have shape"),
  (
    pooling.netvlad,
    (MAP, np.ones((5, 4)), np.ones((4, 4)), np.zeros(5)),
    {},
    "weights",
  ),
  (pooling.tsmk, (MAP, np.eye(4), np.zeros(4)), {"window": 2}, "odd, got 2"),
  (pooling.tsmk, (MAP, np.eye(2), np.zeros(2)), {}, r"kernel must have shape \(4, 2\)"),
  (pooling.tsmk, (MAP[:, 0], np.eye(4), np.zeros(4)), {}, "4 axes"),
  (pooling.gsop, (MAP, None, None), {}, "channel or the spatial branch, got neither"),
  (pooling.gsop, (MAP, None, BRANCH), {}, "spatial.row_kernel must have shape"),
]
SIMILAR = hierarchy.chordal_similarities(PAIR)
PROTOTYPES = [
  (prototypes.assign_prototypes, (X[:4], X[:3]), {}, "4 classes need as many .* got 3"),
  (prototypes.assignment_alignment, (EYE, EYE, np.arange(2)), {}, r"shape \(3,\)"),
  (prototypes.simplex, (KEY, 5, 3), {}, "at least 4, got 3"),
  (prototypes.simplex, (KEY, 3, 1), {}, "num_classes = 3"),
  (prototypes.orthogonal_simplices, (KEY, 11, 5), {}, r"\[6, 10\] for dim = 5"),
  (prototypes.orthogonal_simplices, (KEY, 5, 5), {}, "got 5"),
  (prototypes.cross_polytope, (KEY, 5, 2), {}, "at most 4 for dim = 2, got 5"),
  (prototypes.uniform_prototypes, (KEY, 3, 1), {}, "num_classes = 3"),
  (prototypes.hpn_prototypes, (KEY, 5, 3), {"vectors": X[:4, :2]}, r"\(4, 2\)"),
  (prototypes.renew_proxies, (MAP[0], MAP[0]), {"num_proxies": 5}, "4 points, got 5"),
  (prototypes.proxy_spread, (MAP[0, :, :1],), {}, "at least one class of two"),
  (prototypes.nearest_neighbours, (X, X, Y), {"num_classes": 2}, "got 2"),
  *(
    (function, (X[:, :2], X, Y), {"num_classes": 3}, r"sites must have shape \(6, 2\)")
    for function in (prototypes.nearest_neighbours, prototypes.nearest_neighbour_scores)
  ),
  (
    prototypes.nearest_neighbour_distance,
    (X[:, :2], Y, X, Y),
    {},
    r"sites must have shape \(6, 2\)",
  ),
  (prototypes.neighbour_logits, (X, X, Y), {"num_classes": 3, "k": 6}, "7, got 6"),
  (prototypes.prototype_histogram, (np.ones((1, 0, 2)), X), {}, r"\(1, 0, 2\)"),
  (
    prototypes.prototype_histogram,
    (MAP[0], KERNELS[1]),
    {"weights": np.ones((3, 4), int)},
    "floating, got dtype int",
  ),
  (prototypes.simple_shot, (X, MAP[0]), {}, "columns"),
  (prototypes.simple_shot, (X, X[None]), {"transform": "centred_l2"}, "with no centre"),
  (
    prototypes.simple_shot,
    (X, X[None]),
    {"transform": "l2", "centre": np.ones(3)},
    "'l2' with a centre",
  ),
  (
    prototypes.simple_shot,
    (X, X[None]),
    {"transform": "centred_l2", "centre": np.ones(4)},
    r"centre must have shape \(3,\)",
  ),
  (
    prototypes.episode_accuracies,
    (X, np.zeros((2, 3, 4), int)),
    {"num_shots": 4},
    "leave a query of the 4 rows",
  ),
  (prototypes.hierarchical_prototypes, (SIMILAR, 4), {}, "needs a key"),
  (
    prototypes.hierarchical_prototypes,
    (np.ones((2, 2)), 2),
    {"method": "cholesky"},
    "definite",
  ),
  (
    prototypes.hierarchical_prototypes,
    (np.array([[1.0, 0, 0], [0, 1, 0.5], [0, 0.5, 1]]), 1),
    {"method": "spectral"},
    "class 0 at the origin in 1 dim",
  ),
  (prototypes.hierarchical_prototypes, (PAIR, 4), {}, "1 on the diagonal, got 0"),
  (
    prototypes.hierarchical_prototypes,
    (np.array([[1, 0.5], [0.1, 1]]), 4),
    {},
    "symmetric",
  ),
]
SOLVERS = [
  *(
    (solve, arguments, {"start": start} if start else {}, message)
    for solve in (solvers.linear_assignment, solvers.host_linear_assignment)
    for arguments, start, message in (
      ((X,), None, r"1 <= rows <= columns, got \(6, 3\)"),
      ((X[:0],), None, r"1 <= rows <= columns, got \(0, 3\)"),
      ((EYE[:2],), (Y[:2], X[0, :2]), r"column duals must have shape \(3,\)"),
      ((EYE[:2],), (X[:2, 0], X[0]), "assignment must be integers, got dtype float"),
    )
  ),
  (solvers.newton, (linear, (2.0, 1.0)), {}, r"got \(2.0, 1.0\)"),
  (solvers.newton, (linear, (1.0, 1.0)), {}, r"got \(1.0, 1.0\)"),
  (solvers.newton, (lambda x: jnp.stack([x, x]), (0.0, 1.0)), {}, r"scalar, got .*2"),
  (solvers.fixed_point, (lambda x: x[:2], jnp.zeros(3)), {}, r"float32\[3\].*\[2\]"),
  (solvers.fixed_point, (linear, jnp.zeros(0)), {}, "at least one entry"),
  (solvers.fixed_point, (linear, jnp.zeros(3, int)), {}, "int32"),
  (solvers.sinkhorn, (X[None],), {"row_marginal": X[:, 0]}, r"shape \(1, 6\)"),
  (solvers.sphere_mds, (3 * PAIR, 2), {"key": KEY}, r"chords in \[0, 2\], got 3"),
  (solvers.sphere_mds, (np.triu(PAIR), 2), {"key": KEY}, "symmetric"),
  (solvers.sphere_mds, (PAIR, 2), {}, "one of key and initial"),
  (solvers.sphere_mds, (PAIR, 2), {"key": KEY, "initial": PAIR}, "one of key and"),
  (solvers.sphere_mds, (PAIR, 2), {"initial": X}, r"shape \(2, 2\)"),
  (distances.hull_gauge, (np.ones((2, 1)),), RADII, "2 entries"),
  (distances.combined_norm, (EYE,), {"epsilon_1": 1, "epsilon_inf": 2}, "got 1 / 2"),
  (distances.k_nearest, (X, X), {"k": 1, "exclude": range(5)}, r"\(5,\)"),
  (distances.k_nearest, (X, X), {"k": 1, "apart": (X[:, 0],) * 2}, "float32"),
  (distances.distance_ratio, (X,), {"exponent": 1.0, "classes": np.ones(3)}, "boolean"),
]
OTHERS = [
  (plotting.training_curves, ({"a": [1.0, 2.0]},), {"ylabel": "loss"}, "2 axes"),
  (
    plotting.training_curves,
    ({"a": [[1.0, 2.0]], "b": [[1.0]]},),
    {"ylabel": "loss"},
    r"curves\['b'\] must have shape \(1, 2\)",
  ),
  (
    plotting.bars_with_intervals,
    ({"a": {}},),
    {"ylabel": "loss"},
    "at least one method",
  ),
  (plotting.class_hulls, ({"a": [np.zeros((2, 3))]},), {}, r"panels\['a'\]"),
  (plotting.class_hulls, ({"a": [PAIR]},), {"dots": {"b": [PAIR]}}, "'a', got 'b'"),
  (
    plotting.class_tree,
    (hierarchy.from_parents([-1, 0, 0]),),
    {"groups": np.zeros(4, int)},
    "shape",
  ),
  (training.reassign, (linear, X), {"steps_per_epoch": 0}, "at least 1, got 0"),
]
CALLS = ATTACKS + DATA + HIERARCHY + METRICS + POOLING + PROTOTYPES + SOLVERS + OTHERS


@pytest.mark.parametrize(("function", "arguments", "options", "message"), CALLS)
def test_calls(function, arguments, options, message, unchecked):
  with pytest.raises((TypeError, ValueError), match=message):
    function(*arguments, **options)

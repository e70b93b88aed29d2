"""Arguments that do not fit each other are refused, and the message says why.

`test_wrong_uses.py` tests single wrong arguments, for every function.
"""

from functools import partial as call

import jax
import jax.numpy as jnp
import numpy as np
import optax

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
from tests import refusals

KEY = jax.random.key(0)
X = np.random.default_rng(0).random((6, 3)).astype(np.float32)
Y = np.array([0, 1, 2, 0, 1, 2])
EYE = np.eye(3, dtype=np.float32)
MAP = np.ones((2, 3, 4, 4), np.float32)
IMAGE = np.ones((7, 9, 2), np.float32)
PICTURES = np.ones((1, 5, 4, 3), np.float32)
DARK = np.zeros((2, 2), np.uint8)
COLOURS = np.ones((1, 2, 4, 3), np.float32)
SEVERAL = jnp.array([0.0, 0.5, 1.0])
KERNELS = np.zeros((4, 2), np.float32), np.zeros((2, 4), np.float32)
BRANCH = pooling.GSoPBranch(
  *(jnp.zeros(s) for s in ((4, 2), (2,), (9, 9, 1), (9, 1), (9, 9), (9,)))
)
RADII = {"epsilon_1": 1.0, "epsilon_inf": 0.5}
PAIR = np.array([[0.0, 1.0], [1.0, 0.0]])
NAN = float("nan")


def linear(x):
  return x @ EYE


def decided(labels):
  return attacks.with_decision(linear, lambda x: labels)


def views(images=PICTURES, **strengths):
  settings = data.ViewStrengths()._replace(**strengths)
  return data.simclr_views(KEY, images, size=4, strengths=settings)


# Here and below: calls that several rows complete.
scores = call(attacks.attack_loss, EYE, Y[:3])
ball = call(attacks.combined_ball, **RADII)
cells = call(voronoi.voronoi_cells, x=X[:3], own_index=Y[:3], sites=X)
margin = call(voronoi.cell_margin, X[:2], Y[:2], X)
ATTACKS = [
  (call(attacks.fab, linear, X, Y, restarts=2), "restarts need a key"),
  (call(attacks.carlini_wagner, linear, X, Y, high=np.inf), "high must be finite"),
  (call(attacks.apgd, linear, X, Y, key=KEY, epsilon=0.1, steps=4, larger_radii=True),
   "at least 5 with larger_radii, got 4"),
  (call(attacks.clopper_pearson, 4, 3), r"count must be in \[0, 3\], got 4"),
  (call(attacks.seal, EYE[0], EYE[0, :2], 1.0), "center must have shape"),
  (call(scores, loss="kl"), "reference, got loss 'kl'"),
  (call(scores, reference=EYE), "reference, got loss 'ce'"),
  (call(scores, loss="kl", targets=Y[:3], reference=EYE), '"kl" has no targets'),
  (call(scores, loss="dlr", targets=Y[1:4]), '"dlr" with targets .* 4 classes, got 3'),
  (call(attacks.attack_loss, EYE[:, :2], 0 * Y[:3], loss="dlr"),
   '"dlr" needs at least 3 classes, got 2'),
  (call(cells, own_index=np.array([0, 0, 2])), "row 1 is not 0"),
  (call(cells, own_index=np.array([0, 48, 2])), "got 48"),
  (call(cells, low=0.9), "x must be at least low = 0.9"),
  (call(cells, low=1.0, high=0.5), "low must be at most high, got 1.0 > 0.5"),
  (call(cells, high=np.full(3, 0.1)), r"x must be at most high = 0.1, got .* at \["),
  (call(cells, norm="linf", high=np.inf), "epsilon inf needs a finite box"),
  (call(margin, site_labels=Y[:3]), r"site_labels must have shape \(6,\)"),
  (call(margin, site_labels=X[:, 0]), "TypeError: site_labels must be integers"),
  (call(voronoi.cell_margin, X[:2], np.array([0, -1]), X), r"\[0, 6\), got -1"),
  (call(ball, X, epsilon_inf=2.0), r"epsilon_1 / epsilon_inf must be in \(1, 3\)"),
  (call(ball, X, low=1.0, high=0.0), r"low must be at most high, got 1\.0 > 0\.0"),
  (call(ball, 1.5 * EYE[::-1]), r"at most high = 1\.0, got 1\.5 at \[0, 2\]"),
  (call(decided(jnp.zeros(6)), X), "TypeError: labels must be.*float32"),
  (call(decided(jnp.zeros(3, int)), X), r"labels.*\(3,\)"),
]  # fmt: skip
TEN = np.repeat(range(10), 30)
TABLE = data.class_table(Y, per_class=2)
GRID = np.ones((7, 2, 2, 1), np.float32), np.arange(7)
FORTY = data.from_arrays(np.zeros((40, 2, 2, 1), np.uint8), np.zeros(40, int))
PLAN = np.zeros((12, 8), int)
pipe = call(data.pipeline, FORTY)
resized = call(data.random_resized_crop, KEY, IMAGE, size=4)
balanced = call(data.class_balanced_indices, KEY, TABLE, per_class=2)
tail = data.long_tail
split = call(data.split_classes, Y)
shuffled = call(data.shuffled_indices, KEY, 4)
DATA = [
  (call(data.to_float, np.int32(1)), "TypeError: uint8 or floating, got dtype int32"),
  (call(data.random_grayscale, KEY, IMAGE), r"1 or 3 channels, got shape \(7, 9, 2\)"),
  (call(views, scale=(0, 1)), r"strengths.scale\[0\] must be in \(0, 1\], got 0"),
  (call(views, scale=(0.5, 1.2)), r"scale\[1\] must be in \(0, 1\], got 1.2"),
  (call(views, scale=(0.5, 0.4)), r"scale\[1\] must be in \[0.5, 1\], got 0.4"),
  (call(views, hue=0.6), r"strengths.hue must be in \[0, 0.5\], got 0.6"),
  (call(views, flip=-1), r"strengths.flip must be in \[0, 1\], got -1"),
  (call(views, scale=0.5),
   r"TypeError: strengths.scale must be a pair \(low, high\), got"),
  (call(views, jitter=3), r"strengths.jitter must be in \[0, 1\], got 3"),
  (call(views, images=IMAGE[None]), r"1 or 3 channels, got .*9, 2\)"),
  (call(views, images=FORTY.images), "TypeError: floating, got dtype uint8"),
  (call(pipe, np.array([[0, 40]])), "indices of the 40 images, got 40"),
  (call(pipe, np.array([[0, -1]])), "indices of the 40 images, got -1"),
  (call(pipe, PLAN[:, :0]), r"plan must name an image per step, got shape \(12, 0\)"),
  (call(pipe, PLAN, start=13), "start must be at most the plan's 12 steps, got 13"),
  (call(pipe, PLAN, process_count=3), "a batch of 8 cannot be shared evenly by 3"),
  (call(pipe, PLAN, process_index=2, process_count=2), "below process_count=2, got"),
  (call(data.center_crop, IMAGE, 8), r"\(8, 8\) must fit into .*7, 9"),
  (call(data.random_crop, KEY, IMAGE, size=12, padding=1),
   r"size \(12, 12\) must fit into images \(7, 9, 2\) with padding 1"),
  (call(data.random_crop, KEY, IMAGE, size=0), "size must be at least 1, got 0"),
  (call(resized, area=(0, 1)), r"area\[0\]"),
  (call(resized, aspect=(2, 1)), r"aspect\[1"),
  (call(data.random_affine, KEY, IMAGE, scale=(0.0, 1.0)), r"scale\[0\] must be in"),
  (call(data.random_affine, KEY, IMAGE, scale=(1.1, 0.9)), r"scale\[1\] must be .*0.9"),
  (call(data.random_blur, KEY, IMAGE, sigma=(0, 1)), r"sigma\[0\]"),
  (call(data.random_blur, KEY, IMAGE, sigma=(2, 1)), r"sigma\[1\]"),
  (call(data.random_blur, KEY, IMAGE[:1]), r"sides of at least 2, got shape \(1, 9"),
  (call(data.normalize, IMAGE, (0, 0), (1,)), r"std must have shape \(2,\).*\(1,\)"),
  (call(data.fit_canvas, DARK, 4, fill=256), r"fill must be in \[0, 255\], got 256"),
  (call(data.fit_canvas, DARK, 4, fill=12.7), "TypeError: fill must be a static"),
  (call(data.fit_canvas, DARK, 4, fill=0, shrink=3), "divide the side 4, got 3"),
  (call(data.image_grid, KEY, *GRID, rows=2, columns=3, min_count=7),
   "at most the 6 cells, got 7"),
  (call(data.class_table, np.array([3, -1]), per_class=1), "negative, got -1 at 1"),
  (call(data.class_table, np.zeros(0, int), per_class=1), "data set is empty"),
  (call(balanced, 0, num_classes=4), r"at most the 3 classes that .* got 4"),
  (call(balanced, 1.5, num_classes=2), "TypeError: step must be integers"),
  (call(data.random_flip, KEY, COLOURS, probability=SEVERAL), "scalar"),
  (call(data.random_grayscale, KEY, COLOURS, probability=SEVERAL),
   "probability must be a scalar"),
  (call(data.normalize, IMAGE, (0, 0), (1, 0)), r"std must be in \(0, inf\), got 0"),
  *(
    (call(change, KEY, MAP, strength=1.2), r"strength must be in \[0, 1\], got 1.2")
    for change in (data.random_brightness, data.random_contrast)
  ),
  *(
    (call(data.take_classes, data.load_digits(), classes), message)
    for classes, message in (
      ([], "classes must hold a label, got none"),
      ([3, 1, 3], r"classes must be different, got \[3, 1, 3\]"),
      ([0, 10], r"classes must be in \[0, 10\), got 10"),
      ([-1], "got -1"),
      ([0.5], "TypeError: classes must be integers"),
    )
  ),
  *(
    (call(data.batches, FORTY, KEY, **{"batch_size": 8} | options), message)
    for options, message in (
      ({"batch_size": 41}, "batch_size must be at most the 40 images, got 41"),
      ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
      ({"workers": -1}, "workers must be at least 0, got -1"),
      ({"prefetch": 0}, "prefetch must be at least 1, got 0"),
    )
  ),
  (call(split, groups=[[0, 1], [1]]), r"class 1 is in groups\[0\] and in groups\[1\]"),
  (call(split, groups=[[0], [4]]), r"class 4 of groups\[1\] has no image"),
  (call(split, groups=[[0], []]), r"groups\[1\] is empty"),
  (call(split, groups=[[0], [1]], key=KEY), "either groups or a key"),
  (call(split, fractions=(0.5, 0.4)), r"sum to 1, got \(0.5, 0.4\), in sum 0.9"),
  (call(split, fractions=(1.5, -0.5)), r"fractions\[0\] must be in \(0, 1\], got 1.5"),
  (call(split, fractions=(0.95, 0.05)), "3 classes leave a part without a class"),
  (call(split, groups=[[0.9], [1.5]]), "TypeError: must be integers"),
  *(
    (call(divide, labels), message)
    for divide in (data.split_classes, data.split_within_classes)
    for labels, message in (
      (np.array([0, 1, -1]), "must not be negative, got -1 at 2"),
      (Y[:0], "data set is empty"),
      (np.eye(2, dtype=int), r"labels must have 1 axis, got shape \(2, 2\)"),
    )
  ),
  (call(data.split_within_classes, np.array([0, 0, 1]), fractions=(0.9, 0.1)),
   "classes of at most 2 images leave a part empty"),
  (call(tail, TEN, 0.01), r"imbalance 0\.01 leaves class 7 of 10 without"),
  (call(tail, TEN, 1.5), r"imbalance must be in \(0, 1\]"),
  (call(tail, np.array([0, 1, 3]), 0.5), "class 2 has none"),
  (call(tail, np.array([0, 1, 10**12]), 0.5),
   "up to 1000000000000 .* class 2 has none"),
  (call(tail, np.array([0, -1]), 0.5), "labels must not be negative, got -1 at 1"),
  (call(shuffled, 0, batch_size=5), "batch_size must be at most the 4 images, got 5"),
  (call(shuffled, -1, batch_size=2), "step must .*got -1"),
  (call(shuffled, Y, batch_size=2), "step must .*shape"),
]  # fmt: skip
TREE = hierarchy.from_mapping({"plant": ["oak"], "animal": ["cat", "dog"]})
TWICE = {"a": ["x"], "b": ["x"]}
TWO_X = "must have different names, got 'x' twice"
edges = hierarchy.from_edges
HIERARCHY = [
  *(
    (call(function, matrix), message)
    for function in (hierarchy.chordal_distances, hierarchy.neighbor_joining)
    for matrix, message in (
      (np.array([[0, 1.0], [2.0, 0]]), "symmetric, got 1 from 0 to 1 and 2 back"),
      (-PAIR, "got -1"),
      (np.nan * PAIR, "got nan"),
      (PAIR + np.diag([0, 0.5]), "0 on the diagonal, got 0.5 at 1"),
    )
  ),
  (call(hierarchy.confusion_distances, np.array([[1.0, -1.0]])), "at least 0"),
  (call(edges, []), "must have a node"),
  (call(edges, [("a", ""), ("b", "c"), ("c", "b")]), "'b' -> 'c' -> 'b'"),
  (call(edges, [("b", "c"), ("c", "b")]), "'b' -> 'c' -> 'b'"),
  (call(edges, [("a", "a")]), "'a' -> 'a'"),
  (call(edges, [("r", ""), ("a", "r"), ("b", "r"), ("a", "b")]),
   "'a' .* got 'r' and 'b'"),
  (call(edges, [("r", ""), ("a", "r"), ("a", "r")]), "'a' occurs twice"),
  (call(edges, [("r", ""), ("s", "")]), "one root, got 'r' and 's'"),
  (call(edges, [("r", ""), ("a", "q")]), "parent 'q' of 'a'"),
  (call(edges, [("r", ""), ("", "r")]), "empty one below 'r'"),
  (call(hierarchy.from_mapping, TWICE, classes=["x"]), "'x' must name one node"),
  (call(hierarchy.from_mapping, TWICE), TWO_X),
  (call(hierarchy.from_newick, "((x,b),x);"), TWO_X),
  (call(hierarchy.from_parents, [-1, 0, 0], names=["r", "x", "x"]), TWO_X),
  (call(hierarchy.from_mapping, {"a": ["x", "x"]}), "below 'a' must differ"),
  (call(hierarchy.from_mapping, {"a": "x"}), "below 'a' must be a sequence"),
  (call(hierarchy.from_mapping, {}), "must hold a name"),
  (call(hierarchy.from_paths, ["a/b", "c", "a/b"]), "'a/b' occurs twice"),
  (call(hierarchy.from_paths, ["a//b"]), "'a//b'"),
  (call(hierarchy.from_paths, []), "must hold a path"),
  (call(hierarchy.from_parents, [-1, 2]), "parent 2 of '1'"),
  (call(hierarchy.from_parents, [-1, 0], names=["a"]), "2 entries, got 1"),
  (call(hierarchy.from_parents, X[:2, 0]), "TypeError: parents must be integers"),
  (call(hierarchy.restrict, TREE, []), "must hold a name"),
  (call(hierarchy.at_depth, TREE, -1), "depth must be at least 0, got -1"),
  (call(hierarchy.restrict, TREE, ["elm"]), "'elm' is no node"),
  (call(hierarchy.classes_below, TREE, "elm"), "'elm' is not in the tree"),
  (call(hierarchy.neighbor_joining, 0 * PAIR, names=["a"]), "2 entries, got 1"),
  (call(hierarchy.neighbor_joining, 0 * PAIR, names=["a", ""]), "must not be empty"),
]  # fmt: skip
retrieval = call(metrics.retrieval, X, Y)
effects = metrics.factorial_effects
correlated = call(metrics.distance_correlation, X, X)
METRICS = [
  (call(retrieval, X), "references and reference_labels go together"),
  (call(retrieval, X[:, :1], Y), r"3 columns .* got shape \(6, 1\)"),
  (call(retrieval, X, Y[:1]), r"reference_labels must have shape \(6,\)"),
  (call(retrieval, reference_where=Y[:1] == 0), "reference_where must have"),
  (call(retrieval, X, Y, exclude=Y + 6), r"exclude must be in \[-1, 6\), got 6"),
  (call(retrieval, X, Y, exclude=Y[:3]), "exclude must have shape"),
  (call(retrieval, X, Y, exclude=X[:, 0]), "TypeError: exclude must be integers"),
  (call(retrieval, exclude=Y), "exclude needs references"),
  (call(metrics.nearest, X, X, k=6, exclude=np.arange(6)), "at most 5, .* got 6"),
  (call(metrics.nearest, X, X, k=7), "k must be at most 6, .* got 7"),
  (call(metrics.nearest, X, X, k=1, exclude=X[:, 0]),
   "TypeError: exclude must be integers"),
  (call(metrics.common_confusions, np.eye(2, dtype=int), k=3), "2 pairs of 2 classes"),
  (call(metrics.lie_action, np.eye(5), X, X[:, 0]), r"\(3, 3\).*got \(5, 5\)"),
  (call(metrics.hierarchical_precision, EYE, Y[:3], 1 - EYE, k=2, rank_offset=2),
   "at most the 3 classes, got 4"),
  (call(metrics.average_hierarchical_similarity, np.ones((3, 1))), "two ranks"),
  (call(metrics.best_accuracy, X, Y, np.array([1, -1])), "budgets .* got -1"),
  (call(metrics.mean_interval, []), r"at least one figure, got shape \(0,\)"),
  (call(metrics.paired_interval, [1.0, 2.0], [1.0]), r"second must have shape \(2,\)"),
  (call(metrics.displacement_alignment, X, X), r"3 axes.*\(6, 3\)"),
  (call(metrics.local_affine, jnp.sum, X[0]), r"projector.*\(\)"),
  (call(metrics.contrastive_collapse, X[0], X[0, :2]), r"\(3,\).*\(2,\)"),
  (call(metrics.spectrum, metrics.triangle_init(3), components=4), "got 4"),
  (call(metrics.triangle_update, metrics.triangle_init(2), X), r"\(6, 3\)"),
  (call(effects, {"a": [1, 2, 3]}, [1.0, 2.0, 3.0]), "two levels"),
  (call(effects, {"a": [1, 2, 2]}, [1.0, 2.0, 3.0]), "half of the"),
  (call(effects, {"a": [1, 2]}, [1.0, 2.0, 3.0]), "as many runs"),
  (call(effects, {}, [1.0]), "at least one factor"),
  (call(effects, {"a": ["x", "y"]}, [1.0, 2.0]), "TypeError: must be real numbers"),
  (call(metrics.recall_at_k, jnp.arange(3), k=jnp.arange(3)), "k must"),
  (call(metrics.hulls_intersect, X[:, :2], X), r"\(6, 2\) to match .* got \(6, 3\)"),
  (call(metrics.hulls_intersect, PAIR, NAN * PAIR), "finite"),
  (call(metrics.hull_distance, PAIR, PAIR[:0]), "b must have a row"),
  (call(metrics.correlation, [1, 2, 3], [1, 2]), r"\(2,\)"),
  (call(metrics.correlation, range(9), range(9), exact=True), "got 9"),
  (call(correlated, rows=Y - 1), r"rows must be in \[0, 6\), got -1"),
  (call(correlated, rows=Y + 4), r"rows must be in \[0, 6\), got 6"),
]  # fmt: skip
COSTS, FOUR = jnp.ones((5, 2, 3)), jnp.full(4, 0.3)
POOLING = [
  (call(pooling.gsp, MAP, X), r"prototypes must have shape .*got"),
  (call(pooling.gsp, MAP, KERNELS[1], mass=jnp.array([0.5, 5.0])), "mass .* got 5"),
  (call(pooling.gsp, MAP, KERNELS[1], mass=jnp.full(3, 0.3)), r"mass .*\(3,\)"),
  (call(pooling.gsp, MAP, KERNELS[1], inverse_temperature=-X[:2, 0]), "inverse_temp"),
  (call(pooling.gsp_weights, COSTS, mass=FOUR), r"\(5,\).*got \(4,\)"),
  (call(pooling.gsp_fixed_point, COSTS, mass=FOUR), r"\(5,\).*got \(4,\)"),
  (call(pooling.gsp_linear_program, COSTS, mass=FOUR), r"\(5,\).*got \(4,\)"),
  (call(pooling.gem, MAP, power=jnp.ones(2)), r"power .*\(4,\).*got \(2,\)"),
  (call(pooling.cbam, MAP, *KERNELS, np.zeros((2, 2, 2))), "odd size, got 2"),
  (call(pooling.cbam, MAP, KERNELS[0], KERNELS[0], np.zeros((3, 3, 2))), "expand_ker"),
  (call(pooling.cbam, MAP, *KERNELS, np.zeros((3, 3, 2)), reduce_bias=np.zeros(3)),
   r"reduce_bias .*\(2,\), got \(3,\)"),
  (call(pooling.delf, MAP, KERNELS[0], X[0], X[0], 0.0), r"hidden_kernel .*\(4, 3\)"),
  (call(pooling.solar, MAP, *[KERNELS[0]] * 4), r"output_kernel .*\(2, 4\).*\(4, 2\)"),
  (call(pooling.otp, MAP, X), "prototypes must have shape"),
  (call(pooling.netvlad, MAP, np.ones((5, 4)), np.eye(4), np.zeros(5)), "weights"),
  (call(pooling.tsmk, MAP, np.eye(4), np.zeros(4), window=2), "odd, got 2"),
  (call(pooling.tsmk, MAP, np.eye(2), np.zeros(2)), r"kernel must have shape \(4, 2\)"),
  (call(pooling.tsmk, MAP[:, 0], np.eye(4), np.zeros(4)), "4 axes"),
  (call(pooling.gsop, MAP, None, None), "channel or the spatial branch, got neither"),
  (call(pooling.gsop, MAP, None, BRANCH), "spatial.row_kernel must have shape"),
]  # fmt: skip
SIMILAR = hierarchy.chordal_similarities(PAIR)
histogram = prototypes.prototype_histogram
shot = call(prototypes.simple_shot, X)
hierarchical = prototypes.hierarchical_prototypes
NEAR = np.array([[1.0, 0, 0], [0, 1, 0.5], [0, 0.5, 1]])
PROTOTYPES = [
  (call(prototypes.assign_prototypes, X[:4], X[:3]), "4 classes need as many .* got 3"),
  (call(prototypes.assignment_alignment, EYE, EYE, np.arange(2)), r"shape \(3,\)"),
  (call(prototypes.simplex, KEY, 5, 3), "at least 4, got 3"),
  (call(prototypes.simplex, KEY, 3, 1), "num_classes = 3"),
  (call(prototypes.orthogonal_simplices, KEY, 11, 5), r"\[6, 10\] for dim = 5"),
  (call(prototypes.orthogonal_simplices, KEY, 5, 5), "got 5"),
  (call(prototypes.cross_polytope, KEY, 5, 2), "at most 4 for dim = 2, got 5"),
  (call(prototypes.uniform_prototypes, KEY, 3, 1), "num_classes = 3"),
  (call(prototypes.hpn_prototypes, KEY, 5, 3, vectors=X[:4, :2]), r"\(4, 2\)"),
  (call(prototypes.renew_proxies, MAP[0], MAP[0], num_proxies=5), "4 points, got 5"),
  (call(prototypes.proxy_spread, MAP[0, :, :1]), "at least one class of two"),
  (call(prototypes.nearest_neighbours, X, X, Y, num_classes=2), "got 2"),
  *(
    (call(function, X[:, :2], X, Y, num_classes=3), r"sites must have shape \(6, 2\)")
    for function in (prototypes.nearest_neighbours, prototypes.nearest_neighbour_scores)
  ),
  (call(prototypes.nearest_neighbour_distance, X[:, :2], Y, X, Y),
   r"sites must have shape \(6, 2\)"),
  (call(prototypes.neighbour_logits, X, X, Y, num_classes=3, k=6), "7, got 6"),
  (call(histogram, np.ones((1, 0, 2)), X), r"\(1, 0, 2\)"),
  (call(histogram, MAP[0], KERNELS[1], weights=np.ones((3, 4), int)),
   "TypeError: weights must be floating, got dtype int"),
  (call(shot, MAP[0]), "columns"),
  (call(shot, X[None], transform="centred_l2"), "with no centre"),
  (call(shot, X[None], transform="l2", centre=np.ones(3)), "'l2' with a centre"),
  (call(shot, X[None], transform="centred_l2", centre=np.ones(4)),
   r"centre must have shape \(3,\)"),
  (call(prototypes.episode_accuracies, X, np.zeros((2, 3, 4), int), num_shots=4),
   "leave a query of the 4 rows"),
  (call(hierarchical, SIMILAR, 4), "needs a key"),
  (call(hierarchical, np.ones((2, 2)), 2, method="cholesky"), "definite"),
  (call(hierarchical, NEAR, 1, method="spectral"), "class 0 at the origin in 1 dim"),
  (call(hierarchical, PAIR, 4), "1 on the diagonal, got 0"),
  (call(hierarchical, np.array([[1, 0.5], [0.1, 1]]), 4), "symmetric"),
]  # fmt: skip
SOLVERS = [
  *(
    (call(solve, costs, start=start), message)
    for solve in (solvers.linear_assignment, solvers.host_linear_assignment)
    for costs, start, message in (
      (X, None, r"1 <= rows <= columns, got \(6, 3\)"),
      (X[:0], None, r"1 <= rows <= columns, got \(0, 3\)"),
      (EYE[:2], (Y[:2], X[0, :2]), r"column duals must have shape \(3,\)"),
      (
        EYE[:2],
        (X[:2, 0], X[0]),
        "TypeError: the start's assignment must be integers, got dtype float",
      ),
    )
  ),
  (call(solvers.newton, linear, (2.0, 1.0)), r"got \(2.0, 1.0\)"),
  (call(solvers.newton, linear, (1.0, 1.0)), r"got \(1.0, 1.0\)"),
  (call(solvers.newton, lambda x: jnp.stack([x, x]), (0.0, 1.0)), r"scalar, got .*2"),
  (call(solvers.fixed_point, lambda x: x[:2], jnp.zeros(3)), r"float32\[3\].*\[2\]"),
  (call(solvers.fixed_point, linear, jnp.zeros(0)), "at least one entry"),
  (call(solvers.fixed_point, linear, jnp.zeros(3, int)), "TypeError: .*int32"),
  (call(solvers.sinkhorn, X[None], row_marginal=X[:, 0]), r"shape \(1, 6\)"),
  (call(solvers.sphere_mds, 3 * PAIR, 2, key=KEY), r"chords in \[0, 2\], got 3"),
  (call(solvers.sphere_mds, np.triu(PAIR), 2, key=KEY), "symmetric"),
  (call(solvers.sphere_mds, PAIR, 2), "one of key and initial"),
  (call(solvers.sphere_mds, PAIR, 2, key=KEY, initial=PAIR), "one of key and"),
  (call(solvers.sphere_mds, PAIR, 2, initial=X), r"shape \(2, 2\)"),
  (call(distances.hull_gauge, np.ones((2, 1)), **RADII), "2 entries"),
  (call(distances.combined_norm, EYE, epsilon_1=1, epsilon_inf=2), "got 1 / 2"),
  (call(distances.k_nearest, X, X, k=1, exclude=range(5)), r"\(5,\)"),
  (call(distances.k_nearest, X, X, k=1, apart=(X[:, 0],) * 2), "TypeError: .*float32"),
  (call(distances.distance_ratio, X, exponent=1.0, classes=np.ones(3)),
   "TypeError: .*boolean"),
]  # fmt: skip
factorial = training.factorial
LEVELS = {"m": (16, 128), "mu": (0.3, 0.7)}
PARAMS = {"network": jnp.ones(1), "loss": jnp.ones(1)}
OTHERS = [
  (call(plotting.training_curves, {"a": [1.0, 2.0]}, ylabel="loss"), "2 axes"),
  (call(plotting.training_curves, {"a": [[1.0, 2.0]], "b": [[1.0]]}, ylabel="loss"),
   r"curves\['b'\] must have shape \(1, 2\)"),
  (call(plotting.bars_with_intervals, {"a": {}}, ylabel="loss"), "at least one method"),
  (call(plotting.class_hulls, {"a": [np.zeros((2, 3))]}), r"panels\['a'\]"),
  (call(plotting.class_hulls, {"a": [PAIR]}, dots={"b": [PAIR]}), "'a', got 'b'"),
  (call(plotting.class_tree, TREE, groups=np.zeros(4, int)), "shape"),
  (call(training.reassign, linear, X, steps_per_epoch=0), "at least 1, got 0"),
  (call(factorial, {"mu": (0.3, 0.3)}), r"levels\['mu'\] must be two different .*0.3,"),
  *(
    (call(factorial, {"mu": pair}), r"levels\['mu'\] must be two different")
    for pair in ((0.3,), (1, 2, 3), (NAN, NAN), (1.0, NAN), [[1, 2]])
  ),
  (call(factorial, {"mu": 5}), "'mu' must hold one value per cell, got a sc"),
  (call(factorial, {"mu": {"a": 1}}), "TypeError: 'mu' must hold numbers"),
  *(
    (call(factorial, LEVELS, relation=words), message)
    for words, message in (
      ([(["m"],)], r"TypeError: a word of the relation must be text, got \['m"),
      ([("m", "nu")], r"m, mu once, got \('m', 'nu'\)"),
      ([("m", "m")], r"once, got \('m', 'm'\)"),
      ([("m", "mu"), ("m", "mu")], r"\('m', 'mu'\) follows"),
    )
  ),
  *(
    (call(training.grid, values), message)
    for values, message in (
      ({"mu": [[1, 2], [3]]}, r"'mu' must be an array, got \[\[1, 2\], \[3\]\]"),
      ({}, "at least one hyperparameter"),
      ({"mu": []}, "'mu' must hold at least one value"),
      ({"loss": ["triplet"]}, "TypeError: 'loss' must hold numbers, got 'triplet'"),
      ({"a": [2**70]}, "TypeError: 'a' must hold numbers .* 1180591620717411303424"),
    )
  ),
  (call(training.shard, Y), "6 rows cannot be split evenly over 4 .*pad_rows"),
  (call(training.shard, X[:0]), "0 rows"),
  (call(training.shard, (Y, Y[:5])), r"same length, got shapes \[\(6,\), \(5,\)\]"),
  (call(training.shard, np.float32(1)), "first axis"),
  (call(training.shard, Y, devices=jax.devices()[:1] * 2), "devices must differ"),
  (call(training.shard, {"y": np.array(list("abcd"))}), "TypeError: batch.*'y'"),
  (call(training.pad_rows, X[:0], 4), "at least one row, got 0"),
  (call(training.pad_rows, X, 0), "multiple must be at least 1, got 0"),
  (call(training.when, SEVERAL > 0, lambda x: x, COLOURS), "due must"),
  (call(training.ccp_response, linear, metric="a", patience=0), "patience"),
  (call(training.ccp_projection, first_weight=-1), "first_weight"),
  (call(training.ccp_projection, first_weight=SEVERAL), "scalar"),
  (call(training.ccp_fresh_moments, optax.sgd(0.1), optax.adam(0.1).init(PARAMS),
        PARAMS), "of 0 leaves, got one of 5"),
]  # fmt: skip
CALLS = ATTACKS + DATA + HIERARCHY + METRICS + POOLING + PROTOTYPES + SOLVERS + OTHERS


@refusals.table(CALLS)
def test_calls(call, message, unchecked):
  refusals.check(call, message)

"""Wrong uses of every public function: refused, and the message names the culprit.

The valid call is the first one in the function's example. One argument at a time is
replaced, including options that the example leaves at their defaults. Some replacements
must be refused. Others may be accepted, but an error that they raise must be as clear.
"""

import fnmatch
import inspect

import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest

import spherejax
from spherejax import data, training
from tests import wrong_uses
from tests.test_names import EVERY, ROOMS
from tests.wrong_uses import bound

PARAMETERS = {
  f"{room}.{name}": inspect.signature(value).parameters
  for room, name in EVERY
  for value in [getattr(getattr(spherejax, room), name)]
  if callable(value) and not inspect.isclass(value)
}
FUNCTIONS = [*PARAMETERS]
AT_LEAST = 10
FEWER = {
  "data.load_digits": "takes nothing",
  "training.gather": "takes any tree; jax checks the name of the axis in a trace",
}
# Arguments that may be any tree or text, or need data that is not there.
ANYTHING = {
  "data.load_tfds": ("split",),  # read from a set on the disk
  "hierarchy.from_paths": ("separator",),
  "models.import_weights": ("ignore",),  # names of weights that may be left over
  "models.replace_prototypes": ("params",),
  "training.gather": ("tree",),
  "training.ccp_response": ("metric",),  # a name that `evaluate` knows
  "training.keep_features": ("made_with",),  # any value identifies a file
  "training.replicate": ("tree",),
  "training.when": ("value",),
}
# Text of any kind, and axes of devices, whose names jax checks.
FREE_TEXT = {"title", "other_label", "number_format", "axis_name", "class_axis_name"}
FREE_TEXT |= {"xlabel", "ylabel", "row_label", "column_label", "value_label"}
# Arguments of another kind that make sense, or whose message names no argument:
# patterns of functions and arguments.
OF_PAIRS = [
  f"{name}:labels"
  for name in FUNCTIONS
  if name.startswith("losses.") and "references" in PARAMETERS[name]
]
PAIRWISE = """
  distances.pairwise_*:x distances.unit_ball:x distances.distance_ratio:*
  losses.multi_proxy:* losses.uniformity:* metrics.*rank:* metrics.log_singular_values:*
  metrics.principal_axes:* pooling.netvlad_assignment:* prototypes.gaussian_potential:*
  prototypes.assignment_init:* prototypes.vector_prototypes:* solvers.sinkhorn:*
  hierarchy.confusion_distances:* attacks.smoothed_prediction:* training.reassign:points
"""
ANY_LABELS = f"""
  {" ".join(OF_PAIRS)} losses.split_by_class:* losses.memory_update:*
  metrics.class_balanced_mean:* metrics.label_sharing:*
  metrics.mean_interclass_distance:* metrics.normalized_mutual_information:*
  metrics.retrieval:* metrics.separation:* prototypes.assignment_change:*
  prototypes.mean_covering_radius:* prototypes.nearest_neighbour_*:labels
  data.collages:* data.image_grid:* data.long_tail:* data.class_table:*
  voronoi.merge_sites:*
"""
ACCEPTED = {
  "scalar": "attacks.steepest_ascent:* data.to_float:* training.reassign:*",
  "set": "hierarchy.from_paths:*",
  "empty": "explorer.main:arguments",  # the command says what it needs, and ends
  "nothing": "training.unreplicate:*",
  "negative": """
    losses.mine_multi_similarity:* metrics.augment_within_classes:scale
    attacks.clopper_pearson:total
  """,
  "nothing at all": """
    attacks.carlini_wagner:confidence attacks.clopper_pearson:* attacks.pgd:share
    attacks.deepfool:overshoot attacks.seal:high losses.hierarchical_cross_entropy:alpha
    losses.mine_angular:angle losses.multi_similarity*:threshold
    losses.soft_label_cross_entropy:beta metrics.augment_within_classes:scale
    metrics.estimate_generator:ridge metrics.re*:exponent pooling.otp:steps
    prototypes.nearest_neighbour_distance:high solvers.project_*:high solvers.s*:steps
    training.ccp_projection:first_weight voronoi.voronoi_*:share
  """,
  "far beyond": f"""
    {ANY_LABELS} data.from_arrays:labels data.split_*:labels attacks.seal:*
    attacks.carlini_wagner:confidence losses.mine_multi_similarity:*
    metrics.hierarchical_similarity:k metrics.recall_at_k:k plotting.save:max_bytes
    prototypes.nearest_neighbour_distance:low prototypes.neighbour_logits:k
    solvers.k_means:k solvers.project_ball:epsilon
  """,
  "far below": ANY_LABELS,
  "vector": """
    pooling.otp:* prototypes.hierarchical_prototypes:*
    solvers.fixed_point:init training.ccp_*:*weight training.optimizer:max_norm
  """,
  "not a number": "solvers.fixed_point:init training.ccp_observe:score",
  "fraction": """
    attacks.steepest_ascent:* data.class_balanced_indices:step data.fit_canvas:fill
    training.reassign:updates_per_epoch
  """,
  "integers": """
    losses.distortion_from_distance:* losses.soft_label_cross_entropy:*
    metrics.best_accuracy:points metrics.hierarchical_similarity:* metrics.hull*:*
    prototypes.hierarchical_prototypes:*
  """,
  "shape": "plotting.retrieval_sheet:* attacks.pgd:decay",
  "axis missing": """
    attacks.combined_ball:* attacks.smoothed_votes:* data.color_jitter:*
    data.random_affine:* data.random_blur:* data.random_*crop:*
    distances.distance_ratio:* distances.unit_ball:* training.reassign:*
  """,
  "row missing": f"""
    {PAIRWISE} data.center_crop:* distances.k_nearest:references metrics.reweight:*
    pooling.dominant_prototypes:* pooling.otp:* prototypes.assign_prototypes:*
    prototypes.prototype_convex_combination:* prototypes.s*:supports metrics.hull*:*
    solvers.*linear_assignment:*
  """,
  "column missing": f"""
    {PAIRWISE} data.from_arrays:* data.mixup:* losses.class_ranking:*
    losses.distance_ratio:* losses.large_margin_softmax:norms
    losses.ridge_attribute_embeddings:* losses.subcentre_arcface:*
    losses.zero_shot_prediction:label_embeddings metrics.hierarchical_similarity:*
    metrics.kernel_overlap:* plotting.*:images pooling.crow:* pooling.ga*:*
    pooling.gmp:* solvers.host_nonnegative_least_squares:*
  """,
}


def is_accepted(name, use):
  patterns = ACCEPTED.get(use.what, "").split()
  return any(fnmatch.fnmatch(f"{name}:{use.parameter}", each) for each in patterns)


def picture_folder(root):
  (root / "cat").mkdir(parents=True)
  PIL.Image.new("RGB", (4, 4)).save(root / "cat" / "one.png")
  return root


def shop(root):
  root.mkdir(parents=True, exist_ok=True)
  rows = ["0.png id_0 train", "1.png id_1 query", "2.png id_1 gallery"]
  for row in rows:
    PIL.Image.new("RGB", (4, 4)).save(root / row.split()[0])
  (root / "list_eval_partition.txt").write_text("\n".join(rows))
  return root


# Calls of functions whose examples do not run, or need several devices or lost files.
OWN_CALLS = {
  "data.load_folder": lambda folder: bound(data.load_folder, picture_folder(folder)),
  "data.read_image": lambda folder: bound(
    data.read_image, picture_folder(folder) / "cat" / "one.png"
  ),
  "data.load_in_shop": lambda folder: bound(data.load_in_shop, shop(folder)),
  "data.load_tfds": lambda folder: bound(
    data.load_tfds, "digits", "train", data_dir=folder
  ),
  "training.start_processes": lambda _: bound(training.start_processes),
  "training.gather": lambda _: bound(training.gather, np.ones(3), None),
}
IMAGES = np.zeros((2, 3, 3, 1), np.uint8), np.array([0, 1]), ("cat", "dog")
STATE = {"step": jnp.int32(3), "kernel": jnp.ones((2, 2))}


def checkpoints(folder):
  saved = training.Checkpoints(folder)
  saved.save(STATE)
  return saved


# Classes and methods of classes that are no Flax modules.
OF_CLASSES = {
  "Images": lambda _: bound(data.Images, *IMAGES, {"n": np.ones(2)}, {"n": ("a",)}),
  "Images.__getitem__": lambda _: bound(data.Images(*IMAGES).__getitem__, [0, 1]),
  "Checkpoints": lambda folder: bound(training.Checkpoints, folder),
  "Checkpoints.save": lambda folder: bound(checkpoints(folder).save, STATE, {"a": 1}),
  "Checkpoints.save_best": lambda folder: bound(
    checkpoints(folder).save_best, STATE, {}
  ),
  "Checkpoints.restore": lambda folder: bound(checkpoints(folder).restore, STATE),
  "Checkpoints.restore_best": lambda folder: bound(
    checkpoints(folder).restore_best, STATE, step=3
  ),
}
# States that are trees of arrays, or not, and records that JSON cannot hold.
WRONG_VALUES = {
  "state": ({"step": 3}, {"kernel": jnp.ones(2)}, {"step": jnp.ones(2, int)}, {}),
  "record": ({"a": jnp.ones(2)}, {"a": {1, 2}}),
  "directory": (3, None, ["abc"], b"abc"),
  "labels": (None, [0, 1], np.ones(2), np.array([0, 2])),
  "images": ("abc", None, 3, np.zeros((2, 3, 3), np.uint8), np.zeros((2, 3, 3, 1))),
  "label_names": ("abc", (1, 2), None, 3),
  "extras": ({"n": [1, 2]}, {"n": np.ones(3)}, ["abc"], "abc"),
  "extra_names": ({"n": 3}, {"n": (1,)}, "abc", 3),
}


def call_of(name, folder):
  """The function and a valid call of it."""
  if name in OWN_CALLS:
    return OWN_CALLS[name](folder)
  function, args, kwargs = wrong_uses.documented(name)
  return bound(function, *args, **kwargs)


def uses_of(name, call):
  return wrong_uses.wrong_uses(call, {*FREE_TEXT, *ANYTHING.get(name, ())})


def incomplete_calls(call):
  """Yields each required argument, and the keywords of a call without it."""
  named = {
    name: parameter
    for name, parameter in call.signature.parameters.items()
    if parameter.kind != parameter.VAR_POSITIONAL
  }
  given = {name: call.arguments[name] for name in named if name in call.arguments}
  for name, parameter in named.items():
    if parameter.default is parameter.empty:
      yield name, {other: value for other, value in given.items() if other != name}


def is_documented(error, doc):
  """Whether the docstring documents errors of this kind."""
  said = doc.partition("Raises:")[2].partition("\n\n")[0]
  return any(f"{kind.__name__}:" in said for kind in type(error).__mro__)


def refusal(function, call, use):
  """The error of a wrong use, which has to be clear, or None."""
  error = wrong_uses.failure(function, call, use)
  if error is None:
    assert not use.refused, f"accepted: {use}"
  else:
    assert wrong_uses.is_clear(error, use, wrong_uses.given(call)), (use, error)
  return error


def test_every_function_is_here():
  assert {name.partition(".")[0] for name in FUNCTIONS} == set(ROOMS)
  assert len(FUNCTIONS) > 380
  assert {*OWN_CALLS, *ANYTHING, *FEWER} <= set(FUNCTIONS)


# The quick tests try all uses of every 18th function, since functions share checks. For
# the others they try uses that must be refused, and every third value of a wrong kind.
SWEEP = [
  *(pytest.param(name, k % 18 == 0, id=name) for k, name in enumerate(FUNCTIONS)),
  *(
    pytest.param(name, True, id=f"{name}-all", marks=pytest.mark.slow)
    for k, name in enumerate(FUNCTIONS)
    if k % 18
  ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "every"), SWEEP)
def test_wrong_uses(name, every, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  with pytest.raises(TypeError, match="no_such_option"):
    function(*call.args, **call.kwargs, no_such_option=1)
  refusals = 1
  for parameter, others in incomplete_calls(call):
    with pytest.raises(TypeError, match=f"missing .*'{parameter}'"):
      function(**others)
    refusals += 1
  kinds = {each.name: each.annotation for each in call.signature.parameters.values()}
  listed, choices = {}, wrong_uses.named(kinds)
  for k, use in enumerate(uses_of(name, call)):
    repeated = use.what in wrong_uses.KINDS and (k + len(name)) % 3 > 0
    needed = use.refused and (not repeated or use.parameter in choices)
    if is_accepted(name, use) or not (every or needed):
      continue
    error = refusal(function, call, use)
    listed |= wrong_uses.listed(error, use.parameter)
    if error is not None:
      refusals += 1
      assert is_documented(error, inspect.getdoc(function)), (use, error)
  if every:
    assert (refusals < AT_LEAST) == (name in FEWER)
  # An editor offers exactly the allowed names.
  assert listed == choices


@pytest.mark.parametrize("name", OF_CLASSES)
def test_wrong_uses_of_classes(name, unchecked, tmp_path):
  function, call = OF_CLASSES[name](tmp_path)
  by_hand = WRONG_VALUES.keys() & call.signature.parameters.keys()
  uses = [
    *wrong_uses.wrong_uses(call, by_hand),
    *(
      wrong_uses.Use(parameter, "value", value, True)
      for parameter in sorted(by_hand)
      for value in WRONG_VALUES[parameter]
    ),
  ]
  errors = [refusal(function, call, use) for use in uses]
  assert sum(error is not None for error in errors) >= 4

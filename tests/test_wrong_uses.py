"""Wrong uses of every public function: refused, and the message names the culprit.

The valid call is the first one of the function's own example; one argument at a time
is replaced, options that it leaves at their defaults too. Some replacements must be
refused; of the others some functions can make sense, but an error of theirs must be as
clear.
"""

import inspect

import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest

import spherejax
from spherejax import data, training
from tests import wrong_uses

ROOMS = [name for name in spherejax.__all__ if not name.startswith("_")]
FUNCTIONS = [
  f"{room}.{name}"
  for room in ROOMS
  for name in getattr(getattr(spherejax, room), "__all__", ())
  if callable(getattr(getattr(spherejax, room), name))
  and not inspect.isclass(getattr(getattr(spherejax, room), name))
]
AT_LEAST = 10
FEWER = {
  "data.load_digits": "takes nothing",
  "training.gather": "takes any tree; jax checks the name of the axis in a trace",
}
# What may be any tree, or needs what is not there.
ANYTHING = {
  "data.load_tfds": ("split",),  # read from a set on the disk
  "hierarchy.from_paths": ("separator",),
  "models.import_weights": ("ignore",),  # how much may be left over
  "models.replace_prototypes": ("params",),
  "training.gather": ("tree",),
  "training.ccp_response": ("metric",),  # a name that `evaluate` knows
  "training.keep_features": ("made_with",),  # another one is another file's
  "training.replicate": ("tree",),
  "training.when": ("value",),
}
# Text of any kind; and axes of devices, of which jax knows the names.
FREE_TEXT = {"title", "other_label", "number_format", "axis_name", "class_axis_name"}
FREE_TEXT |= {"xlabel", "ylabel", "row_label", "column_label", "value_label"}
# What makes sense although it is of another kind.
ACCEPTED = {
  ("attacks.steepest_ascent", "scalar"),
  ("losses.mine_multi_similarity", "negative"),  # fewer pairs
  ("metrics.augment_within_classes", "negative"),  # mirrored
  ("solvers.fixed_point", "not a number"),
  ("training.ccp_observe", "not a number"),
  ("data.to_float", "scalar"),
  ("hierarchy.from_paths", "set"),
  ("training.reassign", "scalar"),
  ("training.unreplicate", "nothing"),
}


def picture_folder(root):
  (root / "cat").mkdir(parents=True)
  PIL.Image.new("RGB", (4, 4)).save(root / "cat" / "one.png")
  return root


# Of functions whose examples are not run, or need several devices or what is gone.
OWN_CALLS = {
  "data.load_folder": lambda folder: (data.load_folder, (picture_folder(folder),), {}),
  "data.read_image": lambda folder: (
    data.read_image,
    (picture_folder(folder) / "cat" / "one.png",),
    {},
  ),
  "data.load_tfds": lambda folder: (
    data.load_tfds,
    ("digits", "train"),
    {"data_dir": folder},
  ),
  "training.start_processes": lambda _: (training.start_processes, (), {}),
  "training.gather": lambda _: (training.gather, (np.ones(3), None), {}),
}


IMAGES = np.zeros((2, 3, 3, 1), np.uint8), np.array([0, 1]), ("cat", "dog")
STATE = {"step": jnp.int32(3), "kernel": jnp.ones((2, 2))}


def checkpoints(folder):
  found = training.Checkpoints(folder)
  found.save(STATE)
  return found


# Classes and methods of classes that are no Flax modules.
OF_CLASSES = {
  "Images": lambda _: (data.Images, (*IMAGES, {"n": np.ones(2)}, {"n": ("a",)})),
  "Images.__getitem__": lambda _: (data.Images(*IMAGES).__getitem__, ([0, 1],)),
  "Checkpoints": lambda folder: (training.Checkpoints, (folder,)),
  "Checkpoints.save": lambda folder: (checkpoints(folder).save, (STATE, {"a": 1})),
  "Checkpoints.save_best": lambda folder: (checkpoints(folder).save_best, (STATE, {})),
  "Checkpoints.restore": lambda folder: (checkpoints(folder).restore, (STATE,)),
  "Checkpoints.restore_best": lambda folder: (
    checkpoints(folder).restore_best,
    (STATE,),
    {"step": 3},
  ),
}
# States that are trees of arrays, or not, and records that JSON has no words for.
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
    function, args, kwargs = OWN_CALLS[name](folder)
    return function, wrong_uses.bound(function, args, kwargs)
  return wrong_uses.valid_call(name)


def uses_of(name, call):
  return wrong_uses.wrong_uses(call, {*FREE_TEXT, *ANYTHING.get(name, ())})


def incomplete_calls(call):
  """Each argument that must be given, and the keywords of a call without it."""
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
  """Whether the docstring says that errors of this kind are raised."""
  said = doc.partition("Raises:")[2].partition("\n\n")[0]
  return any(f"{kind.__name__}:" in said for kind in type(error).__mro__)


def test_every_function_is_here():
  assert {name.partition(".")[0] for name in FUNCTIONS} == set(ROOMS)
  assert len(FUNCTIONS) > 380
  accepted = {name for name, _ in ACCEPTED}
  assert {*OWN_CALLS, *ANYTHING, *accepted, *FEWER} <= set(FUNCTIONS)


# What must be refused is refused by every function. What one may make sense of is
# traced as a whole: quickly for some, which have their checks from the same places.
SWEEP = [
  *(pytest.param(name, k % 3 == 0, id=name) for k, name in enumerate(FUNCTIONS)),
  *(
    pytest.param(name, True, id=f"{name}-all", marks=pytest.mark.slow)
    for k, name in enumerate(FUNCTIONS)
    if k % 3
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
  listed = {}
  for use in uses_of(name, call):
    if not (every or use.refused):
      continue
    error = wrong_uses.failure(function, call, use)
    listed |= wrong_uses.listed(error, use.parameter)
    if error is None:
      accepted = not use.refused or (name, use.what) in ACCEPTED
      assert accepted, f"{use.what} in place of {use.parameter} is accepted"
    else:
      refusals += 1
      assert wrong_uses.is_clear(error, use, wrong_uses.given(call)), (use, error)
      assert is_documented(error, inspect.getdoc(function)), (use, error)
  if every:
    assert (refusals < AT_LEAST) == (name in FEWER)
  # An editor offers the names that are allowed, and no others.
  kinds = {each.name: each.annotation for each in call.signature.parameters.values()}
  assert listed == wrong_uses.named(kinds)


@pytest.mark.parametrize("name", OF_CLASSES)
def test_wrong_uses_of_classes(name, unchecked, tmp_path):
  function, args, *kwargs = OF_CLASSES[name](tmp_path)
  call = wrong_uses.bound(function, args, *kwargs or [{}])
  by_hand = WRONG_VALUES.keys() & call.signature.parameters.keys()
  uses = list(wrong_uses.wrong_uses(call, by_hand))
  for parameter in sorted(by_hand):
    for value in WRONG_VALUES[parameter]:
      uses.append(wrong_uses.Use(parameter, "value", value, True))
  refusals = 0
  for use in uses:
    error = wrong_uses.failure(function, call, use)
    if error is None:
      assert not use.refused, f"{use.value!r} in place of {use.parameter} is accepted"
    else:
      refusals += 1
      assert wrong_uses.is_clear(error, use, wrong_uses.given(call)), (use, error)
  assert refusals >= 4

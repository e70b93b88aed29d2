"""Wrong settings of every module: refused, and the message names the culprit.

The valid call is the `init` of the module's own example; one setting or argument at a
time is replaced.
"""

import contextlib
import dataclasses
import doctest
import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spherejax
from spherejax import models
from tests import wrong_uses
from tests.wrong_uses import Use, is_array, is_clear

MODULES = [
  name
  for name in models.__all__
  if inspect.isclass(getattr(models, name))
  and issubclass(getattr(models, name), nn.Module)
]
# Of the name of a device axis jax knows.
NOT_OURS = ("axis_name", "class_axis_name", "parent", "name")


class Called(Exception):
  """Ends an example at its first call of `init`, which is not made."""


def example_init(module_class, monkeypatch):
  """The module, and the arguments behind the key, of its example's `init`."""
  calls = []

  def recorded(module, key, *args, **kwargs):
    del key
    calls.append((module, args, kwargs))
    raise Called

  names = {"jax": jax, "jnp": jnp, "np": np, "spherejax": spherejax}
  text = inspect.getdoc(module_class)
  example = doctest.DocTestParser().get_doctest(text, names, "", None, 0)
  with monkeypatch.context() as patch, contextlib.suppress(Called):
    for method in ("init", "init_with_output"):
      patch.setattr(nn.Module, method, recorded)
    for line in example.examples:
      exec(compile(line.source, "", "single"), example.globs)
  module, args, kwargs = calls[0]
  # Inside of a transformation they were traced.
  return module, jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), args), kwargs


def failure(module, args, kwargs):
  try:
    jax.eval_shape(lambda: module.init(jax.random.key(0), *args, **kwargs))
  except jax.errors.JAXTypeError:  # it looks at values
    raise
  except Exception as error:
    return error


def wrong_settings(module):
  """Every setting replaced by what it cannot be."""
  for field in dataclasses.fields(module):
    value = getattr(module, field.name)
    if field.name in NOT_OURS:
      continue
    if isinstance(value, tuple):
      zeros, halves = (0,) * len(value), (2.5,) * len(value)
      wrong = {"text": "abc", "number": 3, "zero": zeros, "fraction": halves}
      yield from (Use(field.name, what, other, True) for what, other in wrong.items())
      continue
    parameter = inspect.Parameter(
      field.name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=field.type
    )
    for use in wrong_uses.wrong_options(parameter, value):
      if use[0] not in wrong_uses.RARE:
        yield Use(field.name, *use)


# What these modules make sense of, unlike most functions with such an argument.
ACCEPTED = {
  ("bandwidth", "vector"), ("per_class", "far beyond"), ("steps", "nothing at all"),
}  # fmt: skip
# Networks that take long to trace are quickly told wrong settings in their own tests.
LARGE = {"BNInception", "InceptionV3", "ResNet50", "SwinT"}


@pytest.mark.parametrize(
  "name",
  [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in MODULES],
)
def test_wrong_settings(name, unchecked, monkeypatch):
  module_class = getattr(models, name)
  if name == "ResNet101":  # `ResNet50` with another number
    return
  module, args, kwargs = example_init(module_class, monkeypatch)
  assert failure(module, args, kwargs) is None
  fields = {field.name: field.type for field in dataclasses.fields(module)}
  settings = {name: getattr(module, name) for name in fields}
  listed = {}
  for use in wrong_settings(module):
    if (use.parameter, use.what) in ACCEPTED:
      continue
    error = failure(module.clone(**{use.parameter: use.value}), args, kwargs)
    listed |= wrong_uses.listed(error, use.parameter)
    if error is None:
      assert not use.refused, f"{use.what} in place of {use.parameter} is accepted"
    else:
      assert is_clear(error, use, settings), (use, error)
  assert listed == wrong_uses.named(fields)
  parameters = inspect.signature(module_class.__call__).parameters
  names = dict.fromkeys([*parameters, "labels_a"])
  for number, value in enumerate(args):
    if not is_array(value):
      continue
    wrongs = {"text": "abc", "scalar": np.zeros((), value.dtype)}
    if value.dtype.kind == "f":
      wrongs |= {"integers": value.astype(int), "one axis": value.ravel()}
    elif value.ndim == 1 and len(value) > 1:
      wrongs |= {"row missing": value[:-1]}
    for what, wrong in wrongs.items():
      changed = (*args[:number], wrong, *args[number + 1 :])
      error = failure(module, changed, kwargs)
      assert error is not None, f"{what} in place of argument {number} is accepted"
      clear = is_clear(error, Use("", what, wrong, False), names)
      assert clear, (number, what, error)

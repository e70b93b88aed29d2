"""Every function with a key refuses, with our message, all but a single random key."""

import collections
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spherejax
from tests.test_wrong_uses import FUNCTIONS, call_of

WRONG = {
  "a number": 0,
  "text": "abc",
  "uint32": jnp.uint32(0),
  "numbers": np.zeros(2, np.float32),
  "three numbers": jnp.zeros(3, jnp.uint32),
  "two keys": jax.random.split(jax.random.key(0), 2),
  "a row of a key": jax.random.key(0)[None],
  "two untyped keys": jax.random.split(jax.random.PRNGKey(0), 2),
}
# These first refuse a key without samples.
WITH_SAMPLES = {"losses.class_ranking", "losses.class_ranking_from_similarity"}


def takes_a_key(name):
  room, function = name.split(".")
  return (
    "key" in inspect.signature(getattr(getattr(spherejax, room), function)).parameters
  )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if takes_a_key(name)])
def test_wrong_keys(name, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  extra = {"samples": 4} if name in WITH_SAMPLES else {}
  for what, wrong in WRONG.items():
    arguments = {**call.arguments, **extra, "key": wrong}
    order = [each for each in call.signature.parameters if each in arguments]
    bound = inspect.BoundArguments(
      call.signature, collections.OrderedDict({each: arguments[each] for each in order})
    )
    with pytest.raises((TypeError, ValueError), match="key must be a "):
      pytest.fail(f"{what} is taken: {function(*bound.args, **bound.kwargs)}")

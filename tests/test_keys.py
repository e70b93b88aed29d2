"""Every function with a key refuses, with our message, all but a single random key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import wrong_uses
from tests.test_wrong_uses import PARAMETERS, call_of

KEY = jax.random.key(0)
WRONG = {
  "a number": (0, "key of jax.random, got 0"),
  "text": ("abc", "key of jax.random, got 'abc'"),
  "uint32": (jnp.uint32(0), r"single key .* got shape \(\)"),
  "a NumPy number": (np.uint32(0), "key of jax.random, got np.uint32"),
  "numbers": (np.zeros(2, np.float32), "key of jax.random, got array"),
  "three numbers": (jnp.zeros(3, jnp.uint32), r"single key .* got shape \(3,\)"),
  "two keys": (jax.random.split(KEY, 2), r"single key .* got shape \(2,\)"),
  "a row of a key": (KEY[None], r"single key .* got shape \(1,\)"),
  "two untyped keys": (
    jax.random.split(jax.random.PRNGKey(0), 2),
    r"single key .* got shape \(2, 2\)",
  ),
}
# These first refuse a key without samples.
WITH_SAMPLES = {"losses.class_ranking", "losses.class_ranking_from_similarity"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [x for x in PARAMETERS if "key" in PARAMETERS[x]])
def test_wrong_keys(name, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  extra = {"samples": 4} if name in WITH_SAMPLES else {}
  for what, (wrong, message) in WRONG.items():
    values = {**extra, "key": wrong}
    # A function that is compiled shows the tracer instead of the value.
    shown = message if name.startswith("training.") else ""
    with pytest.raises((TypeError, ValueError), match=f"key must be a {shown}"):
      pytest.fail(f"{what} is taken: {wrong_uses.called(function, call, values)}")

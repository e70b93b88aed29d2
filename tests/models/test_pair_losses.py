"""The margin loss with learned boundaries calls the function with their sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses, models

ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)), jnp.float32)
LABELS = jnp.array([0, 0, 2, 2, 1, 1])
EXAMPLES = jnp.array([7, 0, 3, 4, 2, 8])
WHERE = jnp.array([1, 1, 1, 0, 1, 1], bool)


def test_margin_adds_the_boundaries_of_the_class_and_of_the_example():
  settings = {"margin": 0.3, "boundary_weight": 0.1, "form": "triplets"}
  module = models.Margin(num_classes=3, num_examples=9, **settings)
  variables = module.init(jax.random.key(0), ROWS, LABELS, examples=EXAMPLES)
  zeros = {"class_boundaries": np.zeros(3), "example_boundaries": np.zeros(9)}
  start = {"boundary": np.float32(1.2), **zeros}
  jax.tree.map(np.testing.assert_array_equal, variables["params"], start)
  params = {
    "boundary": jnp.float32(0.9),
    "class_boundaries": jnp.linspace(-0.2, 0.2, 3),
    "example_boundaries": jnp.linspace(-0.3, 0.1, 9),
  }

  def of_module(params):
    options = {"examples": EXAMPLES, "where": WHERE}
    return module.apply({"params": params}, ROWS, LABELS, **options).sum()

  def of_function(params):
    given = params | {"example_boundaries": params["example_boundaries"][EXAMPLES]}
    return losses.margin(ROWS, LABELS, **given, where=WHERE, **settings).sum()

  results = [jax.jit(jax.value_and_grad(f))(params) for f in (of_module, of_function)]
  jax.tree.map(np.testing.assert_array_equal, *results)
  assert (results[0][1]["class_boundaries"] != 0).any()


def test_margin_alone_owns_one_number():
  module = models.Margin()
  variables = module.init(jax.random.key(0), ROWS, LABELS)
  assert list(variables["params"]) == ["boundary"]
  np.testing.assert_array_equal(
    module.apply(variables, ROWS, LABELS), losses.margin(ROWS, LABELS)
  )


@pytest.mark.usefixtures("unchecked")
def test_examples_must_be_given_where_they_have_boundaries():
  module = models.Margin(num_examples=9)
  with pytest.raises(ValueError, match="which of the 9 training examples"):
    module.init(jax.random.key(0), ROWS, LABELS)
  with pytest.raises(TypeError, match="examples must be integers, got dtype float32"):
    module.init(jax.random.key(0), ROWS, LABELS, examples=ROWS[:, 0])

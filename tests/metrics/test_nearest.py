"""References that `nearest` leaves out; `test_exact_order.py` tests their order."""

import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import metrics


def test_without_exclusion_the_nearest_is_itself_and_minus_one_excludes_nothing():
  x = np.arange(12, dtype=np.float32).reshape(6, 2)
  found = metrics.nearest(x, x, k=1, block_size=4)
  np.testing.assert_array_equal(found[:, 0], np.arange(6))
  found = metrics.nearest(x, x, k=1, exclude=np.array([-1, 1, -1, 3, -1, 5]))
  np.testing.assert_array_equal(found[:, 0], [0, 0, 2, 2, 4, 4])


@pytest.mark.parametrize("index", [-2, 3])
def test_what_is_excluded_is_a_reference(index):
  x = jnp.eye(3)
  with pytest.raises(ValueError, match=rf"exclude must be in \[-1, 3\), got {index}"):
    metrics.nearest(x, x, k=1, exclude=jnp.array([0, index, -1]))
  found = metrics.nearest(x, x, k=1, exclude=jnp.array([0, -1, -1]))
  np.testing.assert_array_equal(found, [[1], [1], [2]])

"""A mask that keeps nothing gives the same in a direct call as in a jitted one."""

import jax
import numpy as np
import pytest

from tests import wrong_uses
from tests.test_wrong_uses import PARAMETERS, call_of

# Functions of the host, whose masks cannot be traced.
ON_THE_HOST = {"metrics.retrieval", "models.replace_prototypes"}
MASKED = [
  (name, parameter)
  for name in sorted({*PARAMETERS} - ON_THE_HOST)
  for parameter in PARAMETERS[name]
  if "where" in parameter
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "parameter"), MASKED)
def test_nothing_is_kept(name, parameter, unchecked, tmp_path):
  function, call = call_of(name, tmp_path)
  others = (x for name, x in call.arguments.items() if name != parameter)
  arrays = [x for x in others if wrong_uses.is_array(x)]
  shapes = dict.fromkeys(
    x.shape[i:j] for i in (0, 1) for j in (1, 2, 3) for x in arrays
  )

  def run(where):
    return wrong_uses.called(function, call, {parameter: where})

  for shape in shapes:
    mask = np.zeros(shape, bool)
    try:
      expected = jax.jit(run)(mask)
    except ValueError:
      continue
    for x, y in zip(*map(jax.tree.leaves, (run(mask), expected)), strict=True):
      np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    return
  pytest.fail(f"no mask fits, of {list(shapes)}")

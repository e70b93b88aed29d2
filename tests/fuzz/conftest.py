import jaxtyping
import pytest


@pytest.fixture(scope="package", autouse=True)
def _types_unchecked():
  """What readers are given may be of any type here, and is checked by them alone."""
  jaxtyping.config.update("jaxtyping_disable", True)
  yield
  jaxtyping.config.update("jaxtyping_disable", False)

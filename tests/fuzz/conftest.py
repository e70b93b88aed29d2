import jaxtyping
import pytest


@pytest.fixture(scope="package", autouse=True)
def _types_unchecked():
  """Readers get values of any type here, and check them alone."""
  jaxtyping.config.update("jaxtyping_disable", True)
  yield
  jaxtyping.config.update("jaxtyping_disable", False)

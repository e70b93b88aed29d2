"""The benchmark runs at its smallest size, and everybody's results agree."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

from benchmarks import gsp
from experiments import results_page


def rows_of(name, folder, *options):
  """Rows that a benchmark writes."""
  file = folder / f"{name}.json"
  command = [sys.executable, "-m", f"benchmarks.{name}", *options, "--json", str(file)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  return json.loads(file.read_text())["rows"]


@pytest.mark.peer  # ott-jax
def test_smoke_runs_and_results_agree(tmp_path):
  pytest.importorskip("ott")
  rows = rows_of("gsp", tmp_path, "--smoke")
  assert len(rows) == 10
  for row in rows:
    assert row["difference"]["ours"] == 0
  alone = [row for row in rows if row["case"].endswith("without gradients")]
  assert len(alone) == 3
  for row in alone:
    assert row["difference"]["ott-jax"] < 2e-2
  steps = rows[-1]
  memory = [steps["temporary_kib"][f"unrolled, k = {k}"] for k in gsp.STEP_SWEEP]
  assert memory == sorted(memory)
  found = {name: value for name, _, value in results_page.cost_claims(rows)}
  assert found["cost-unrolled"] > 0
  assert steps["change of a weight from k = 25 to 100"]["b = 0.5"] < 1e-6


def test_corrected_proposition_is_the_gradient_of_the_converged_plan(x64):
  rng = np.random.default_rng(0)
  costs, cotangent = rng.uniform(0.2, 1.5, (2, 4, 6)), rng.normal(size=(2, 4, 6))

  @jax.jit
  def total(costs):
    return (gsp.closed_form_plan(costs, 5.0, 400) * cotangent).sum()

  moves = 1e-6 * np.eye(costs.size).reshape(-1, *costs.shape)
  slopes = [(total(costs + x) - total(costs - x)) / 2e-6 for x in moves]
  gradient = np.ravel(jax.grad(total)(costs))
  np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-8)

"""The committed results: claims follow from their rows, verdicts from their values."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.spatial

from experiments.frame import results, study
from tests.experiments import entries

FILES = sorted((pathlib.Path(__file__).parents[2] / "docs/results").glob("*.json"))
CLOSE = 1e-9
RECOMPUTED = 518
"""Claims of all files whose values are a row, or a difference of two rows, plus a
constant; the others are ratios, products or the least of several differences."""
# Claims about figures that results do not list.
OF_UNLISTED = """
F4-ranks F5 K11-AHD@5 K11-HP@5 K11-top-5 S3-correlation X2-regions X3-inside-l2
X3-inside-linf X3-unique-l2 X3-unique-linf X11-exact X12-features Z3-chance Z4-drift Z5
Z8 ccp-covering-classes ccp-covering-images ccp-greedy-covers ccp-lambda-drift
ccp-map-rises ccp-problem-length-least ccp-problem-length-unequal mu-sweep-average-c2
mu-sweep-average-pnca toy-lp toy-smooth
"""


def content(path: pathlib.Path) -> dict:
  return json.loads(path.read_text())


def array(values: list[float | None]) -> np.ndarray:
  return np.array([np.nan if x is None else x for x in values], float)


def is_constant(numbers: np.ndarray) -> np.ndarray:
  """Whether each row holds one number; with a single seed, one of three decimals."""
  if numbers.shape[-1] == 1:
    return abs(numbers - numbers.round(3))[..., 0] < CLOSE
  return np.ptp(numbers, axis=-1) < CLOSE


def is_recomputed(values: np.ndarray, rows: np.ndarray) -> bool:
  """Whether values are a row, or a difference of two, plus a constant."""
  if is_constant(values - rows).any() or is_constant(values + rows).any():
    return True
  rest = values - rows
  if len(values) == 1:
    return bool(is_constant(rest[:, None] + rows).any())
  # Without its mean, what is left of the values is minus another row.
  others = scipy.spatial.KDTree(rows - rows.mean(1, keepdims=True))
  gaps, _ = others.query(rest.mean(1, keepdims=True) - rest)
  return bool((gaps < CLOSE).any())


def recomputed(result: dict) -> Iterator[str]:
  rows = [array(row["values"]) for row in result["rows"]]
  for claim in result["claims"]:
    values = array(claim["values"])
    alike = [row for row in rows if len(row) == len(values)]
    if alike and np.isfinite(values).all() and is_recomputed(values, np.stack(alike)):
      yield claim["id"]


def test_claims_are_differences_of_rows():
  assert sum(len(list(recomputed(content(path)))) for path in FILES) >= RECOMPUTED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_verdicts_follow_from_the_values(path):
  result = content(path)
  for entry in result["rows"]:
    values = array(entry["values"])
    assert np.mean(values) == pytest.approx(array([entry["mean"]])[0], nan_ok=True)
  for entry in result["claims"]:
    again = results.claim(
      entry["id"], "", array(entry["values"]), paper="", every_seed=True
    )
    for name in ("value", "interval"):
      expected = array(np.atleast_1d(entry[name]).tolist())
      numbers = array(np.atleast_1d(again[name]).tolist())
      assert numbers == pytest.approx(expected, abs=1e-12, nan_ok=True), entry["id"]
    usual = results.claim(entry["id"], "", array(entry["values"]), paper="")
    # Nothing in the file says which claims are stated for every seed.
    assert [entry[name] for name in ("verdict", "seeds to decide")] in [
      [made["verdict"], made["seeds to decide"]] for made in (again, usual)
    ], entry["id"]


def config_of(entry, result: dict):
  """The settings that the results were made with."""
  config = entry.PRESETS[result["preset"]]
  changes = {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in result["settings"].items()
    if hasattr(config, name)
  }
  return dataclasses.replace(config, **changes)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_declared_claims_of_committed_rows_are_the_committed_ones(path):
  result = content(path)
  entry = entries.module(result["experiment"])
  committed = {claim["id"]: claim for claim in result["claims"]}
  assert len(committed) == len(result["claims"])
  table = study.Table.of_rows(result["rows"])
  claims = entry.STUDY.claimed(table, config_of(entry, result))
  assert committed.keys() - {claim["id"] for claim in claims} <= {*OF_UNLISTED.split()}
  for claim in results.standard(claims):
    expected = committed[claim["id"]]
    assert claim["values"] == pytest.approx(expected["values"], abs=2e-6)  # float32
    for name in ("statement", "paper", "verdict"):
      assert claim[name] == expected[name]


def test_every_declared_claim_is_in_committed_results():
  declared, committed = set(), set()
  for result in map(content, FILES):
    entry = entries.module(result["experiment"])
    committed |= {claim["id"] for claim in result["claims"]}
    claims = entry.STUDY.claims
    if callable(claims):
      claims = claims(config_of(entry, result), study.Table.of_rows(result["rows"]))
    declared |= {claim.id for claim in claims}
  assert declared <= committed

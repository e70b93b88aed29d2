"""The Voronoi adversary on images: figures computed by other means, and claims."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import voronoi
from experiments.frame.study import Table
from experiments.robustness import cells, curves, plane
from experiments.robustness import images as voronoi_sets
from tests.experiments import entries

CPU, SMOKE = voronoi.PRESETS["cpu"], voronoi.PRESETS["smoke"]


def test_the_smoke_preset_attacks_and_draws(smoke):
  verdicts = {claim["id"]: claim["verdict"] for claim in smoke.content["claims"]}
  assert verdicts.keys() == {
    "X2-vaa", "X2-best", "X2-saa", "X2-ties", "X2-best-saa", "X2-regions", "X1-l2",
    "X1-linf", "X3-vaa-above-saa-l2", "X3-observation-1-l2", "X3-inside-l2",
    "X3-global-l2",
  }  # fmt: skip
  for exact in verdicts.keys() - {"X1-l2", "X1-linf"}:
    assert verdicts[exact] == "reproduced", exact
  figures = smoke.figures
  # Beyond a budget all digits meet; the linear classifier keeps some of its cells.
  assert figures["digits, ridge, SAA, l2", "at 1.5"] == 0
  assert figures["digits, odd or even", "best SAA of all at 1.5, l2"] >= 0.5
  saa = [figures["digits, 1-NN, SAA exactly, l2", f"at {x:g}"] for x in (0.6, 1, 1.5)]
  assert 1 >= saa[0] > saa[1] > saa[2]


@pytest.mark.slow
@pytest.mark.data
def test_the_full_preset_on_a_stand_in(tfds_dir, tmp_path, monkeypatch):
  """One percent of CIFAR-10, in two batches: its shape, steps and measures."""
  monkeypatch.setitem(voronoi_sets.BUDGETS["cifar10"], "l2", (1.0,))
  config = dataclasses.replace(
    voronoi.PRESETS["full"], percent=1, norms=("l2",), classifiers=("1-NN",), steps=1,
    neighbours=4, batch=28,
  )  # fmt: skip
  result = voronoi.STUDY.run(config, tmp_path, "full")
  verdicts = {claim["id"]: claim["verdict"] for claim in result["claims"]}
  exact = {f"X3-{name}-l2" for name in ("inside", "theorem-1", "unique", "sure")}
  assert set(verdicts) == {"X1-cifar10-some", "X1-cifar10-half", *exact}
  assert {verdicts[name] for name in exact} == {"reproduced"}
  figures = {(row["name"], row["metric"]): row["mean"] for row in result["rows"]}
  images = voronoi_sets.prepared("cifar10", "train[:1%]")
  assert figures["cifar10", "sites, each place once"] == len(images.y) > config.batch
  x, y = map(np.asarray, images.flat())
  apart = np.linalg.norm(x[:, None] - x[None], axis=2) + 1e9 * np.eye(len(x))
  other = np.where(y[:, None] == y, np.inf, apart)
  for name, value in (
    ("least distance of two", apart.min()),
    ("least distance of two classes", other.min()),
    ("distance to another class", other.min(1).mean()),
  ):
    assert figures["cifar10, l2", name] == pytest.approx(value, rel=1e-5), name
  assert (tmp_path / "curves-l2.png").stat().st_size > 0


def test_figures_of_the_digits():
  """Each was computed once in NumPy from the equations."""
  train, test = voronoi_sets.load_digits(1297, 500)
  table = entries.filled(curves.add_natural, "digits", train, test)
  for which, share in (("sites", 0.952), ("test images", 0.874)):
    found = table.values(f"accuracy of the {which}", "digits, ridge")
    assert found == pytest.approx(share, abs=1e-3)
  for norm, nearest, other in (
    ("l2", 0.47186, 1.21995), ("linf", 0.1875, 0.4375), ("l1", 1.6875, 4.9375),
  ):  # fmt: skip
    curves.add_distances(table, "digits", train, norm)
    for measure, value in (("two", nearest), ("two classes", other)):
      found = table.values(f"least distance of {measure}", f"digits, {norm}")
      assert found == pytest.approx(value, abs=1e-4)
  cells.add_best_binary(table, train)
  for name, budgets, values in (
    ("digits, odd or even", (0.7, 0.8, 1, 1.5), (0.9969, 0.9769, 0.8296, 0.5042)),
    ("digits, 3 or 8", (0.8, 1, 1.5), (0.9769, 0.8692, 0.5077)),
  ):
    found = [table.values(f"best SAA of all at {x:g}, l2", name) for x in budgets]
    np.testing.assert_allclose(np.ravel(found), values, rtol=0, atol=1e-4)


@pytest.mark.parametrize("norms", [("l1",), ()])
def test_the_toy_in_any_norms(norms, monkeypatch):
  monkeypatch.setattr(plane, "nearest_neighbour_survives", lambda key, norm: np.ones(3))
  table = entries.filled(plane.add, jax.random.key(0), norms)
  config = dataclasses.replace(CPU, toy_norms=norms, shifted=(), norms=())
  claims = voronoi.STUDY.claimed(table, config)
  held = {claim["id"] for claim in claims if claim["verdict"] == "reproduced"}
  assert held == {claim["id"] for claim in claims}
  assert held == ({"X2-vaa", "X2-best"} if norms else set())
  assert len(table.rows()) == 12 * len(norms)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_wrong_label_loses_its_own_site(lost):
  table = Table()
  table.add("digits, l2", curves.FLIPPED, (lost - 1) / 20)
  (claim,) = voronoi.STUDY.claimed(table, CPU)
  assert claim["id"] == "X3-unique-l2"
  assert (claim["value"] > 0) == (lost == 1)


def test_shifts():
  every = map(jnp.concatenate, zip(*voronoi_sets.load(CPU), strict=True))
  table = entries.filled(cells.add_shifts, "digits", voronoi_sets.Points(*every))
  expected = [3.1565, 1.8439, 1.000, 0.9353, 0.7003, 0.995]
  np.testing.assert_allclose([row["mean"] for row in table.rows()], expected, atol=1e-3)
  verdicts = {x["id"]: x["verdict"] for x in voronoi.STUDY.claimed(table, CPU)}
  assert verdicts == {"X1-l2": "reproduced", "X1-linf": "reproduced"}


def test_where_photographs_are_missing(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  config = dataclasses.replace(SMOKE, shifted=("cifar10",), toy_norms=())
  table = entries.filled(voronoi.add_digits, config, *voronoi_sets.load(config))
  assert not any("cifar10" in row["name"] for row in table.rows())
  assert "without cifar10: " in capsys.readouterr().err

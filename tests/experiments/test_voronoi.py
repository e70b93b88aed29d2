"""The Voronoi adversary on images: figures computed by other means, and claims."""

import dataclasses

import jax
import numpy as np
import pytest
import tqdm

from experiments import voronoi
from experiments.frame import digits
from experiments.frame.digits import Points
from experiments.robustness import combined, curves, linear, plane, statements, suite
from experiments.robustness import images as voronoi_sets
from experiments.robustness import norms as voronoi_norms
from spherejax import metrics

CPU, SMOKE = voronoi.PRESETS["cpu"], voronoi.PRESETS["smoke"]


def test_the_smoke_preset_attacks_and_draws(tmp_path, monkeypatch):
  result = voronoi.run(SMOKE, tmp_path, "smoke")
  verdicts = {claim["id"]: claim["verdict"] for claim in result["claims"]}
  for exact in (
    "X2-vaa", "X2-least", "X2-best", "X2-saa", "X2-ties", "X2-best-saa", "X2-tied",
    "X2-constant", "X2-linear", "X2-regions", "X3-vaa-above-saa-l2",
    "X3-closed-form-l2", "X3-pgd-20-l2", "X3-inside-l2", "X3-global-l2",
    "X5-accuracy", "X5-bound", "X5-exclusive", "X5-toy",
    "X5-gaussian", "X13-sound", "X13-limit", "X13-border",
  ):  # fmt: skip
    assert verdicts[exact] == "reproduced", exact
  figures = {(row["name"], row["metric"]): row["mean"] for row in result["rows"]}
  # Beyond a budget all digits meet; the linear classifier keeps some of its cells.
  assert figures["digits, ridge, SAA, l2", "at 1.5"] == 0
  assert figures["digits, odd or even", "best SAA of all at 1.5, l2"] >= 0.5
  for name in result["pictures"]:
    assert (tmp_path / name).stat().st_size > 0
  saa = [figures["digits, 1-NN, SAA exactly, l2", f"at {x:g}"] for x in (0.6, 1, 1.5)]
  assert 1 >= saa[0] > saa[1] > saa[2]
  # The same command again takes the attacks from what the first one kept.
  monkeypatch.setattr(curves, "_mistakes", None)
  monkeypatch.setattr(curves, "_adversaries", lambda task, own: None)
  sites = voronoi_sets.load(SMOKE)[0].sites()
  with tqdm.tqdm(disable=True) as progress:
    remember = voronoi_norms.remembering(SMOKE, tmp_path / "kept", progress)
    task = voronoi_norms.task_of(SMOKE, sites, "l2")
    again = curves.curves(task, SMOKE.classifiers, remember)
  for measure, values in again.accuracy.items():
    for budget, value in zip((0, *task.budgets), values, strict=False):
      assert figures[f"digits, {measure}, l2", f"at {budget:g}"] == value


@pytest.mark.slow
@pytest.mark.data
def test_the_full_preset_on_a_stand_in(tfds_dir, tmp_path, monkeypatch):
  """One percent of CIFAR-10, in two batches: its shape, steps and measures."""
  monkeypatch.setitem(voronoi_sets.BUDGETS["cifar10"], "l2", (1.0, np.inf))
  config = dataclasses.replace(
    voronoi.PRESETS["full"],
    percent=1,
    norms=("l2",),
    classifiers=("1-NN",),
    steps=1,
    neighbours=4,
    batch=28,
  )
  result = voronoi.run(config, tmp_path, "full")
  verdicts = {claim["id"]: claim["verdict"] for claim in result["claims"]}
  exact = {f"X3-{name}-l2" for name in ("inside", "theorem-1", "unique", "sure")}
  assert set(verdicts) == {"X1-cifar10-some", "X1-cifar10-half", *exact}
  assert {verdicts[name] for name in exact} == {"reproduced"}
  figures = {(row["name"], row["metric"]): row["mean"] for row in result["rows"]}
  images = voronoi_sets.prepared("cifar10", "train[:1%]")
  assert figures["cifar10", "sites, each place once"] == len(images.y) > config.batch
  x = np.asarray(images.points().x)
  apart = np.linalg.norm(x[:, None] - x[None], axis=2) + 1e9 * np.eye(len(x))
  other = np.where(images.y[:, None] == images.y, np.inf, apart)
  for name, value in (
    ("least distance of two", apart.min()),
    ("least distance of two classes", other.min()),
    ("distance to another class", other.min(1).mean()),
  ):
    assert figures["cifar10, l2", name] == pytest.approx(value, rel=1e-5), name
  assert (tmp_path / "curves-l2.png").stat().st_size > 0


@pytest.mark.slow
def test_attacks_agree_with_closed_forms():
  train, test = digits.load(200, 100)
  test = jax.tree.map(lambda x: x[:12], test)
  key = jax.random.key(0)
  parts = suite.against_closed_forms([key], train, test, 25, ["linf"])
  verdicts = {claim["id"]: claim["verdict"] for _, claims in parts for claim in claims}
  assert len(verdicts) == 14
  # The nearest neighbour's least moves are not found of every image.
  for name in ("fab", "deepfool", "carlini-wagner"):
    del verdicts[f"X4-1nn-{name}"]
  assert set(verdicts.values()) == {"reproduced"}, verdicts
  shares = {
    row["name"]: row["mean"]
    for rows, _ in parts
    for row in rows
    if row["metric"].startswith("share at most 1 %")
  }
  assert shares.keys() == {f"1-NN, {x}" for x in ("FAB", "DeepFool", "Carlini-Wagner")}
  assert shares["1-NN, FAB"] > 0.8


def test_figures_of_the_digits():
  """Each was computed once in NumPy from the equations."""
  train, test = digits.load(1297, 500)
  weights, offset = linear.ridge(train.x, train.y)
  for points, share in ((train, 0.952), (test, 0.874)):
    assert abs(linear.accuracy(weights, offset, points) - share) < 1e-3
  for norm, budgets, expected in (
    ("l2", (0.1, 0.2, 0.3, 0.5), (0.911, 0.815, 0.637, 0.244)),
    ("linf", (0.02, 0.05, 0.1), (0.898, 0.635, 0.095)),
  ):
    moves = linear.least_linear_moves(weights, offset, train.x, train.y, norm)
    found = [np.mean(moves > budget) for budget in budgets]
    np.testing.assert_allclose(found, expected, atol=1e-3)
  for norm, nearest, other in (
    ("l2", 0.47186, 1.21995), ("linf", 0.1875, 0.4375), ("l1", 1.6875, 4.9375),
  ):  # fmt: skip
    found = curves.apart("digits", train, norm)[1]
    np.testing.assert_allclose(list(found.values()), [nearest, other], atol=1e-4)
  best = statements.best_binary(train)
  for name, values in (
    ("digits, odd or even", (0.9969, 0.9769, 0.8296, 0.5042)),
    ("digits, 3 or 8", (None, 0.9769, 0.8692, 0.5077)),
  ):
    for budget, value in zip((0.7, 0.8, 1, 1.5), values, strict=True):
      if value is not None:
        measure = f"best SAA of all at {budget:g}, l2"
        assert abs(best[name, measure] - value) < 1e-4, (name, budget)


def test_the_toy_in_any_norms(monkeypatch):
  monkeypatch.setattr(plane, "nearest_neighbour_survives", lambda key, norm: np.ones(3))
  key = jax.random.key(0)
  for norms, names in (
    (("l1",), {"X2-vaa", "X2-least", "X2-best", "X2-tied"}),
    ((), set()),
  ):
    rows, claims = plane.rows_and_claims(key, norms)
    held = {claim["id"] for claim in claims if claim["verdict"] == "reproduced"}
    assert held == names == {claim["id"] for claim in claims}
    assert not norms or len(rows) == 13
  # (-2, 1) is 3 from (0, 0) in l1, the farthest of all.
  low, high = plane.least_distances("linf")
  np.testing.assert_allclose(low, [0.5, 1, *[0.5] * 6])
  np.testing.assert_allclose(high, low)
  assert plane.tied("linf") == pytest.approx(0.30, abs=5e-3)


def test_what_curves_may_miss():
  """The attack of the linear classifier one image, 1-NN a site of a wrong label."""
  x, y = np.eye(20, 3, dtype=np.float32), np.arange(20) % 2
  x[3:, 0] = np.arange(17) / 20
  separation = metrics.Separation(np.ones(20), np.ones(20))
  task = curves.Task(Points(x, y), "l2", (0.1, 0.2), 1, 1, 20, 0)
  whole = dict.fromkeys(("1-NN, VAA", "1-NN, SAA"), np.ones(3))
  closed = np.array([0.5, 0.25])
  miss = np.array([0, 1 / 20])
  for missed in (1, 2):
    curve = curves.Curves(whole, 1.0, 1 - missed / 20)
    for attack in ("FGSM", "BIM"):
      reached = {"FGSM": closed, "BIM": closed, "PGD-20": closed}
      reached |= {attack: closed + missed * miss}
      made = curves.linear_claims(closed, reached, len(y))
      assert (made["closed-form"][1] > 0) == (missed == 1)
      assert made["pgd-20"][1] > 0
    made = curves.claims(task, curve, separation)
    assert (made["unique"][1] > 0) == (missed == 1)


def test_certificates_need_many_votes():
  """At 0.3 the bound is by 3.09 sqrt(p q / n) / (0.6 phi(0.6)) too short: 0.068."""
  assert CPU.votes == 200_000
  rows, claims = combined.smoothing([jax.random.key(0)], 10_000)
  short = 1 - rows[0]["mean"]
  assert 0.03 < short < 0.068
  values = {claim["id"]: claim["value"] for claim in claims}
  assert values["X13-tight"] == pytest.approx(0.02 - short)


def test_shifts_and_trade_offs():
  every = map(np.concatenate, zip(*voronoi_sets.load(CPU), strict=True))
  rows, claims = statements.shifts("digits", *every)
  assert {claim["verdict"] for claim in claims} == {"reproduced"}
  found = [row["mean"] for row in rows]
  expected = [3.1565, 1.8439, 1.000, 0.9353, 0.7003, 0.995]
  np.testing.assert_allclose(found, expected, atol=1e-3)
  rows, claims = statements.trade_offs([0, 1], 100_000)
  assert {claim["verdict"] for claim in claims} == {"reproduced"}
  assert {claim["n"] for claim in claims} == {2}
  found = {(row["name"], row["metric"]): row["mean"] for row in rows}
  for name, linf, right, robust in (
    ("25 weak and strong, a = 10", 0.8, 0.9, 0.4),
    ("25 weak and strong, a = 20", 0.8, 0.8046, 0.7818),
    ("100 weak and strong, a = 0", 0.6, 0.99865, 0.00135),
    ("100 weak and strong, a = inf", 0.6, 0.95, 0.95),
  ):
    for measure, value in (
      ("accuracy", right), (f"accuracy under linf {linf:g}", robust),
    ):  # fmt: skip
      assert found[name, measure] == pytest.approx(value, abs=1e-4)
      assert found[name, f"{measure}, sampled"] == pytest.approx(value, abs=5e-3)


def test_where_photographs_are_missing(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(SystemExit, match="this preset reads the image set cifar10"):
    voronoi.run(voronoi.PRESETS["full"], tmp_path)
  assert voronoi.shifted(("cifar10",)) == []
  assert "without cifar10: " in capsys.readouterr().err

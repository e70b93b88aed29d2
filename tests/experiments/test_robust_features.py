"""Features under adversarial training: figures computed by other means, and claims."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments import robust_features
from experiments.frame import training as frame_training
from experiments.frame.study import Table
from experiments.robustness import claims as inputs
from experiments.robustness import defences, networks, photographs, proposals, structure
from experiments.robustness import features as residuals
from experiments.robustness import images as voronoi_sets
from spherejax import data, models
from tests.experiments import entries

SMOKE = robust_features.PRESETS["smoke"]
CONFIG = dataclasses.replace(
  robust_features.PRESETS["digits"], l2=(0.15, 0.3, 0.6, 1.0), linf=(0.05, 0.1)
)


@pytest.fixture(scope="module")
def digits():
  """Training and test images, and their figures under other weights."""
  train, test = voronoi_sets.load_digits(1297, 500)
  return train, test, residuals.reweighted(train, test, classes=10)


def test_the_smoke_preset_trains_measures_and_draws(tmp_path, digits, monkeypatch):
  monkeypatch.setattr(residuals, "reweighted", lambda *_, classes: digits[2])
  result = robust_features.STUDY.run(SMOKE, tmp_path, "smoke")
  figures = {(row["name"], row["metric"]): row["mean"] for row in result["rows"]}
  for name in ("standard", "l2 0.3", "l2 1"):
    assert 0.1 < figures[name, "accuracy"] <= 1
    assert figures[name, "accuracy under attack"] < figures[name, "accuracy"] + 1e-6
    assert -1 < figures[name, "MC, l2"] < 1
  # The same network: a budget of 0 takes nothing, larger ones take more.
  under = [figures["standard", f"accuracy under {x}"] for x in ("standard", "l2 1")]
  assert abs(figures["standard", "accuracy"] - under[0]) < 1e-6
  assert under[0] > under[1]
  assert {claim["id"] for claim in result["claims"]} >= {"X7", "X8-phi-l2-1", "X12-phi"}
  assert {row["paper"] for row in result["rows"] if row["name"] == "images"} == {None}
  for name in result["pictures"]:
    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.slow
def test_attacked_images_in_the_cap_of_their_proxy_are_right(tmp_path):
  config = dataclasses.replace(SMOKE, proposals=(proposals.CAP,))
  points = voronoi_sets.load_digits(config.train_images, config.test_images)
  table = Table()
  proposals.add_loss(proposals.CAP, table, config, *points, tmp_path)
  figures = {row["metric"]: row["mean"] for row in table.rows()}
  assert figures["in the cap, but wrong or beyond"] == 0
  assert figures["accuracy under attack"] <= figures["accuracy"] + 1e-6
  assert robust_features.STUDY.claimed(table, config) == []  # they compare losses


def test_figures_of_the_digits(digits, monkeypatch):
  """Each was computed once in NumPy from the equations."""
  train, test, reweighted = digits
  found = structure.of_inputs(train, test, classes=10, levels=16)
  expected = {
    "phi, l2": 1.6742, "phi, linf": 1.5323, "R2": 0.43726, "1-NN, l2": 0.960,
    "1-NN, linf": 0.946, "nearest mean, l2": 0.870, "nearest mean, linf": 0.814,
  }  # fmt: skip
  for name, value in expected.items():
    assert abs(found[name] - value) < 1e-3, name
  found = {name: {**figures} for name, figures in reweighted.items()}

  def column(name):
    return [figures[name] for figures in found.values()]

  assert len(found) == 7
  for name, values in {
    "phi": [2.6400, 1.6742, 0.8059, 0.2473, 0.0838, 0.2930, 2.9313],
    "phi, normalised": [2.4980, 1.6834, 0.8629, 0.3209, 0.1830],
    "rho": [1.2826, 0.6661, 0.2048, 0, 0.0773],
  }.items():
    np.testing.assert_allclose(column(name)[: len(values)], values, atol=1e-3)
  near = [0.956, 0.96, 0.958, 0.914, 0.818]
  np.testing.assert_allclose(column("1-NN")[:5], near, 1e-3)
  assert column("d_DoV")[:5] == [17, 21, 28, 0, 16]
  # It is these figures that the claims are about.
  monkeypatch.setattr(residuals, "reweighted", lambda *_, classes: found)

  def verdicts():
    table = entries.filled(residuals.add_pixels, train, test)
    claims = robust_features.STUDY.claimed(table, CONFIG)
    return {claim["id"]: claim["verdict"] == "reproduced" for claim in claims}

  assert [*verdicts().values()] == [True] * 5
  found["first 9 times 5"]["phi"] = 1.6
  assert not verdicts()["X12-leading"]


def test_known_classes_have_the_discriminality_that_is_known():
  points = proposals.gaussian(32, jax.random.key(0), {"radius": 2.0})
  x, y, unseen = map(np.asarray, points)
  # Others about the same means, within the noise of both averages.
  gap = np.stack([x[y == c].mean(0) - unseen[y == c].mean(0) for c in range(5)])
  assert np.abs(x - unseen).min() > 0
  assert abs((gap**2).sum(1).mean() - 2 / 200) < 0.002
  means = np.stack([x[y == c].mean(0) for c in range(5)])
  apart = ((means[:, None] - means[None]) ** 2).sum(-1)[~np.eye(5, dtype=bool)].mean()
  within = ((x - means[y]) ** 2).sum(1).mean()
  assert abs(within - 1) < 0.05
  assert abs(apart / within - 2 * 2.0**2) < 0.4


@pytest.mark.parametrize(
  ("budgets", "expected"),
  [
    ({"l2": (0.1, 0.2), "linf": (0.1,)}, "mc-l2-0.1 mc-l2-0.2 mc-linf-0.1 mc-grows"),
    ({"l2": (), "linf": (0.1,)}, "mc-linf-0.1"),
    ({"l2": (0.3,), "linf": ()},
     "mc-l2-0.3 phi-l2-0.3 r2-l2-0.3 intra-l2-0.3 tradeoff-l2-0.3 accuracy-l2-0.3"),
  ],
)  # fmt: skip
def test_claims_are_of_the_budgets_there_are(budgets, expected):
  config = dataclasses.replace(CONFIG, **budgets)
  table, names = Table(), inputs.names_of(config)
  for number, name in enumerate(names):
    for measure in ("MC, l2", "phi", "R2", "d_DoV", "D_intra", "accuracy"):
      table.add(name, measure, [number, number + 1.0])
    table.add(name, "accuracy under attack", 0.5)
    table.add("standard", f"accuracy under {name}", 0.5)
  claims = robust_features.STUDY.claimed(table, config)
  made = {claim["id"].removeprefix("X8-") for claim in claims}
  assert made - {"density", "mc-r2", "mc-density", "identity"} == {*expected.split()}


def test_neighbours_of_photographs_are_tied_where_their_pixels_are():
  """The quotients of two equal differences of pixels differ by rounding."""
  pixels = np.arange(256)
  values = pixels.astype(np.float32) / np.float32(255)
  a, b = np.meshgrid(pixels, pixels, indexing="ij")
  size, apart = a - b, values[a] - values[b]
  of_30 = size == 30
  wide, close = (np.flatnonzero(of_30)[f(apart[of_30])] for f in (np.argmax, np.argmin))
  (i, j), (k, m) = (np.unravel_index(x, (256, 256)) for x in (wide, close))
  assert values[i] - values[j] > values[k] - values[m]
  sites = np.array([[i, m], [j, k]])  # 30 from the image each, the first in j
  image = np.array([[j, m]])

  def points(rows, labels):
    x = jnp.asarray(np.asarray(rows, np.float32) / np.float32(255))
    return voronoi_sets.Points(x.reshape(-1, 1, 2, 1), jnp.asarray(labels))

  found = structure.of_inputs(
    points(sites, [0, 1]), points(image, [0]), classes=2, levels=255
  )
  assert found["1-NN, linf"] == 1  # the lowest index


@pytest.mark.parametrize(("images", "flips"), [("cifar10", 1), ("svhn_cropped", 0)])
def test_house_numbers_are_not_mirrored(images, flips, monkeypatch):
  seen = []
  monkeypatch.setattr(
    photographs.data, "random_flip", lambda key, x: seen.append(0) or x
  )
  small = photographs.Photographs(network="ResNet18", width=2)
  config = dataclasses.replace(CONFIG, images=images, photographs=small)
  network = photographs.network(small)
  variables = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((2, 32, 32, 3)))
  batch = {"image": np.zeros((2, 32, 32, 3), np.uint8), "label": np.zeros(2, np.int32)}
  jax.eval_shape(
    lambda p, s: photographs.objective(config, "l2", 0.0)(
      {"network": p}, {"network": s}, batch, key=jax.random.key(0), axis_name=None
    ).loss,
    variables["params"], variables["batch_stats"],
  )  # fmt: skip
  assert len(seen) == flips


def test_all_models_at_once_are_each_alone():
  params = jnp.arange(6.0).reshape(2, 3, 1)
  models = (params, params[..., 0])
  found = frame_training.over_models(lambda a, x: a * x[0][0] * x[1], models, 2.0)
  np.testing.assert_array_equal(found, 2 * np.arange(6.0).reshape(2, 3) ** 2)


@pytest.mark.slow
def test_training_in_the_combined_ball(tmp_path):
  config = dataclasses.replace(SMOKE, steps=60, learning_rate=1e-2)
  points = voronoi_sets.load_digits(config.train_images, config.test_images)
  table = entries.filled(defences.add_combined, config, *points, tmp_path)
  (claim,) = robust_features.STUDY.claimed(table, config)
  figures = {(row["name"], row["metric"]): row["mean"] for row in table.rows()}
  worst = []
  for name in ("combined ball", "l-infinity"):
    clean, *under = (
      figures[f"trained in the {name}", f"accuracy{attack}"]
      for attack in ("", " under l1 1", " under l2 0.5", " under linf 0.1")
    )
    assert clean > 0.3
    assert max(under) <= clean + 1e-6
    worst.append(min(under))
  assert claim["value"] == pytest.approx(worst[0] - worst[1])


@pytest.mark.slow
def test_defences_within_cells_noise_and_rotation(tmp_path):
  config = dataclasses.replace(
    SMOKE, steps=200, learning_rate=3e-3, defences=("cells of all",)
  )
  points = voronoi_sets.load_digits(config.train_images, config.test_images)
  table = entries.filled(defences.add_side_by_side, config, *points, tmp_path)
  figures = {row["metric"]: row["mean"] for row in table.rows()}
  assert figures["accuracy"] > 0.25
  under = [figures[f"under the ensemble at l2 {x}"] for x in ("0.3", "0.6")]
  assert figures["accuracy"] >= under[0] >= under[1]
  assert figures["of training images within cells"] > 0
  # They compare defences.
  assert robust_features.STUDY.claimed(table, config) == []
  table = entries.filled(defences.add_noisy, config, *points, tmp_path)
  certified = [row["mean"] for row in table.rows()]
  assert certified[:4] == sorted(certified[:4], reverse=True)
  assert certified[0] > 0.2
  table = entries.filled(residuals.add_residuals, config, *points, tmp_path)
  claims = robust_features.STUDY.claimed(table, config)
  verdicts = {claim["id"]: claim["verdict"] for claim in claims}
  assert verdicts["X11-exact"] == verdicts["X11-augmentation"] == "reproduced"
  table = entries.filled(residuals.add_features, config, *points, tmp_path)
  figures = {(row["name"], row["metric"]): row["mean"] for row in table.rows()}
  phi = [figures[f"features, standard, exponent {x}", "phi"] for x in ("-0.5", "0.5")]
  assert phi[0] > phi[1] > 0
  few = "accuracy, 5 new classes, 1 example"
  assert 0.25 < figures["features, l2 0.6, exponent 0", few] < 1


def test_equally_far_photographs_are_equally_far(monkeypatch):
  random = np.random.default_rng(0)
  pixels = random.integers(60, 130, (40, 8, 8, 3))
  features = random.normal(size=(40, 5))
  monkeypatch.setattr(photographs, "_embed", lambda *_: lambda *_: np.float32(features))
  own = voronoi_sets.Points(jnp.asarray(pixels / 255, jnp.float32), jnp.arange(40) % 4)
  state = types.SimpleNamespace(variables=dict)
  found = photographs.measure_features(CONFIG, own, state)
  rows = pixels.reshape(40, -1)
  far = np.abs(rows[:, None] - rows).max(axis=2)
  learned = np.linalg.norm(features[:, None] - features, axis=2)
  ranks = [stats.spearmanr(*pair)[0] for pair in zip(far, learned, strict=True)]
  expected = np.tanh(np.arctanh(ranks).mean())
  np.testing.assert_allclose(found["MC, linf"], expected, atol=2e-6)


@pytest.mark.slow
@pytest.mark.data
def test_photographs_make_two_steps_on_a_stand_in(tfds_dir, tmp_path, monkeypatch):
  def shallow(widths, **options):
    """The first stage with one of its blocks."""
    return models.ResNet((1,), widths[:1], (1,), **options)

  monkeypatch.setitem(photographs.NETWORKS, "ResNet18", shallow)
  small = {"network": "ResNet18", "width": 2, "epochs": 1, "batch": 24, "percent": 1}
  config = dataclasses.replace(
    robust_features.PRESETS["cifar10"], photographs=photographs.Photographs(**small),
    attack_steps=1, judge_steps=2, l2=(0.25,), linf=(),
  )  # fmt: skip
  result = robust_features.STUDY.run(config, tmp_path, "cifar10")
  figures = {(row["name"], row["metric"]): row for row in result["rows"]}
  for name in ("standard", "l2 0.25"):
    assert figures[name, "R2"]["paper"] in (0.8709, 0.6993)
    under = figures[name, "accuracy under attack"]["mean"]
    assert under <= figures[name, "accuracy"]["mean"] + 1e-6
  assert figures["images", "R2"]["paper"] == 0.0550


@pytest.mark.parametrize(
  ("changed", "by", "verdict"),
  [
    ("R2", 0.0019, "reproduced"), ("R2", -0.0021, "contradicted"),
    ("1-NN, linf", -0.0049, "reproduced"), ("1-NN, linf", 0.0051, "contradicted"),
  ],
)  # fmt: skip
def test_whole_sets_are_compared_with_the_table(changed, by, verdict, monkeypatch):
  config = robust_features.PRESETS["svhn"]
  column = structure.printed_inputs("svhn_cropped")
  found = column | {changed: column[changed] + by}
  monkeypatch.setattr(structure, "of_inputs", lambda *_, **__: found)
  whole, part = (
    voronoi_sets.Points(jnp.zeros(n), jnp.zeros(n, int)) for n in (73_257, 50_000)
  )
  names = []
  for points in (whole, part):
    table = entries.filled(inputs.add_inputs, "images", "svhn_cropped", points, points)
    claims = robust_features.STUDY.claimed(table, config)
    names.append([claim["id"] for claim in claims])
    if points is whole:
      assert claims[1]["verdict"] == verdict
  assert names == [["X7", "X7-table"], ["X7"]]


def test_photographs_beside_the_digits(monkeypatch, capsys):
  """Three images of two classes by hand; a missing image set is named."""
  x = np.array([[0.6, 0.6], [0.8, 0.6], [1.0, 1.0]], np.float32).reshape(3, 1, 2, 1)

  def prepared(name, split):
    if name == "svhn_cropped":
      raise FileNotFoundError("no folder")
    y = np.array([0, 0, 1] if split == "train" else [0, 1, 1])
    return voronoi_sets.Points(x, y)

  monkeypatch.setattr(voronoi_sets, "prepared", prepared)
  table = entries.filled(inputs.add_beside, ("cifar10", "svhn_cropped"))
  claims = robust_features.STUDY.claimed(table, CONFIG)
  assert "without svhn_cropped: no folder" in capsys.readouterr().err
  figures = {row["metric"]: row for row in table.rows()}
  assert figures["1-NN, l2"]["name"] == "cifar10, 3 images"
  assert figures["1-NN, l2"]["paper"] == 0.3546
  assert figures["1-NN, l2"]["mean"] == pytest.approx(2 / 3)
  assert claims[0]["value"] == pytest.approx(0.4 - 2 / 3)  # the nearest mean's


def test_features_are_weighted_by_the_classes_that_were_learned(monkeypatch, tmp_path):
  """Where features are the pixels, by NumPy; episodes are of the other classes."""
  train, test = voronoi_sets.load_digits(200, 100)
  given = {}

  def untrained(defence, columns, points, tested, folder):
    given.update(columns=columns, own=points, tested=tested)
    assert defence.classes == 5
    params = jnp.zeros((2, SMOKE.seeds))
    return types.SimpleNamespace(state=types.SimpleNamespace(params=params))

  monkeypatch.setattr(networks.Defence, "features", lambda self, params, x: x)
  monkeypatch.setattr(networks, "train", untrained)
  table = entries.filled(residuals.add_features, SMOKE, train, test, tmp_path)
  figures = {(row["name"], row["metric"]): row["mean"] for row in table.rows()}
  assert given["columns"] == {"epsilon": [0.0, 0.6]}
  assert max(given["tested"].y) == max(given["own"].y) == 4

  x, y, new, labels = (np.asarray(v, np.float64) for v in (*train, *test))
  x, y, new, labels = x[y < 5], y[y < 5], new[labels >= 5], labels[labels >= 5]
  centre = x.mean(axis=0)
  _, values, axes = np.linalg.svd(x - centre)
  kept = values > 1e-6 * values[0]
  table = data.class_table(labels.astype(int) - 5, per_class=6)
  shape = {"num_ways": 5, "num_shots": 1, "num_queries": 5}
  draw = jax.jit(jax.vmap(lambda key: data.sample_episode(key, table, **shape)))
  episodes = np.asarray(draw(jax.random.split(jax.random.key(SMOKE.seed), 600)))
  for exponent in (-0.5, 0.5):
    weights = (values[kept] / values[0]) ** -exponent
    z, others = ((v - centre) @ axes[: len(values)][kept].T * weights for v in (x, new))
    means = np.stack([z[y == k].mean(axis=0) for k in range(5)])
    apart = ((means[:, None] - means) ** 2).sum(axis=-1).sum() / 20
    within = np.mean([((z[y == k] - means[k]) ** 2).sum(1).mean() for k in range(5)])
    drawn = others[episodes]
    gaps = ((drawn[:, :, 1:, None] - drawn[:, None, None, :, 0]) ** 2).sum(axis=-1)
    right = np.mean(gaps.argmin(axis=-1) == np.arange(5)[:, None])
    name = f"features, l2 0.6, exponent {exponent:g}"
    assert figures[name, "phi"] == pytest.approx(apart / within, rel=1e-4)
    few = figures[name, "accuracy, 5 new classes, 1 example"]
    assert few == pytest.approx(right, abs=2e-4)


@pytest.mark.slow
def test_rotated_digits():
  points = voronoi_sets.load_digits(100, 50)[0]
  turned, angle = residuals.rotated(points)
  assert turned.x.shape == (300, 64)
  np.testing.assert_array_equal(np.bincount(angle), [100, 100, 100])
  np.testing.assert_array_equal(turned.x[100:200], points.x)
  # Turned back they look like themselves again, up to twice the interpolation.
  back = residuals.rotated(turned._replace(x=turned.x[200:]))[0].x[:100]

  def like(x):
    return np.corrcoef(np.ravel(x), np.ravel(points.x))[0, 1]

  assert like(back) > 0.85 > like(turned.x[200:])

"""Geometry of contrastive learning: exact parts, measurements, and a short training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from experiments import (
  _collapse_claims,
  _collapse_full,
  _collapse_runs,
  _collapse_sets,
  _collapse_toy,
  _collapse_training,
  projector_collapse,
)
from experiments._collapse_claims import LARGE, MODERATE, SMALL
from experiments._collapse_runs import Trained
from experiments._collapse_training import Run, Settings
from spherejax import data, training

STRONG = projector_collapse.COLOURED[LARGE]
SMOKE = projector_collapse.PRESETS["smoke"]


def test_the_smoke_preset_stays_below_its_bound(tmp_path, monkeypatch):
  result = projector_collapse.run(SMOKE, tmp_path, "smoke")
  figures = {(row["name"], row["metric"]): row["mean"] for row in result["rows"]}
  for name in (LARGE, SMALL):
    assert figures[name, "least gap"] > -1e-5
    assert figures[name, "loss"] < figures[name, "bound"]
    assert 1 <= figures[name, "effective rank"] <= 16
  # Stronger augmentations are harder to agree on, in the first steps already.
  assert figures[LARGE, "invariance"] > figures[SMALL, "invariance"] + 0.05
  verdicts = {(c["id"], c["statement"]): c["verdict"] for c in result["claims"]}
  exact = [
    name for name in verdicts if name[0] == "S12" or "at most its bound" in name[1]
  ]
  assert len(exact) == 2
  assert all(verdicts[name] == "reproduced" for name in exact)
  for picture in result["pictures"]:
    assert (tmp_path / picture).stat().st_size > 5000
  # A second run takes what the first one kept.
  monkeypatch.setattr(_collapse_runs, "Run", None)
  again = projector_collapse.run(SMOKE, tmp_path, "smoke")
  assert again["rows"] == result["rows"]


def test_ranks_of_rotations_do_not_fall():
  for seed in range(3):
    ranks = _collapse_toy.turned(seed)
    assert ranks[0] == 0
    assert (np.diff(ranks) >= 0).all()
    assert ranks[-1] > 8


@pytest.mark.parametrize("angle", [0.0, 20.0, 90.0, 133.0, 350.0])
def test_rotations_are_those_of_scipy(angle):
  place = np.array([9, 20])
  image = np.zeros((32, 32))
  image[tuple(place)] = 1
  (found,) = _collapse_toy._rotations(place, np.array([angle]))
  expected = ndimage.rotate(image, -angle, order=1, reshape=False, prefilter=False)
  np.testing.assert_allclose(found.reshape(32, 32), expected, atol=1e-10)


def test_turned_directions_leave_the_projector():
  """A few strong directions are hardly kept, those that do not fit are."""
  keys = jax.random.split(jax.random.key(0), 2)
  kept = {
    directions: np.array(
      [
        _collapse_toy.learned(key, jnp.float32(4), directions=directions)[1]
        for key in keys
      ]
    )
    for directions in (4, 24)
  }
  assert kept[4].max() < 0.1
  assert kept[24].min() > 0.3
  weights, share = _collapse_toy.learned(
    keys[0], jnp.float32(0.5), directions=4, steps=1
  )
  assert weights.shape == (32, 16)
  assert 0.5 < share < 1.5


def test_patterns_of_a_known_projector():
  projector = _collapse_training.Projector((2, 3))
  layers = {"layer0": {"kernel": jnp.eye(2)}, "layer1": {"kernel": jnp.ones((2, 3))}}
  params = {"params": layers}
  x = jnp.array([[1.0, 1.0], [2.0, 3.0], [-1.0, 1.0], [-1.0, -1.0]])
  assert _collapse_toy.activation_patterns(projector, params, x) == 3
  linear = _collapse_training.Projector((3,))
  params = {"params": {"layer0": {"kernel": jnp.ones((2, 3))}}}
  assert _collapse_toy.activation_patterns(linear, params, x) == 1


def test_measurements_against_a_loop():
  settings = Settings(
    widths=(4, 4, 8),
    strides=(1, 2, 1),
    projector=(6,),
    measured=24,
    convolution="native",
  )
  study = _collapse_sets.digits()
  given = _collapse_runs.given(study)
  strengths = projector_collapse.GREY[LARGE]
  cell = _collapse_training.cell(strengths)
  hyper = {name: jnp.float32(x) for name, x in cell.items()}
  run = Run(settings, study.classes)
  state = jax.jit(run.init)(given, jax.random.key(1), hyper)
  found = {name: float(x) for name, x in state.start.items() if x.ndim == 0}
  images = np.float32(study.train[:24]) / 255
  variables = {"params": state.params, "batch_stats": state.stats}
  h, f = [], []
  views = data.simclr_views(jax.random.key(0), images, size=8, strengths=strengths)
  for x in np.asarray(views):
    x = (x - np.ravel(given.mean)[0]) / np.ravel(given.std)[0]
    features, outputs = run.network.apply(variables, jnp.asarray(x))
    h.append(np.asarray(features, np.float64))
    f.append(np.asarray(outputs, np.float64))
  f = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in f]
  near, both = [], np.concatenate(f)
  for i in range(24):
    similar = both @ f[0][i]
    similar[[i, i + 24]] = -np.inf
    near.append(similar.argmax())
  labels = np.concatenate([study.train_labels[:24]] * 2)
  assert found["sharing"] == pytest.approx(np.mean(labels[near] == labels[:24]))
  unit = np.concatenate([x / np.linalg.norm(x, axis=1, keepdims=True) for x in h])
  far = np.linalg.norm(unit[:24] - unit[near], axis=1)
  assert found["nearest distance"] == pytest.approx(far.mean(), rel=1e-4)
  moves = h[1] - np.concatenate(h)[near]
  kernel = np.asarray(state.params["projector"]["layer0"]["kernel"], np.float64)
  rest = moves - moves @ np.linalg.pinv(kernel.T) @ kernel.T
  unexplained = (rest**2).sum() / (moves**2).sum()
  assert found["unexplained"] == pytest.approx(unexplained, rel=1e-3)
  values = np.linalg.svd(kernel, compute_uv=False)
  shares = values / values.sum()
  rank = np.exp(-(shares * np.log(shares)).sum())
  assert found["effective rank"] == pytest.approx(rank, rel=1e-4)


def test_photographs_of_every_size_are_another_study(monkeypatch):
  images = data.Images(
    images=np.zeros((8, 4, 4, 3), np.uint8),
    labels=np.arange(8, dtype=np.int32),
    label_names=tuple("abcdefgh"),
  )
  monkeypatch.setattr(_collapse_sets, "_quarter", lambda *_: images)
  coarse = np.zeros(8, int), ("all",)
  monkeypatch.setattr(_collapse_sets._class_sets, "tree_of", lambda *_: None)
  monkeypatch.setattr(_collapse_sets, "_coarse", lambda _: coarse)
  names = [_collapse_sets.photographs(side).name for side in (32, 64, 16)]
  assert names == ["tiny_imagenet", "tiny_imagenet-64", "tiny_imagenet-16"]


def test_photographs_have_coarse_classes(tfds_dir):
  study = _collapse_sets.photographs(16)
  assert study.train.shape == (5000, 16, 16, 3)
  assert study.classes == 50
  assert len(study.coarse_names) == study.train_coarse.max() + 1 == 12
  pairs = {*zip(study.train_labels.tolist(), study.train_coarse.tolist(), strict=True)}
  assert len(pairs) == 50
  assert np.bincount(study.test_labels).tolist() == [30] * 50


def trained(**curves):
  """Three strengths, two seeds, two measurements: 1 everywhere, but as given."""
  shape = 3, 2, 2
  names = (*_collapse_claims._FIGURES,)
  whole = {name: np.ones(shape) * np.array([1.0, 2.0]) for name in names}
  whole |= {name: np.broadcast_to(x, shape) * 1.0 for name, x in curves.items()}
  return Trained(whole, {n: x[..., 0] for n, x in whole.items()}, {}, np.ones((3, 2)))


def test_claims_have_the_direction_of_the_paper():
  three = (
    np.array([1.0, 2.0, 3.0])[:, None, None] + np.array([0.0, 1e-3])[None, :, None]
  )
  names = (LARGE, MODERATE, SMALL)

  def verdicts(**curves):
    found = _collapse_claims.claims(trained(**curves), names)
    return {(c["id"], c["statement"]): c["verdict"] == "reproduced" for c in found}

  up = verdicts(**{"effective rank": three, "probe": three, "nearest distance": three})
  down = verdicts(
    **{"effective rank": -three, "probe": -three, "nearest distance": -three}
  )
  for name, expected in (("S1", True), ("S8", True), ("S2", False)):
    own = [key for key in up if key[0] == name]
    assert own
    assert all(up[key] is expected for key in own), name
    assert all(down[key] is not expected for key in own), name
  rises = np.array([0.0, 1.0])[None, None] + np.array([0, 1e-3])[None, :, None]
  told = verdicts(sharing=rises, unexplained=-rises)
  assert all(x for key, x in told.items() if key[0] in ("S4", "S6"))
  told = verdicts(sharing=-rises, unexplained=rises)
  assert not any(x for key, x in told.items() if key[0] in ("S4", "S6"))
  below = verdicts(**{"least gap": np.full((3, 2, 2), -0.1)})
  assert not next(x for key, x in below.items() if "at most its bound" in key[1])


def test_collapsed_runs_do_not_count():
  one = np.zeros((3, 2, 2))
  one[0, 0] = 1
  found = trained(invariance=-one, repulsion=one)
  assert found.collapsed.tolist() == [[True, False], [False] * 2, [False] * 2]
  made = _collapse_claims.claims(found, (LARGE, MODERATE, SMALL))
  assert {c["n"] for c in made if c["id"] == "S1"} == {1}
  found.curves["probe"] = np.broadcast_to([[0.2], [0.8]], (3, 2, 2))
  gone = {"invariance": -np.ones((3, 2, 2)), "repulsion": np.ones((3, 2, 2))}
  whole = found._replace(curves=found.curves | gone)
  rows = _collapse_claims.rows(
    found, (LARGE, MODERATE, SMALL), {"8": found, "9": whole}
  )
  figures = {(row["name"], row["metric"]): row["values"] for row in rows}
  assert figures[LARGE, "probe"] == [0.8]
  assert figures[SMALL, "probe"] == [0.2, 0.8]
  assert figures[LARGE, "collapsed runs"] == [1, 0]
  assert len(figures[LARGE, "probe, before training"]) == 2
  assert figures["large, projector 8", "probe"] == [0.8]
  assert figures["large, projector 9", "collapsed runs"] == [1, 1]
  assert ("large, projector 9", "probe") not in figures


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"strengths": ("large, crops alone",)}, r"strengths of digits .* crops alone"),
    ({"batch": 1}, "batch must be at least 2 images, got 1"),
    ({"projector": (10**12,)}, r"projector 1000000000000 needs .* GiB for 2 networks"),
    ({"probe_every": 30}, "30"),
    ({"steps": 50}, "50"),
    ({"steps": 100}, "steps must be a multiple of probe_every = 60, got 100"),
    ({"projector": (64, 32)}, r"projector must be linear.* got \(64, 32\)"),
  ],
)
def test_bad_input_is_named_before_anything_is_read(
  changes, message, tmp_path, monkeypatch
):
  monkeypatch.setattr(projector_collapse, "load", None)
  config = dataclasses.replace(SMOKE, **changes)
  with pytest.raises(ValueError, match=message):
    projector_collapse.run(config, tmp_path)


def test_one_strength_tells_what_it_can():
  found = trained()
  one = found._replace(
    curves={name: x[:1] for name, x in found.curves.items()},
    start={name: x[:1] for name, x in found.start.items()},
  )
  told = {c["id"] for c in _collapse_claims.claims(one, (MODERATE,))}
  assert told == {"S3", "S4", "S6", "S7"}


def test_the_full_protocol_makes_steps_on_a_stand_in(tmp_path, monkeypatch):
  """LARS on all devices, stopped after its first measurement and taken up again."""
  drawn = np.random.default_rng(0)
  labels = np.arange(48) % 4
  images = drawn.integers(0, 256, (48, 16, 16, 3), np.uint8)
  study = _collapse_sets.Study(
    "noise", images, labels, labels // 2, images[:16], labels[:16], ("a", "b")
  )
  monkeypatch.setattr(projector_collapse, "load", lambda _: study)
  config = dataclasses.replace(
    projector_collapse.PRESETS["full"], encoder="conv", widths=(4, 4, 8),
    projector=(6,), projectors=(), toys=(), seeds=1, steps=4, measure_every=2,
    probe_every=2, warm_up=1, batch=8, measured=16, strengths=(LARGE,),
  )  # fmt: skip
  fit = training.fit

  def stopped(*args, steps, **options):
    return fit(*args, steps=2, **options)

  monkeypatch.setattr(training, "fit", stopped)
  first = projector_collapse.train(config, {LARGE: STRONG}, study, tmp_path)
  monkeypatch.setattr(training, "fit", fit)
  found = projector_collapse.train(config, {LARGE: STRONG}, study, tmp_path)
  alone = projector_collapse.train(config, {LARGE: STRONG}, study, tmp_path / "other")
  for name, curve in alone.curves.items():
    assert curve.shape == (1, 1, 2), name
    np.testing.assert_array_equal(found.curves[name], curve)
    if name != "least gap":  # which is that of all steps
      np.testing.assert_array_equal(first.curves[name][..., 0], curve[..., 0])
  assert (first.curves["least gap"] >= alone.curves["least gap"][..., :1]).all()
  assert (found.curves["least gap"] > -1e-5).all()
  assert found.curves["loss"][0, 0, 0] != found.curves["loss"][0, 0, 1]
  rows = _collapse_claims.rows(found, (LARGE,), {})
  assert all(np.isfinite(row["values"]).all() for row in rows)


def test_lars_moves_weights_by_a_share_of_their_length():
  """Trust coefficient .001, no adaptation of norms: You et al. 2017."""
  settings = dataclasses.replace(
    _collapse_full.Full(), learning_rate=4.0, weight_decay=0.0, warm_up=1, steps=10
  )
  chain = _collapse_full.optimizer(settings)
  params = {
    "network": {"kernel": jnp.full((2, 2), 3.0), "scale": jnp.ones(2)},
    "loss": {},
  }
  grads = jax.tree.map(lambda x: 7 * jnp.ones_like(x), params)
  state = chain.init(params)
  _, state = chain.update(grads, state, params)  # the rate of the first step is 0
  update, _ = chain.update(grads, state, params)
  # The rate 4 times the share .001 of a length of 6, along (1, 1, 1, 1) / 2.
  np.testing.assert_allclose(update["network"]["kernel"], -0.012, rtol=1e-4)
  np.testing.assert_allclose(update["network"]["scale"], -28.0, rtol=1e-4)

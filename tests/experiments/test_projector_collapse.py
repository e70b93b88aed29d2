"""Geometry of contrastive learning: exact parts, measurements, and a short training."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from experiments import projector_collapse
from experiments.frame import command
from experiments.frame import kept as finished
from experiments.self_supervision import claims, figures, geometry, runs, toy
from experiments.self_supervision import settings as collapse_config
from experiments.self_supervision import training as collapse_training
from experiments.self_supervision.runs import Trained
from experiments.self_supervision.settings import LARGE, MODERATE, SMALL, cells
from experiments.self_supervision.training import Projector, Run
from spherejax import data, hierarchy, losses, training
from tests.metrics.test_projector import unexplained

EVERY = LARGE, MODERATE, SMALL
STRONG = collapse_config.COLOURED[LARGE]
TINY = collapse_config.Settings(
  widths=(4, 4, 8), strides=(1, 2, 1), projector=(6,), convolution="native"
)
FULL, SMOKE = (projector_collapse.PRESETS[name] for name in ("full", "smoke"))


def of(strengths):
  """Settings of a training with these strengths."""
  return {name: jnp.float32(x) for name, (x,) in cells([strengths]).items()}


@functools.cache
def tiny_variables():
  """Initial variables of the tiny network."""
  network = collapse_training.network(TINY)
  return jax.jit(network.init)(jax.random.key(3), jnp.zeros((2, 8, 8, 1)))


def effective(values):
  """Effective rank of singular values."""
  return np.exp(scipy.stats.entropy(values, axis=-1))


@pytest.mark.slow
def test_the_smoke_preset_stays_below_its_bound(smoke):
  means = smoke.figures
  for name in (LARGE, SMALL):
    assert means[name, "least gap"] > -1e-5
    assert means[name, "loss"] < means[name, "bound"]
    assert 1 <= means[name, "effective rank"] <= 16
  # Stronger augmentations are harder to agree on, in the first steps already.
  assert means[LARGE, "invariance"] > means[SMALL, "invariance"] + 0.05
  assert {"S1-large-small", "S12"} <= {c["id"] for c in smoke.content["claims"]}
  assert (SMALL, "effective rank of h, before training") in means
  assert 0.1 < means[LARGE, geometry.DRAWN] < 1
  assert (SMALL, f"sharing{geometry.ALL}") in means
  # The ranks of each time follow from the singular values that are drawn of it.
  strengths = {name: collapse_config.GREY[name] for name in SMOKE.strengths}
  study, folder = collapse_config.digits(), smoke.folder / "kept"
  found = projector_collapse.train(SMOKE, strengths, study, folder)
  curve = found.curves["effective rank"]
  before = SMOKE.halfway // SMOKE.measure_every - 1
  assert 0 <= before < curve.shape[-1] - 1
  for spectrum, rank in (
    (found.shown[f"spectrum W{geometry.HALFWAY}"], curve[..., before]),
    (found.start["spectrum W"], found.start["effective rank"]),
    (found.shown["spectrum W"], curve[..., -1]),
    (found.start["spectrum h"], found.start["effective rank of h"]),
    (found.shown["spectrum h"], found.at_end("effective rank of h")),
  ):
    np.testing.assert_allclose(effective(np.exp(spectrum)), rank, rtol=1e-6)
  assert not np.allclose(curve[..., before], curve[..., -1], rtol=1e-4)
  for name in ("effective rank", "sharing", "nearest distance", "unexplained"):
    # After so few steps, "unexplained" is the rounding error of another program.
    np.testing.assert_allclose(
      found.end[name], found.curves[name][..., -1], rtol=1e-3, atol=1e-9
    )
    if name != "effective rank":  # of 128 images, and of all
      assert (found.end[name] != found.end[f"{name}{geometry.ALL}"]).all()


def test_turned_directions_leave_the_projector():
  """A few strong directions leave it almost at once, those that do not fit stay."""
  ranks = toy.rotation_ranks(0)
  assert ranks[0] == 0
  assert (np.diff(ranks) > 0).all()
  keys = jax.random.split(jax.random.key(0), 2)
  few, many = (
    np.array([toy.learned(key, jnp.float32(4), directions=number)[1] for key in keys])
    for number in (4, 24)
  )
  assert few.max() < 0.1
  assert many.min() > 0.3
  weights, share = toy.learned(keys[0], jnp.float32(0.5), directions=4, steps=1)
  assert weights.shape == (32, 16)
  assert 0.5 < share < 1.5


def test_patterns_of_a_known_projector():
  layers = {"layer0": {"kernel": jnp.eye(2)}, "layer1": {"kernel": jnp.ones((2, 3))}}
  linear = {"layer0": layers["layer1"]}
  x = jnp.array([[1.0, 1.0], [2.0, 3.0], [-1.0, 1.0], [-1.0, -1.0]])
  assert toy.activation_patterns(Projector((2, 3)), {"params": layers}, x) == 3
  assert toy.activation_patterns(Projector((3,)), {"params": linear}, x) == 1
  few, many = (toy.regions(widths, jax.random.key(0)) for widths in ((3,), (2, 3)))
  assert few == 1 < many


def test_measurements_against_a_loop():
  study = collapse_config.digits()
  given = runs.device_data(study)
  strengths = collapse_config.GREY[LARGE]
  run, hyper = Run(dataclasses.replace(TINY, measured=24), study.classes), of(strengths)
  variables = tiny_variables()
  params, stats = variables["params"], variables["batch_stats"]
  begun = jax.eval_shape(run.init, given, jax.random.key(1), hyper).first
  assert jax.tree.map(jnp.shape, begun) == jax.tree.map(jnp.shape, (params, stats))
  images = np.float32(study.train[:24]) / 255
  apply = jax.jit(run.network.apply, static_argnames=("train", "mutable"))
  for _ in range(40):  # until the running statistics are those of these images
    _, moved = apply(
      {"params": params, "batch_stats": stats}, given.normalized(images), train=True,
      mutable="batch_stats",
    )  # fmt: skip
    stats = moved["batch_stats"]
  found, _, _ = runs.measure_network(run, given, params, stats, hyper)
  h, f = [], []
  options = {"size": 8, "strengths": strengths, "integer": False}
  views = data.simclr_views(jax.random.key(0), images, **options)
  for x in np.asarray(views):
    x = (x - np.ravel(given.mean)[0]) / np.ravel(given.std)[0]
    both = apply({"params": params, "batch_stats": stats}, jnp.asarray(x))
    for rows, of_view in zip((h, f), both, strict=True):
      rows.append(np.asarray(of_view, np.float64))
  for place, pair in (("encoder", h), ("projector", f)):
    for kind, shift in (("", 0), ("centred ", np.concatenate(pair).mean(0))):
      one, two = (x - shift for x in pair)
      lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
      # SSL eq. 4, without its sign.
      right = np.mean(np.sum(one * two, axis=1) / lengths)
      name = f"{kind}similarity of views in the {place}"
      assert found[name] == pytest.approx(right, rel=1e-4, abs=1e-5)
  f = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in f]
  same = np.tile(np.eye(24, dtype=bool), 2)
  near = np.where(same, -np.inf, f[0] @ np.concatenate(f).T).argmax(1)
  labels = np.concatenate([study.train_labels[:24]] * 2)
  assert found["sharing"] == pytest.approx(np.mean(labels[near] == labels[:24]))
  unit = np.concatenate([x / np.linalg.norm(x, axis=1, keepdims=True) for x in h])
  far = np.linalg.norm(unit[:24] - unit[near], axis=1)
  assert found["nearest distance"] == pytest.approx(far.mean(), rel=1e-4)
  moves = h[1] - np.concatenate(h)[near]
  kernel = np.asarray(params["projector"]["layer0"]["kernel"], np.float64)
  assert found["unexplained"] == pytest.approx(unexplained(moves, kernel), rel=1e-3)
  rank = effective(np.linalg.svd(kernel, compute_uv=False))
  assert found["effective rank"] == pytest.approx(rank, rel=1e-6)


def test_what_is_not_seen_of_views():
  """By W, and by random directions that are the same for probes in float32."""
  drawn = np.random.default_rng(3)
  kernel, far, moves = (drawn.normal(size=(n, 8)) for n in (6, 20, 20))
  kernel = kernel.T
  shown = {"displacements": far, "moves": moves}
  found = geometry.of_views(TINY, shown, kernel)
  directions = collapse_training.chance(TINY, jnp.float32(kernel))
  assert (directions.shape, directions.dtype) == ((8, 6), jnp.float32)
  for name, weights, rows in (
    (geometry.BY_CHANCE, np.asarray(directions, np.float64), far),
    (geometry.MOVES, kernel, moves),
  ):
    assert found[name] == pytest.approx(unexplained(rows, weights), rel=1e-9)
  deep = dataclasses.replace(TINY, projector=(4, 6))
  assert not geometry.of_views(deep, shown, kernel)


@pytest.mark.slow
def test_what_is_measured_first_is_normalised():
  """Running statistics are the batches' and not those that they begin with."""
  study = collapse_config.digits()
  given = runs.device_data(study)
  run, hyper = Run(TINY, study.classes), of(collapse_config.GREY[LARGE])

  @jax.jit
  def drawn(key):
    state = run.init(given, key, hyper)

    def batch(key):
      rows, views = jax.random.split(key)
      images = run.batch(given, rows)
      still = jax.tree.map(jnp.zeros_like, state.stats)
      moved = run.terms(given, state.params, still, images, views, hyper)[1]
      return jax.tree.map(lambda x: x / (1 - 0.9), moved)  # flax's momentum is 0.9

    return state.stats, jax.lax.map(batch, jax.random.split(jax.random.key(9), 40))

  settled, batches = drawn(jax.random.key(1))
  begun = tiny_variables()["batch_stats"]
  for own, several, first in zip(
    *map(jax.tree.leaves, (settled, batches, begun)), strict=True
  ):
    mean, spread = several.mean(0), several.std(0)
    # Of ten batches or so: a third of the spread of one, and 0.5 % of what was before.
    assert np.all(np.abs(own - mean) <= 1.5 * spread + 0.006 * np.abs(first - mean))
    assert np.abs(first - mean).max() > 20 * np.abs(own - mean).max()


def test_a_step_follows_the_gradient_of_its_loss():
  config = dataclasses.replace(TINY, batch=6, inverse_temperature=4.0, weight_decay=0.0)
  study = collapse_config.digits()
  given, hyper = runs.device_data(study), of(collapse_config.GREY[LARGE])
  run, key = Run(config, study.classes), jax.random.key(3)
  params, stats = tiny_variables()["params"], tiny_variables()["batch_stats"]
  both = params, stats
  state = collapse_training.State(
    *both, run.optimizer.init(params), jnp.int32(0), {}, {}, jnp.zeros(0), both, both
  )
  new, terms = jax.jit(run.one_step)(given, hyper, state, key)
  batch_key, view_key = jax.random.split(key)
  rows = jax.random.choice(batch_key, len(study.train), (6,), replace=False)
  views = run.views(view_key, given.train[rows], hyper).reshape(12, 8, 8, 1)

  def total(params):
    variables = {"params": params, "batch_stats": stats}
    (_, outputs), _ = run.network.apply(
      variables, given.normalized(views), train=True, mutable=["batch_stats"]
    )
    pair = jnp.split(outputs, 2)
    return losses.info_nce(*pair, temperature=0.25, symmetric=True).mean()

  value, slopes = jax.jit(jax.value_and_grad(total))(params)
  np.testing.assert_allclose(terms["loss"].mean(), value, rtol=1e-5)
  expected = jax.tree.map(lambda x, slope: x - 0.2 * slope, params, slopes)
  for found, right in zip(*map(jax.tree.leaves, (new.params, expected)), strict=True):
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
  assert (terms["bound"] > terms["loss"] - 1e-5).all()
  assert terms["least gap"].min() > -1e-5


@pytest.mark.slow
@pytest.mark.parametrize("integer", [False, True])
def test_views_are_of_the_strengths_asked_for(integer):
  """SimCLR's are blurred; the others have no column for that, which takes time."""
  simclr = collapse_config.COLOURED["simclr"]
  columns = cells([STRONG, simclr])
  assert columns["area"] == [0.08, 0.08]
  assert columns["blur"] == [0.0, 0.5]
  assert "blur" not in cells([STRONG, STRONG])
  run = Run(dataclasses.replace(TINY, integer_crops=integer), 2)
  images = np.random.default_rng(2).integers(0, 256, (4, 8, 8, 3), np.uint8)
  draw = functools.partial(data.simclr_views, jax.random.key(5), size=8)
  for strengths in (STRONG, simclr):
    found = jax.jit(run.views)(jax.random.key(5), images, of(strengths))
    seen = np.float32(images) / 255
    right = jax.jit(functools.partial(draw, strengths=strengths, integer=integer))(seen)
    np.testing.assert_allclose(found, right, atol=1e-5)
  config = dataclasses.replace(FULL, strengths=("simclr",))
  collapse_config.check(config)
  assert config.integer_crops


def test_photographs_of_every_size_are_another_study(monkeypatch):
  images = data.from_arrays(
    np.zeros((8, 4, 4, 3), np.uint8), np.arange(8), label_names=tuple("abcdefgh")
  )
  monkeypatch.setattr(collapse_config.class_sets, "read", lambda *_, **__: images)
  tree = hierarchy.from_mapping({"all": list("abcdefgh")})
  monkeypatch.setattr(collapse_config.class_sets, "tree_of", lambda *_: tree)
  names = [collapse_config.photographs(side).name for side in (32, 64, 16)]
  assert names == ["tiny_imagenet", "tiny_imagenet-64", "tiny_imagenet-16"]


def trained(**curves):
  """Three strengths, two seeds, two measurements: 1 everywhere, but as given."""
  shape = 3, 2, 2
  names = (*claims._FIGURES, *geometry.LOCAL, geometry.CHANCE)
  whole = {name: np.ones(shape) * np.array([1.0, 2.0]) for name in names}
  whole |= {name: np.broadcast_to(x, shape) * 1.0 for name, x in curves.items()}
  start = {n: x[..., 0] for n, x in whole.items()}
  end = {n: x[..., -1] for n, x in whole.items() if n.startswith(geometry.OVERLAP)}
  return Trained(whole, start, end, {}, np.ones((3, 2)))


def claimed(found, names):
  """The claims of trainings with these strengths."""
  config = dataclasses.replace(projector_collapse.PRESETS["cpu"], strengths=names)
  return projector_collapse.STUDY.claimed(claims.tabulate(found, names, {}), config)


def test_losses_follow_their_bounds_and_the_least_gap_is_of_all_steps():
  rises = np.array([0.0, 1.0])
  for sign in (1, -1):
    found = claimed(trained(loss=rises, bound=2 * sign * rises), EVERY)
    (value,) = (c["value"] for c in found if c["id"] == "S3-correlation")
    assert value == pytest.approx(sign - 0.5)
  rows = claims.tabulate(trained(**{"least gap": [-0.1, 1]}), EVERY, {}).rows()
  assert [x["values"] for x in rows if x["metric"] == "least gap"] == [[-0.1, -0.1]] * 3


GONE = {"invariance": -np.ones((3, 2, 2)), "repulsion": np.ones((3, 2, 2))}


def partly_gone(**curves):
  """Measures of three strengths; the first of two runs of the first has collapsed."""
  first = np.zeros((3, 2, 2))
  first[0, 0] = 1
  return trained(invariance=-first, repulsion=first, **curves)


def test_collapsed_runs_do_not_count():
  found = partly_gone()
  assert found.collapsed.tolist() == [[True, False], [False] * 2, [False] * 2]
  assert {c["n"] for c in claimed(found, EVERY) if c["id"].startswith("S1-")} == {1}
  assert not claimed(trained(**GONE), EVERY)
  found.curves["probe"] = np.broadcast_to([[0.2], [0.8]], (3, 2, 2))
  whole = found._replace(curves=found.curves | GONE)
  rows = claims.tabulate(found, EVERY, {"8": found, "9": whole}).rows()
  told = {(row["name"], row["metric"]): row["values"] for row in rows}
  assert told[LARGE, "probe"] == [0.8]
  assert told[SMALL, "probe"] == [0.2, 0.8]
  assert told[LARGE, "collapsed runs"] == [1, 0]
  assert len(told[LARGE, "probe, before training"]) == 2
  assert told["large, projector 8", "probe"] == [0.8]
  assert told["large, projector 9", "collapsed runs"] == [1, 1]
  assert ("large, projector 9", "probe") not in told


def test_the_picture_of_depth_and_width_has_what_there_is():
  """A linear projector's map is W itself; a collapsed run is no dot."""
  ranks = np.array([[3.0], [4.0]])
  linear = trained(**{"effective rank": ranks})
  deep = partly_gone(**{geometry.LOCAL[1]: ranks + 2})
  axes = figures.projectors(linear, (SMALL, LARGE), {"8-6": deep}).axes[-1]
  assert [x.get_text() for x in axes.get_xticklabels()] == ["linear", "8-6"]
  assert [line.get_ydata().tolist() for line in axes.lines] == [[3.0, 4.0], [6.0]]
  alone = figures.projectors(linear, (SMALL,), {"8-6": deep}).axes[0]
  assert [x.get_text() for x in alone.get_xticklabels()] == ["8-6"]
  whole = deep._replace(curves=deep.curves | GONE)
  figures.projectors(linear, (SMALL,), {"8-6": whole})

  # One of two runs of the first strength collapsed, and has no part in its mean.
  shares = np.zeros((3, 2, collapse_training.BINS))
  shares[:, 0, 3], shares[:, 1, 7] = 1, 1
  drawn = figures.distances(deep._replace(shown={"distances": shares}), EVERY).axes[0]
  heights = [patch.get_data().values for patch in drawn.patches]
  assert [h[3] for h in heights] == [0, 0.5, 0.5]
  assert [h[7] for h in heights] == [1, 0.5, 0.5]
  gone = whole._replace(shown={"distances": shares})
  assert not figures.distances(gone, EVERY).axes[0].patches


def test_a_strength_that_is_compared_with_none_tells_what_it_can():
  one = trained()
  curves, start = jax.tree.map(lambda x: x[:1], (one.curves, one.start))
  one = one._replace(curves=curves, start=start)
  assert [c["id"] for c in claimed(one, ("simclr",))] == ["S3-correlation"]


def noise(count, side):
  """Images of four classes in two groups."""
  labels = np.arange(count) % 4
  images = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
  return collapse_config.Study(
    "noise", images, labels, labels // 2, images[:16], labels[:16]
  )


@pytest.mark.slow
def test_the_full_protocol_makes_steps_on_a_stand_in(tmp_path, monkeypatch):
  """LARS on all devices, stopped after its first measurement and taken up again."""
  study = noise(count=48, side=16)
  monkeypatch.setattr(collapse_config, "load", lambda _: study)
  config = dataclasses.replace(
    FULL, encoder="conv", widths=(4, 4, 8), projector=(6,), projectors=(), toys=(),
    seeds=1, steps=4, measure_every=2, probe_every=2, warm_up=1, batch=8, measured=16,
    strengths=(LARGE,),
  )  # fmt: skip
  fit = training.fit
  train = functools.partial(projector_collapse.train, config, {LARGE: STRONG}, study)
  with monkeypatch.context() as patch:
    patch.setattr(
      training, "fit", lambda *args, steps, **options: fit(*args, steps=2, **options)
    )
    first = train(tmp_path)
  found, alone = train(tmp_path), train(tmp_path / "other")
  for name, curve in alone.curves.items():
    assert curve.shape == (1, 1, 2), name
    np.testing.assert_array_equal(found.curves[name], curve)
    if name != "least gap":  # which is that of all steps
      np.testing.assert_array_equal(first.curves[name][..., 0], curve[..., 0])
  assert (first.curves["least gap"] >= alone.curves["least gap"][..., :1]).all()
  assert (found.curves["least gap"] > -1e-5).all()
  assert found.curves["loss"][0, 0, 0] != found.curves["loss"][0, 0, 1]
  rows = claims.tabulate(found, (LARGE,), {}).rows()
  assert all(np.isfinite(row["values"]).all() for row in rows)
  # Spectra of all times: the first half ends where the first run was stopped.
  for name, shape in (("spectrum h", (8,)), ("spectrum W", (6,))):
    assert found.start[name].shape == found.shown[name].shape == (1, 1, *shape)
    halfway = found.shown[f"{name}{geometry.HALFWAY}"]
    np.testing.assert_array_equal(halfway, first.shown[name])
    assert not np.array_equal(halfway, found.shown[name])
  digest = finished.digest((command.only(runs.Full, config), "noise"))
  kept = tmp_path / f"full-{digest}" / f"{LARGE}-0-spectra"
  assert {path.name for path in kept.glob("*.npz")} == {"0.npz", "2.npz", "4.npz"}


def test_reports_are_of_singular_values_in_float64():
  """In float32, some of them would be nothing but rounding."""
  drawn = np.random.default_rng(7)
  settings = runs.Full(projector=(6,))
  scales = np.geomspace(1, 1e-9, 8)
  matrices = {
    "h": drawn.normal(size=(24, 8)).astype(np.float32) * scales,
    "augmented h": drawn.normal(size=(24, 8)).astype(np.float32),
    "W": drawn.normal(size=(8, 6)).astype(np.float32),
  }
  shown = {f"features {name}": x for name, x in matrices.items()}
  ranks, spectra = geometry.of_features(shown, jnp.asarray(matrices["W"]))
  ranks |= geometry.of_weights(settings, jnp.asarray(matrices["W"]))
  for name, matrix in matrices.items():
    values = np.linalg.svd(np.float64(matrix), compute_uv=False)
    np.testing.assert_allclose(spectra[f"spectrum {name}"], np.log(values), rtol=1e-6)
    of_name = "effective rank" + ("" if name == "W" else f" of {name}")
    np.testing.assert_allclose(ranks[of_name], effective(values), rtol=1e-12)
    if name == "W":
      assert ranks["relative rank"] == (values >= 0.1 * values[0]).sum()
    else:
      assert ranks[f"rank of {name}"] == (values >= 1e-2 * values[0]).sum() / 8
  assert ranks["rank of h"] < 0.5 < ranks["rank of augmented h"]


@pytest.mark.parametrize("synchronized", [True, False])
def test_statistics_of_two_devices(synchronized, monkeypatch):
  """Synchronised they, the loss, its bound and their gap are those of one device."""
  settings = runs.Full(synchronized=synchronized)

  def stop(settings, classes, norm_axis):
    raise KeyboardInterrupt(norm_axis)

  study = collapse_config.digits()
  with monkeypatch.context() as patch:
    patch.setattr(runs, "Run", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
      runs.train_apart(settings, {LARGE: STRONG}, study, pathlib.Path("none"))
  given = runs.device_data(study)
  run, whole = (Run(TINY, study.classes, *x) for x in (stopped.value.args, ()))
  for one in (run, whole):  # the same views, however the batch is spread
    monkeypatch.setattr(one, "views", lambda key, x, hyper: jnp.stack([x, x**2]))
  images = given.train[:8] / jnp.float32(255)
  params = {"network": tiny_variables()["params"]}
  stats = {"network": tiny_variables()["batch_stats"]}
  stats |= {"loss": {"least gap": jnp.float32(1e9)}}

  def after(run, axis_name, images):
    made = runs.objective(
      params, stats, {"image": images}, key=jax.random.key(0), axis_name=axis_name,
      run=run, images=given, hyper={},
    )  # fmt: skip
    found = {"loss": made.loss, **made.metrics, **made.batch_stats["loss"]}
    return made.batch_stats["network"], found

  axis, devices = training.AXIS_NAME, jax.devices()[:2]
  spread = jax.pmap(functools.partial(after, run, axis), axis, devices=devices)
  found, numbers = spread(images.reshape(2, 4, *images.shape[1:]))
  right, expected = jax.jit(functools.partial(after, whole, None))(images)

  def same(x, y):
    return np.allclose(x, np.broadcast_to(y, x.shape), rtol=1e-4, atol=1e-5)

  each = jax.tree.leaves(jax.tree.map(same, found, right))
  assert all(each) if synchronized else not any(each)
  assert {"loss", "bound", "invariance", "repulsion", "least gap"} == {*numbers}
  if synchronized:  # negatives are those of both devices
    means = jax.tree.map(lambda x: x.mean(0), numbers)  # each device has its share
    assert all(jax.tree.leaves(jax.tree.map(same, means, expected)))


@pytest.mark.slow
def test_resnet18_takes_steps_by_lars():
  """The published network and optimiser, on noise that is hardly augmented."""
  config = dataclasses.replace(FULL, steps=8, measure_every=8, warm_up=1)
  settings = command.only(runs.Full, config)
  study = noise(count=8, side=16)
  images, run = runs.device_data(study), Run(settings, study.classes)
  hyper = of(STRONG._replace(scale=(0.9, 1.0), jitter=0.1, flip=0.0, grayscale=0.0))
  chain = runs.optimizer(settings)
  variables = run.network.init(jax.random.key(0), jnp.zeros((2, 16, 16, 3)))
  gap = {"batch_stats": {"least gap": jnp.float32(1e9)}}
  state = training.create_state(jax.random.key(1), chain, variables, gap)
  objective = functools.partial(runs.objective, run=run, images=images, hyper=hyper)
  step, found = jax.jit(training.make_step(objective, chain)), []
  for _ in range(settings.steps):
    state, metrics = step(state, {"image": study.train})
    found.append(float(metrics["loss"]))
    assert metrics["loss"] <= metrics["bound"] + 1e-5
  assert found[-1] < found[0] - 0.1
  # Norms and weights have moved; the running statistics, too.
  for before, after in (
    (variables["params"], state.params["network"]),
    (variables["batch_stats"], state.batch_stats["network"]),
  ):
    same = jax.tree.map(np.array_equal, before, after)
    assert not any(jax.tree.leaves(same)), same


@pytest.mark.parametrize(
  ("size", "side", "classes", "groups"),
  [pytest.param(5000, 16, 50, 12, marks=pytest.mark.slow), (None, 32, 100, 20)],
)
def test_images_have_coarse_classes(size, side, classes, groups, tfds_dir):
  if size:  # every fourth class of tiny_imagenet
    study = collapse_config.photographs(side)
    assert len(study.train) == size
    assert np.bincount(study.test_labels).tolist() == [30] * classes
  else:
    study = collapse_config.load(FULL)
  assert study.train.shape[1:] == study.test.shape[1:] == (side, side, 3)
  assert study.train.dtype == np.uint8
  assert study.classes == classes
  assert len(study.train_labels) == len(study.train_coarse) == len(study.train)
  pairs = np.unique(np.stack([study.train_labels, study.train_coarse]), axis=1)
  assert pairs.shape == (2, classes)  # each class is in one group
  sizes = np.bincount(pairs[1])
  assert len(sizes) == groups
  assert sizes.min() > 0
  assert size or set(sizes) == {5}


def test_the_full_protocol_projects_512_features_onto_128():
  network = collapse_training.network(FULL)
  images = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.float32)
  shapes = jax.eval_shape(network.init, jax.random.key(0), images)
  features, outputs = jax.eval_shape(network.apply, shapes, images)
  assert (features.shape, outputs.shape) == ((2, 512), (2, 128))
  (kernel,) = jax.tree.leaves(shapes["params"]["projector"])  # no bias
  assert kernel.shape == (512, 128)
  kernels = [x.shape for x in jax.tree.leaves(shapes["params"]) if x.ndim == 4]
  assert len(kernels) == 20  # 17 of 3 x 3, three of shortcuts; the eighteenth: W
  assert (3, 3, 3, 64) in kernels


def test_lars_against_a_loop():
  """Trust coefficient .001, no adaptation or decay of norms: You et al. 2017."""
  settings = runs.Full(
    steps=10, measure_every=10, warm_up=3, learning_rate=4.0, weight_decay=1e-2
  )
  chain = runs.optimizer(settings)
  random = np.random.default_rng(0)
  kernel, scale = random.normal(size=(3, 4)), random.normal(size=3)
  weights = {"kernel": jnp.float32(kernel), "scale": jnp.float32(scale)}
  params = {"network": weights, "loss": {}}
  state, update = chain.init(params), jax.jit(chain.update)
  fast, slow = np.zeros_like(kernel), np.zeros_like(scale)
  for step in range(10):
    pulls = random.normal(size=kernel.shape), random.normal(size=scale.shape)
    own = dict(zip(("kernel", "scale"), map(jnp.float32, pulls), strict=True))
    moves, state = update({"network": own, "loss": {}}, state, params)
    params = optax.apply_updates(params, moves)
    rate = 4 * step / 3 if step < 3 else 2 * (1 + np.cos(np.pi * (step - 3) / 7))
    decayed = pulls[0] + 1e-2 * kernel
    trust = 1e-3 * np.linalg.norm(kernel) / np.linalg.norm(decayed)
    fast = 0.9 * fast + rate * trust * decayed
    slow = 0.9 * slow + rate * pulls[1]
    kernel, scale = kernel - fast, scale - slow
    np.testing.assert_allclose(params["network"]["kernel"], kernel, atol=2e-5)
    np.testing.assert_allclose(params["network"]["scale"], scale, atol=2e-4)

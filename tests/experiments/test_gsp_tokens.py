"""The token study, and its shortcuts against the library."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import gsp_tokens
from experiments.gsp import token_trainings, tokens
from spherejax import distances, pooling, training


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """The preset's result, and what it collected on the way."""
  collect, collected = token_trainings.collect, []
  folder = tmp_path_factory.mktemp("tokens")

  def spied(*args):
    collected.append(collect(*args))
    return collected[-1]

  with pytest.MonkeyPatch.context() as patch:
    # As on a user's CPU; that sweeps spread over several is tested with them.
    patch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    patch.setattr(gsp_tokens, "collect", spied)
    content = gsp_tokens.STUDY.run(gsp_tokens.PRESETS["smoke"], folder, "smoke")
    for picture in content["pictures"]:
      assert (folder / picture).read_bytes().startswith(b"\x89PNG")
  return json.loads(json.dumps(content)), collected[0]


@pytest.fixture
def smoke(run):
  return run[0]


@pytest.mark.slow
def test_average_pooling_keeps_the_background_and_gsp_drops_some(smoke):
  rows = {(row["name"], row["metric"]): row["mean"] for row in smoke["rows"]}
  share = rows["GAP", "share of background"]
  assert rows["GAP", "weight on background"] == pytest.approx(share, abs=1e-5)
  assert rows["GAP", "intersecting hulls"] == 120
  assert rows["GSP", "weight on background"] < 0.6 * share
  assert rows["GSP", "intersecting hulls"] < 100
  assert rows["GSP", "MAP@R"] > rows["GAP", "MAP@R"]
  assert [claim["id"] for claim in smoke["claims"]] == [
    "tokens-map",
    "tokens-background",
    "tokens-hulls",
  ]
  assert smoke["pictures"] == ["tokens.png", "curves.png"]


def test_rows_and_claims_of_figures_that_are_known():
  names = "MAP@R", "weight on background", "share of background", "intersecting hulls"
  average = np.array([[0.1, 0.2], [0.4, 0.5], [0.4, 0.5], [120, 120]])
  summed = np.array([[0.4, 0.3], [0.1, 0.1], [0.4, 0.6], [20, 30]])
  figures = {
    name: dict(zip(names, values, strict=True))
    for name, values in (("GAP", average), ("GSP", summed))
  }
  table = gsp_tokens.tabulate(figures)
  claims = {
    c["id"]: c["values"]
    for c in gsp_tokens.STUDY.claimed(table, gsp_tokens.PRESETS["cpu"])
  }
  assert claims == {
    "tokens-map": pytest.approx([0.3, 0.1]),
    "tokens-background": pytest.approx([0.1, 0.2]),
    "tokens-hulls": [100, 90],
  }
  gain, *rows = table.rows()
  assert (gain["name"], gain["metric"], gain["paper"]) == ("GSP - GAP", "MAP@R", 0.7)
  assert gain["values"] == pytest.approx([0.3, 0.1])
  assert len(rows) == 8


def test_samples_are_as_described():
  samples = tokens.draw_samples(jax.random.key(0), 100)
  kinds, share = np.asarray(samples.kinds), np.asarray(samples.share)
  assert kinds.shape == (1600, 50, 8)
  assert (kinds.sum(2) == 1).all()
  np.testing.assert_allclose(kinds[..., :4].sum((1, 2)), 50 * share, rtol=1e-6)
  assert abs(share.mean() - 0.5) < 0.01
  assert abs(share.std() - 0.1) < 0.01
  np.testing.assert_allclose(kinds.mean((0, 1)), 1 / 8, atol=0.005)
  assert np.bincount(samples.labels).tolist() == [100] * 16


def test_pooling_from_the_costs_of_tokens_is_pooling_of_the_features():
  rng = np.random.default_rng(0)
  params = tokens.Params(
    *(
      jnp.float32(rng.uniform(-0.3, 0.3, shape))
      for shape in ((16, 4, 2), (4, 2), (5, 2))
    )
  )
  samples = tokens.draw_samples(jax.random.key(1), 1)

  @jax.jit
  def both(known):
    hyper = {"mass": 0.4, "inverse_temperature": 20.0, "true_share": known}
    features = tokens.features_of(params, samples)
    mass = jnp.where(known > 0, samples.share, 0.4)
    whole = pooling.gsp(
      features, params.prototypes, mass=mass, inverse_temperature=20.0
    )
    costs = jnp.stack(
      [distances.pairwise_euclidean(params.prototypes, image) for image in features]
    )
    limit = pooling.gsp_linear_program(costs, mass=0.4)
    return (
      (tokens.embed(params, samples, hyper), (whole.pooled, whole.weights)),
      (tokens.embed_by_linear_program(params, samples, hyper).weights, limit),
    )

  for known in (0.0, 1.0):
    (mine, whole), (weights, limit) = both(known)
    for a, b in zip(mine, whole, strict=True):
      np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_allclose(weights, limit, atol=1e-6)


@pytest.mark.slow
def test_a_study_that_was_stopped_ends_with_the_same_figures(
  run, monkeypatch, tmp_path
):
  config = gsp_tokens.PRESETS["smoke"]
  monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
  save, saved = training.Checkpoints.save, []

  def killed(*args):
    save(*args)
    raise KeyboardInterrupt

  def counted(*args):
    saved.append(args)
    save(*args)

  monkeypatch.setattr(training.Checkpoints, "save", killed)
  with pytest.raises(KeyboardInterrupt):
    token_trainings.collect(config, jax.random.key(config.seed), tmp_path)
  monkeypatch.setattr(training.Checkpoints, "save", counted)
  resumed = token_trainings.collect(config, jax.random.key(config.seed), tmp_path)
  assert len(saved) == 2  # of three evaluations
  jax.tree.map(np.testing.assert_array_equal, resumed, run[1])


def test_a_run_that_stopped_holds_its_score():
  scores = np.array([[1.0, 2.0, np.nan, np.nan], [1.0, 2.0, 3.0, np.nan]])
  assert token_trainings.held(scores).tolist() == [[1, 2, 2, 2], [1, 2, 3, 3]]


def test_full_is_the_papers_protocol():
  full = gsp_tokens.PRESETS["full"]
  assert (full.learning_rate, full.patience, full.per_class) == (1e-4, 30, 4)
  assert dataclasses.asdict(full)["seeds"] == 10


@pytest.mark.slow
def test_the_full_preset_makes_steps(tmp_path):
  full = gsp_tokens.PRESETS["full"]
  config = dataclasses.replace(
    full, seeds=1, warm_up=full.epoch, steps=2 * full.epoch, validation=5, test=5
  )
  result = gsp_tokens.STUDY.run(config, tmp_path, "full")
  assert all(np.isfinite(row["values"]).all() for row in result["rows"])
  figures = {(row["name"], row["metric"]): row["mean"] for row in result["rows"]}
  on_background, share = (
    figures["GAP", metric]
    for metric in (token_trainings.BACKGROUND, token_trainings.SHARE)
  )
  np.testing.assert_allclose(on_background, share, rtol=1e-5)  # averages drop nothing
  assert ("GSP", token_trainings.BACKGROUND) in figures

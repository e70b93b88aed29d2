"""The token study, and its shortcuts against the library."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import gsp_tokens
from experiments.gsp import token_trainings, tokens
from spherejax import distances, pooling, training


@pytest.mark.slow
def test_gsp_drops_some_of_the_background(one_device, smoke, monkeypatch, tmp_path):
  content, figures, _ = smoke
  share = figures["GAP", "share of background"]
  assert figures["GAP", "weight on background"] == pytest.approx(share, abs=1e-5)
  assert figures["GAP", "intersecting hulls"] == 120
  assert figures["GSP", "weight on background"] < 0.6 * share
  assert figures["GSP", "intersecting hulls"] < 100
  assert figures["GSP", "MAP@R"] > figures["GAP", "MAP@R"]
  claims = [claim["id"] for claim in content["claims"]]
  assert claims == ["tokens-map", "tokens-background", "tokens-hulls"]
  assert content["pictures"] == ["tokens.png", "curves.png"]
  gain = content["rows"][0]
  assert (gain["name"], gain["metric"], gain["paper"]) == ("GSP - GAP", "MAP@R", 0.7)

  # Killed after the first of three evaluations, a run ends with the same figures.
  save, saved = training.Checkpoints.save, []

  def counted(*args):
    save(*args)
    saved.append(args)
    if len(saved) == 1:
      raise KeyboardInterrupt

  monkeypatch.setattr(training.Checkpoints, "save", counted)
  preset, folder = gsp_tokens.PRESETS["smoke"], tmp_path / "killed"
  with pytest.raises(KeyboardInterrupt):
    gsp_tokens.STUDY.run(preset, folder)
  assert gsp_tokens.STUDY.run(preset, folder)["rows"] == content["rows"]
  assert len(saved) == 3


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
  shapes = (16, 4, 2), (4, 2), (5, 2)
  params = tokens.Params(*(jnp.float32(rng.uniform(-0.3, 0.3, x)) for x in shapes))
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
    program = tokens.embed_by_linear_program(params, samples, hyper)
    mine = (*tokens.embed(params, samples, hyper), program.weights)
    return mine, (whole.pooled, whole.weights, limit)

  for known in (0.0, 1.0):
    for mine, whole in zip(*both(known), strict=True):
      np.testing.assert_allclose(mine, whole, atol=1e-6)


def test_a_run_that_stopped_holds_its_score():
  scores = np.array([[1.0, 2.0, np.nan, np.nan], [1.0, 2.0, 3.0, np.nan]])
  assert token_trainings.hold_last(scores).tolist() == [[1, 2, 2, 2], [1, 2, 3, 3]]


@pytest.mark.slow
def test_the_full_preset_makes_steps(tmp_path):
  full = gsp_tokens.PRESETS["full"]
  config = dataclasses.replace(
    full, seeds=1, warm_up=full.epoch, steps=2 * full.epoch, validation=5, test=5
  )
  result = gsp_tokens.STUDY.run(config, tmp_path, "full")
  assert all(np.isfinite(row["values"]).all() for row in result["rows"])
  figures = {(row["name"], row["metric"]): row["mean"] for row in result["rows"]}
  names = token_trainings.BACKGROUND, token_trainings.SHARE
  on_background, share = (figures["GAP", name] for name in names)
  np.testing.assert_allclose(on_background, share, rtol=1e-5)  # averages drop nothing
  assert ("GSP", token_trainings.BACKGROUND) in figures

"""`ccp_proxies --preset full`: its network, its images, its first problems."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import ccp_proxies
from experiments.frame import networks
from experiments.metric_learning import images, problems

FULL = ccp_proxies.PRESETS["full"]


def test_digits_are_seen_by_the_network_of_twenty_layers():
  architecture = networks.Architecture(backbone=FULL.backbone, width=FULL.width, dim=2)
  assert (FULL.proxies, FULL.pool, FULL.patience) == (4, 16, 60)
  variables = jax.eval_shape(
    lambda key: networks.initial_variables(key, architecture), jax.random.key(0)
  )
  kernels = [x for x in jax.tree.leaves(variables["params"]) if x.ndim == 4]
  # Of 3x3, and those of 1x1 where a stage begins.
  assert sum(x.shape[0] == 3 for x in kernels) == 19
  assert {x.shape[-1] for x in kernels} == {16, 32, 64}
  seen = jax.eval_shape(
    networks.Network(architecture).apply,
    variables,
    jax.ShapeDtypeStruct((5, 28, 28, 1), jnp.float32),
  )
  assert seen.embeddings.shape == (5, 2)


@pytest.mark.slow
def test_all_digits_have_as_many_images(tmp_path, tfds_dir):
  config = dataclasses.replace(FULL, digit_images=(20, 4))
  study = problems.study(config, tmp_path)
  assert (study.train.shape, study.held.shape) == ((1, 200), (1, 40))
  assert np.bincount(study.train_labels).tolist() == [20] * 10
  # The rarest digit, 5, has 5,421 of the 60,000 images.
  assert sum(FULL.digit_images) == 5421
  with pytest.raises(ValueError, match=r"at most \d+ in all.* got 5000 and 422"):
    images.mnist(28, 5000, 422)


@pytest.mark.slow
def test_the_full_preset_makes_its_first_problems(tmp_path, tfds_dir, monkeypatch):
  whole = images.mnist

  def fewer(size, train, held):
    study = whole(size, train, held)
    return study._replace(test=study.test[:, :200], test_labels=study.test_labels[:200])

  monkeypatch.setattr(images, "mnist", fewer)
  config = dataclasses.replace(
    FULL, digit_images=(12, 6), seeds=1, width=4, pool=6, steps=4,
    evaluate_every=1, switch_patience=1, convolution="patches",
  )  # fmt: skip
  content = ccp_proxies.STUDY.run(config, tmp_path, "full")
  figures = {(row["name"], row["metric"]): row["values"] for row in content["rows"]}
  for name in ("renewed", "trained once", "samples"):
    assert 0 < figures[f"digits, {name}", "MAP@R"][0] < 1
  claims = {claim["id"]: claim for claim in content["claims"]}
  assert {"ccp-coalesce", "ccp-covering-images", "ccp-map-rises"} <= {*claims}
  assert ccp_proxies.STUDY.run(config, tmp_path, "full")["rows"] == content["rows"]

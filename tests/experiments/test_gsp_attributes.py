"""Prediction of unseen classes from attributes: known cases, and the smoke preset."""

import jax
import numpy as np
import pytest

from experiments import gsp_attributes
from experiments.gsp import attributes as prediction
from experiments.gsp import network as pooled_network


@pytest.mark.slow
def test_the_smoke_preset_trains_and_predicts(tfds_dir, smoke):
  content, figures, _ = smoke
  for metric in ("l2", "cosine"):
    measure = f"accuracy, {metric}, 5 classes"
    control = figures["PNCA + ZSP, attributes shuffled", measure]
    assert control == pytest.approx(0.2, abs=0.08)
    # More candidates are never easier.
    few, many = (measure.replace("5", n) for n in ("5", "10"))
    assert figures["PNCA + ZSP", many] <= figures["PNCA + ZSP", few]
  variations = [
    figures[n, "variation of class attributes"] for n in ("PNCA", "PNCA + ZSP")
  ]
  assert min(variations) > 0
  assert variations[0] != variations[1]  # the additional loss reached the network
  assert [claim["id"] for claim in content["claims"]] == [
    f"attributes-{x}-{metric}" for metric in ("l2", "cosine") for x in ("zsp", "chance")
  ]
  assert [row["paper"] for row in content["rows"] if " - " in row["name"]] == [0.3, 0.3]
  assert content["pictures"] == ["accuracy.svg", "attributes.png", "dominant.png"]


@pytest.mark.slow
def test_the_full_preset_makes_steps_on_few_photographs(few_photographs):
  content = few_photographs(gsp_attributes, splits=20, test_split="test[:2%]")
  assert len(content["claims"]) == 4
  init = pooled_network.Network(gsp_attributes.PRESETS["full"]).init
  network = jax.eval_shape(init, jax.random.key(0), np.zeros((1, 32, 32, 3), np.uint8))
  backbone = jax.tree.leaves(network["params"]["backbone"])
  kernels = [leaf.shape for leaf in backbone if leaf.ndim == 4]
  assert sum(shape[:2] == (3, 3) for shape in kernels) == 19  # and a 1x1: ResNet-20
  assert "batch_stats" in network


def test_attributes_that_determine_the_embedding_predict_it():
  rng = np.random.default_rng(0)
  attributes = rng.dirichlet(np.ones(4), 10).astype("f")  # five classes determine it
  embeddings = attributes @ rng.normal(size=(4, 6)).astype("f")
  shares = prediction.predict_classes(
    jax.random.key(0), attributes, embeddings, 1e-6, splits=200
  )
  for (metric, candidates, source), share in shares.items():
    chance = 1 / int(candidates.split()[0])
    if source == "own":
      assert share > 0.99, metric
    else:
      assert share == pytest.approx(chance, abs=0.07), metric


def test_one_split_by_hand():
  rng = np.random.default_rng(1)
  attributes, embeddings = rng.dirichlet(np.ones(3), 10), rng.normal(size=(10, 5))
  key = jax.random.key(3)
  shares = prediction.predict_classes(
    key, attributes.astype("f"), embeddings.astype("f"), 0.05, splits=1
  )
  order_key, _ = jax.random.split(jax.random.split(key, 1)[0])
  order = np.asarray(jax.random.permutation(order_key, 10))
  z, y = attributes[order[:5]], embeddings[order[:5]]
  predictor = np.linalg.inv(z.T @ z + 0.05 * np.eye(3)) @ z.T @ y
  predicted, held = attributes[order[5:]] @ predictor, embeddings[order[5:]]
  far = np.linalg.norm(predicted[:, None] - held, axis=2)
  near = predicted @ (held / np.linalg.norm(held, axis=1, keepdims=True)).T
  for metric, nearest in (("l2", far.argmin(1)), ("cosine", near.argmax(1))):
    right = np.mean(nearest == np.arange(5))
    assert shares[metric, "5 classes", "own"] == pytest.approx(right)

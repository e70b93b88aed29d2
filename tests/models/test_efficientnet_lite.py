"""EfficientNet-Lite: names of files, training.

`test_torch_weights.py` compares its values with torch's.
"""

import re

import jax
import numpy as np
import pytest

from spherejax import models
from tests.models.oracles import random_variables

IMAGES = np.random.default_rng(0).normal(size=(2, 37, 34, 3)).astype(np.float32)
NARROW = models.EfficientNetLite(width=0.1, depth=0.3)
CONVOLUTIONS = {"expand": "conv_pw", "depthwise": "conv_dw", "project": "conv_pwl"}


def file_name(path, timm, blocks):
  """Name of a module in a file; `blocks` lists our blocks in order."""
  part = path[-1]
  kind, norm = part.removesuffix("_norm"), part.endswith("_norm")
  if kind in ("stem", "head"):
    part = f"bn{(kind == 'head') + timm}" if norm else f"conv_{kind}"
    return part if timm else f"_{part}"
  stage, block = map(int, re.findall(r"\d+", path[0]))
  number = [*CONVOLUTIONS].index(kind)
  if not timm:
    part = f"_bn{number}" if norm else f"_{kind}_conv"
    return f"_blocks.{blocks.index(path[0])}.{part}"
  # The first stage has nothing to expand, and its last convolution the first's name.
  names = ["", "conv_dw", "conv_pw"] if stage == 1 else [*CONVOLUTIONS.values()]
  part = f"bn{number + (stage > 1)}" if norm else names[number]
  return f"blocks.{stage - 1}.{block}.{part}"


LEAVES = {"kernel": "weight", "scale": "weight"}
LEAVES |= {"bias": "bias", "mean": "running_mean", "var": "running_var"}


@pytest.mark.parametrize("timm", [False, True])
def test_names_of_files_lead_to_the_same(timm):
  network = models.EfficientNetLite(0.1, 1.1)
  variables = random_variables(network, IMAGES)
  blocks = sorted(name for name in variables["params"] if name.startswith("stage"))
  weights = {}
  for path, leaf in jax.tree.leaves_with_path(variables):
    *modules, last = [entry.key for entry in path[1:]]
    array = leaf.transpose(3, 2, 0, 1) if leaf.ndim == 4 else leaf
    weights[f"{file_name(modules, timm, blocks)}.{LEAVES[last]}"] = array
  heads = {"classifier.weight" if timm else "_fc.weight": np.ones((9, 1280))}
  found = models.import_weights(variables, weights | heads)
  jax.tree.map(np.testing.assert_array_equal, found, variables)


def test_statistics_move_by_a_hundredth():
  variables = random_variables(NARROW, IMAGES)

  @jax.jit
  def run(variables):  # compiles the first convolution alone
    _, moved = NARROW.apply(variables, IMAGES, train=True, mutable="batch_stats")
    return moved["batch_stats"]["stem_norm"]["var"]

  step = np.abs(run(variables) / variables["batch_stats"]["stem_norm"]["var"] - 0.99)
  assert np.all((step > 0) & (step < 0.5))


def test_parts_one_after_another_are_the_network():
  variables = random_variables(NARROW, IMAGES)
  expected = jax.jit(NARROW.apply)(variables, IMAGES)
  x, names = IMAGES, []
  for parts in ((0, 1), (1, 7), (7, 9)):
    part = NARROW.clone(parts=parts)
    names += jax.eval_shape(part.init, jax.random.key(0), x)["params"]
    x = jax.jit(part.apply)(variables, x)
  np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
  assert sorted(names) == sorted(variables["params"])  # each once

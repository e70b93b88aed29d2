"""Parameters from arrays with torch's names, written out by hand."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from flax import traverse_util

from spherejax import models
from spherejax.models import _weight_names
from tests import refusals

IMAGES = np.zeros((1, 16, 16, 3), np.float32)
RESNET = models.ResNet(blocks=(1, 1), widths=(2, 4), strides=(1, 2))
equal = np.testing.assert_array_equal


def parts(module, *leaves):
  return [f"{module}.{leaf}" for leaf in leaves]


def norm(module):
  return parts(module, "weight", "bias", "running_mean", "running_var")


RESNET_SHAPES = {
  "conv1.weight": (2, 3, 7, 7),
  **dict.fromkeys(norm("bn1"), (2,)),
  "layer1.0.conv1.weight": (2, 2, 3, 3),
  **dict.fromkeys(norm("layer1.0.bn1"), (2,)),
  "layer1.0.conv2.weight": (2, 2, 3, 3),
  **dict.fromkeys(norm("layer1.0.bn2"), (2,)),
  "layer2.0.conv1.weight": (4, 2, 3, 3),
  **dict.fromkeys(norm("layer2.0.bn1"), (4,)),
  "layer2.0.conv2.weight": (4, 4, 3, 3),
  **dict.fromkeys(norm("layer2.0.bn2"), (4,)),
  "layer2.0.downsample.0.weight": (4, 2, 1, 1),
  **dict.fromkeys(norm("layer2.0.downsample.1"), (4,)),
  "layer2.0.downsample.1.num_batches_tracked": (),
  "fc.weight": (10, 4),
  "fc.bias": (10,),
}


def draw(shapes):
  rng = np.random.default_rng(0)
  return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}


def shapes_of(network, images=IMAGES):
  return jax.eval_shape(network.init, jax.random.key(0), images)


def zeros_of(network, images=IMAGES):
  shapes = shapes_of(network, images)
  return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


@pytest.fixture(scope="module")
def variables():
  return zeros_of(RESNET)


@pytest.fixture
def weights():
  return draw(RESNET_SHAPES)


@pytest.mark.parametrize("shortcut", ["downsample", "shortcut"])
def test_every_array_arrives(variables, weights, shortcut):
  weights = {n.replace("downsample", shortcut): x for n, x in weights.items()}
  before = jax.tree.map(np.array, variables)
  filled = models.import_weights(variables, weights)
  flat = traverse_util.flatten_dict(filled, sep="/")
  for ours, theirs in (
    ("stem", "conv1"),
    ("stage1_0/convolution2", "layer1.0.conv2"),
    ("stage2_0/convolution1", "layer2.0.conv1"),
    ("stage2_0/shortcut", f"layer2.0.{shortcut}.0"),
  ):
    kernel = np.einsum("oihw->hwio", weights[f"{theirs}.weight"])
    equal(flat[f"params/{ours}/kernel"], kernel)
  for ours, theirs in (
    ("stem_norm", "bn1"),
    ("stage1_0/norm2", "layer1.0.bn2"),
    ("stage2_0/norm1", "layer2.0.bn1"),
    ("stage2_0/shortcut_norm", f"layer2.0.{shortcut}.1"),
  ):
    equal(flat[f"params/{ours}/scale"], weights[f"{theirs}.weight"])
    equal(flat[f"params/{ours}/bias"], weights[f"{theirs}.bias"])
    equal(flat[f"batch_stats/{ours}/mean"], weights[f"{theirs}.running_mean"])
    equal(flat[f"batch_stats/{ours}/var"], weights[f"{theirs}.running_var"])
  jax.tree.map(equal, variables, before)  # nothing was written into them
  jax.tree.map(equal, models.import_weights(shapes_of(RESNET), weights), filled)


def test_types_follow_the_network(variables, weights):
  short = {name: array.astype(jnp.bfloat16) for name, array in weights.items()}
  filled = models.import_weights(variables, short)
  assert {leaf.dtype for leaf in jax.tree.leaves(filled)} == {jnp.dtype(jnp.float32)}


def test_swin_of_torchvision():
  network = models.SwinT((1, 1), (1, 2), width=4, window=2)
  shapes = {"features.0.0.weight": (4, 3, 4, 4), "features.0.0.bias": (4,)}
  shapes["features.2.reduction.weight"] = (8, 16)
  widths = {"features.0.2": 4, "features.2.norm": 16, "norm": 8, "head": 8}
  for place, width, heads in (("features.1.0", 4, 1), ("features.3.0", 8, 2)):
    widths |= {f"{place}.norm1": width, f"{place}.norm2": width}
    for name, new, old in (
      ("attn.qkv", 3 * width, width),
      ("attn.proj", width, width),
      ("mlp.0", 4 * width, width),
      ("mlp.3", width, 4 * width),
    ):
      shapes |= {f"{place}.{name}.weight": (new, old), f"{place}.{name}.bias": (new,)}
    shapes[f"{place}.attn.relative_position_bias_table"] = (9, heads)
    shapes[f"{place}.attn.relative_position_index"] = (16,)
  for module, width in widths.items():
    shapes |= dict.fromkeys(parts(module, "weight", "bias"), (width,))
  weights = draw(shapes)
  params = models.import_weights(shapes_of(network), weights)["params"]
  flat = traverse_util.flatten_dict(params, sep="/")
  for ours, theirs in (
    ("merge2/reduction/kernel", "features.2.reduction.weight"),
    ("stage2_0/dense2/kernel", "features.3.0.mlp.3.weight"),
    ("stage1_0/attention/qkv/kernel", "features.1.0.attn.qkv.weight"),
    ("embed_norm/scale", "features.0.2.weight"),
  ):
    equal(flat[ours], weights[theirs].T)
  table = weights["features.1.0.attn.relative_position_bias_table"]
  equal(flat["stage1_0/attention/relative_bias"], table)


def test_a_fresh_first_convolution(weights):
  """DIST Article IV: weights of photographs, images of one channel."""
  grey = zeros_of(RESNET, IMAGES[..., :1])
  shape = r"1 have another shape: stem/kernel \(7, 7, 1, 2"
  with pytest.raises(ValueError, match=shape):
    models.import_weights(grey, weights)
  filled = models.import_weights(grey, weights, fresh=("stem/",))
  assert filled["params"]["stem"]["kernel"] is grey["params"]["stem"]["kernel"]
  equal(filled["params"]["stem_norm"]["scale"], weights["bn1.weight"])
  weights.pop("conv1.weight")
  again = models.import_weights(grey, weights, fresh=("stem/",))
  jax.tree.map(equal, again, filled)


def test_names_of_ones_own():
  variables = {"params": {"first": {"kernel": jnp.zeros((2, 3))}, "b": jnp.zeros(1)}}
  weights = {"a.weight": np.arange(6.0).reshape(3, 2), "b": np.ones(1)}
  names = [("first/", "a.")]
  filled = models.import_weights(variables, weights, names=names)
  expected = np.arange(6.0).reshape(3, 2).T
  equal(filled["params"]["first"]["kernel"], expected)
  assert filled["params"]["b"] == 1
  with pytest.raises(ValueError, match=r"give b to .* and to"):
    models.import_weights(variables, weights, names=[("^.*$", "b")])


def test_weights_beyond_the_networks_numbers():
  variables = {"params": {"a": jnp.zeros(2)}}
  for value in (np.inf, 1e38):
    filled = models.import_weights(variables, {"a": np.array([value, np.nan])})
    equal(filled["params"]["a"], np.float32([value, np.nan]))
  with pytest.raises(ValueError, match=r"'a' must fit into float32, got 1e\+39"):
    models.import_weights(variables, {"a": np.array([1e39, np.nan])})


def refused(match, variables, weights, **options):
  call = functools.partial(models.import_weights, variables, weights, **options)
  refusals.check(call, match)


def test_names_and_beginnings_of_other_types(variables, weights, unchecked):
  fails = functools.partial(refused, variables=variables, weights=weights)
  for name in ("fresh", "ignore"):
    fails(f"TypeError: {name} must be a sequence, got 'stem/'", **{name: "stem/"})
  for wrong in ("ab", ("a",), ("a", 1), None):
    fails("TypeError: must hold pairs of texts, got", names=[wrong])
  for wrong in (("(a", "b"), ("a", r"\2")):
    fails("must hold regular expressions", names=[wrong])


def test_what_does_not_fit_is_named(variables, weights):
  def fails(match, variables=variables, weights=weights, **options):
    refused(match, variables, weights, **options)

  fails(r"2 of the weights are not in the network: fc\.weight, fc\.bias$", ignore=())
  fewer = {name: array for name, array in weights.items() if name != "bn1.bias"}
  missing = r"1 of the network are not in the weights: stem_norm/bias \(bn1\.bias\)$"
  fails(missing, weights=fewer)
  more = {**weights, "layer9.weight": np.ones(1)}
  fails(r"1 of the weights are not in the network: layer9\.weight$", weights=more)
  wider = shapes_of(RESNET.clone(widths=(2, 6)))
  fails(r"15 have another shape: stage2_0/norm1/mean \(6,\) \(layer2.0.bn1", wider)
  deeper = shapes_of(RESNET.clone(blocks=(1, 2)))
  fails(r"10 of the network .*stage2_1/norm1/mean", deeper)
  narrower = shapes_of(RESNET.clone(blocks=(1,), widths=(2,), strides=(1,)))
  fails(r"15 of the weights .*layer2\.0\.conv1", narrower)
  swin = shapes_of(models.SwinT((1,), (1,), 4))
  fails(r"of the network are not .*of the weights are not", swin)
  fails("of the network are not in the weights", weights={"other": np.ones(1)})
  needed = "fresh needs the values of stem/kernel, got its"
  fails(needed, shapes_of(RESNET), fresh=("stem/",))
  turned = weights | {"bn1.weight": weights["bn1.weight"] + 1j}
  fails("must be real, got complex64 at 'bn1", weights=turned)


PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.", "encoder.")


@pytest.mark.parametrize(
  "prefix", [*PREFIXES, "module._orig_mod.", "_orig_mod.model.backbone.", "model." * 3]
)
def test_prefixes_of_wrappers_are_taken_off(variables, tmp_path, prefix, weights):
  wrapped = {prefix + name: array for name, array in weights.items()}
  expected = models.import_weights(variables, weights)
  jax.tree.map(equal, models.import_weights(variables, wrapped), expected)
  file = tmp_path / "weights"
  safetensors.numpy.save_file(wrapped, file)
  assert set(models.read_weights(file)) == set(weights)
  # Whoever names the wrapper has to be understood, too, whatever is taken off already.
  names = _weight_names.TABLES["ResNet of torchvision and timm"]
  for given in (wrapped, weights):
    for table in ([*names, ("^", prefix)], names):
      found = models.import_weights(variables, given, names=table)
      jax.tree.map(equal, found, expected)
  ignore = [f"{prefix}fc."]
  jax.tree.map(
    equal, models.import_weights(variables, wrapped, ignore=ignore), expected
  )


@pytest.mark.parametrize("prefix", [*PREFIXES, "student.net.", "0."])
def test_a_prefix_of_some_names_is_named(variables, prefix, weights):
  some = {n if n.startswith("fc.") else prefix + n: x for n, x in weights.items()}
  with pytest.raises(ValueError, match="do not fit") as caught:
    models.import_weights(variables, some)
  said = r"30 of the weights fit behind the prefix '(.*?)': give (.*)\Z"
  behind = re.search(said, str(caught.value))
  assert behind is not None, caught.value
  assert behind[1] == prefix
  given = eval(behind[2], {"weights": some})  # what the message says helps
  expected = models.import_weights(variables, weights)
  jax.tree.map(equal, models.import_weights(variables, given), expected)


def test_weights_of_a_wrapped_network_of_another_kind(variables):
  swin = {"student.patch_embed.proj.weight": np.zeros((4, 3, 4, 4))}
  with pytest.raises(ValueError, match="do not fit") as caught:
    models.import_weights(variables, swin)
  assert "prefix" not in str(caught.value)

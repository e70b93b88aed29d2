"""Every network: sizes in print, what it refuses, training, half precision."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import models
from spherejax.models import _bn_inception, _inception
from tests import refusals
from tests.models import oracles


def started(network, shape, dtype="float32"):
  """Output and variables for images of a shape, without computing them."""
  images = jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
  return jax.eval_shape(network.init_with_output, jax.random.key(0), images)


def random_variables(network, images):
  return jax.tree.map(jnp.asarray, oracles.random_variables(network, images))


LITE = models.EfficientNetLite
SLOW = pytest.mark.slow  # networks whose parts the others have as well
NARROWING = models.ResNet20(blocks=1, strides=(1, 2, 1), stem_stride=2)
PROJECTED = 16 * 32 + 32 * 64  # between the channels of ResNet32's stages
WIDER = 2 * (32 + 64)  # norms of these projections


@pytest.mark.parametrize(
  ("network", "sides", "output", "classes", "size"),
  [
    (models.ResNet18(), (32, 32), (1, 1, 512), 1000, 11_689_512),
    (models.ResNet50(), (32, 32), (1, 1, 2048), 1000, 25_557_032),
    pytest.param(
      models.ResNet101(), (32, 32), (1, 1, 2048), 1000, 44_549_160, marks=SLOW
    ),
    (models.ResNet32(), (32, 32), (8, 8, 64), 10, 464_154),
    *(
      (models.ResNet32(shortcut=name), (32, 32), (8, 8, 64), 10, 464_154 + more + WIDER)
      for name, more in (("projection", PROJECTED), ("projection_3x3", 9 * PROJECTED))
    ),
    (models.BNInception(), (224, 224), (7, 7, 1024), 1000, 11_295_240),
    pytest.param(
      models.BNInception(), (223, 230), (7, 7, 1024), 1000, 11_295_240, marks=SLOW
    ),
    (models.InceptionV3(), (299, 299), (8, 8, 2048), 1000, 23_834_568),
    (LITE(1.0, 1.0), (64, 64), (2, 2, 1280), 1000, 4_652_008),
    pytest.param(LITE(1.0, 1.1), (64, 64), (2, 2, 1280), 1000, 5_416_680, marks=SLOW),
    (LITE(1.1, 1.2), (64, 64), (2, 2, 1280), 1000, 6_092_072),
    (models.SwinT(), (224, 224), (7, 7, 768), 1000, 28_288_354),
  ],
)  # fmt: skip
def test_published_sizes(network, sides, output, classes, size):
  """The map, and the number of parameters with a linear classifier behind its mean."""
  found, variables = started(network, (1, *sides, 3))
  assert found.shape == (1, *output)
  inside = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
  assert inside + (output[-1] + 1) * classes == size


@pytest.mark.parametrize(
  ("network", "shape", "output"),
  [
    (models.ResNet20(), (32, 32, 3), (8, 8, 64)),
    (models.ResNet20(), (64, 64, 3), (16, 16, 64)),
    (NARROWING, (32, 32, 3), (8, 8, 64)),
    (models.Conv4(), (84, 84, 3), (5, 5, 64)),
    (models.ConvNet(), (16, 16, 1), (8, 8, 32)),
    (models.Simple6((3, 4, 3, 5, 4, 6)), (16, 8, 1), (2, 1, 6)),  # three halvings
  ],
)
def test_maps_of_small_networks(network, shape, output):
  found, variables = started(network, (1, *shape))
  assert found.shape == (1, *output)
  kernels = [x for x in jax.tree.leaves(variables["params"]) if x.shape[:2] == (3, 3)]
  if network == models.ResNet20():
    assert len(kernels) == 19  # and the classifier makes 20 layers
    size = sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
    assert 0.265e6 < size < 0.275e6
  if isinstance(network, models.Conv4):
    assert len(jax.tree.leaves(variables["params"])) == 16


SMALL = functools.partial(models.ResNet, blocks=(2, 1), widths=(2, 4), strides=(1, 2))
SWIN = functools.partial(models.SwinT, depths=(1, 1), heads=(1, 1), width=4)
IMAGES = (3, 9, 8, 2)


@pytest.mark.parametrize(
  ("network", "shape", "message"),
  [
    (models.ConvNet((8, 8), (1,)), IMAGES, r"each of the 2 widths, got \("),
    (models.ConvNet(groups=5), IMAGES, "divide 16 channels, got 5"),
    (models.ConvNet(frozen_norm=True), IMAGES, "'batch', got 'group'"),
    (models.Conv4(), (1, 15, 32, 1), r"16x16 .*\(1, 15, 32, 1"),
    (models.ResNet20(strides=(1,)), IMAGES, "each of the 3 widths"),
    (SMALL(strides=(1, 2, 2)), IMAGES, "strides must have one entry"),
    (SMALL(blocks=(1,)), IMAGES, "blocks must have one entry"),
    (SMALL(widths=(4, 2), shortcut="padding"), IMAGES, r"widths that grow.*\(4, 2\)"),
    (SMALL(), (8, 8, 3), r"\(8, 8, 3\)"),
    (SMALL(), "int32", "TypeError: int32"),
    (models.BNInception(2), (1, 30, 31, 3), r"32 n \+ 6.*\(1, 30, 31"),
    (models.BNInception(2), (1, 31, 39, 3), r"32 n \+ 6.*\(1, 31, 39"),
    (models.BNInception(3), (1, 31, 38, 3), "even and positive, got 3"),
    (models.BNInception(2), "int32", "TypeError: int32"),
    (models.BNInception(2), (31, 38, 3), r"\(31, 38, 3\)"),
    (models.InceptionV3(2), (1, 75, 74, 3), r"75x75, .* \(1, 75, 74, 3\)"),
    (models.InceptionV3(3), (1, 75, 75, 3), "even and positive, got 3"),
    (LITE(width=0.0), (1, 32, 32, 3), r"width must be in .*, got 0"),
    (LITE(depth=-1.0), (1, 32, 32, 3), r"depth must be in .*, got -1"),
    *(
      (LITE(parts=parts), (1, 32, 32, 3), "range within 0 to 9, got")
      for parts in ((0, 10), (3, 3), (-1, 2))
    ),
    (LITE(), (32, 32, 3), r"\(32, 32, 3\)"),
    (SWIN(heads=(1,)), (1, 8, 8, 3), "heads must have one entry"),
    (SWIN(heads=(1, 3)), (1, 8, 8, 3), "got 3 for 8 channels"),
    (SWIN(), (1, 3, 8, 3), "at least 4x4"),
    *(
      (
        SWIN(stochastic_depth=share), (1, 8, 8, 3),
        rf"stochastic_depth must be in \[0, 1\), got {share:g}",
      )
      for share in (1.0, 1.5)
    ),
    (models.Simple6((3, 4)), IMAGES, r"each of the 6 layers, got \(3, 4\)"),
    (models.Simple6(), (1, 7, 8, 1), r"least 8x8 .* \(1, 7, 8, 1\)"),
  ],
)  # fmt: skip
def test_errors(unchecked, network, shape, message):
  given = ((1, 31, 38, 3), shape) if isinstance(shape, str) else (shape,)
  refusals.check(functools.partial(started, network, *given), message)


@pytest.fixture
def few_blocks(monkeypatch):
  """One block of each stride in the Inception networks, to compile in less time."""
  for module in (_bn_inception, _inception):
    monkeypatch.setattr(module, "_BLOCKS", module._BLOCKS[2:4])


def images_of(*shape):
  return np.random.default_rng(3).normal(size=shape).astype(np.float32)


RESNET = models.ResNet((1, 1), (2, 4), (1, 2), stem="small")
NARROW = LITE(width=0.1, depth=0.3, parts=(0, 4))


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
  ("network", "shape", "blocks"),
  [
    (RESNET, (2, 14, 11, 3), 2),
    pytest.param(models.BNInception(2), (2, 31, 31, 3), 2, marks=SLOW),
    pytest.param(models.InceptionV3(2), (2, 75, 75, 3), 2, marks=SLOW),
    (NARROW, (2, 37, 34, 3), None),
    (models.ConvNet((4,), (1,), "batch"), IMAGES, None),
  ],
  ids=lambda x: type(x).__name__,
)
def test_frozen_norms_and_recomputed_blocks(network, shape, blocks):
  images = images_of(*shape)
  frozen = network.clone(frozen_norm=True)
  again = frozen.clone(remat=True) if hasattr(network, "remat") else frozen
  variables = random_variables(network, images)
  if blocks is not None:
    same = jax.eval_shape(again.init, jax.random.key(0), images)
    assert jax.tree.structure(same) == jax.tree.structure(variables)
    for other, count in ((frozen, 0), (again, blocks)):
      traced = jax.make_jaxpr(other.apply)(variables, images)
      found = sum("prevent_cse" in equation.params for equation in traced.eqns)
      assert found == count

  def step(network):
    def loss(params):
      output, updates = network.apply(
        {**variables, "params": params}, images, train=True, mutable=["batch_stats"]
      )
      return (output**2).mean(), updates.get("batch_stats")

    return jax.value_and_grad(loss, has_aux=True)(variables["params"])

  @jax.jit
  def run():
    plain = (network.apply(variables, images) ** 2).mean()
    return step(frozen), step(again), plain, step(network) if network is RESNET else ()

  ((value, stats), gradient), ((_, same), recomputed), expected, free = run()
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  for left in (stats, same):
    jax.tree.map(np.testing.assert_array_equal, left, variables["batch_stats"])
  close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)
  jax.tree.map(close, recomputed, gradient)
  for path, leaf in jax.tree.leaves_with_path(gradient):
    assert np.isfinite(leaf).all()
    assert bool((leaf != 0).any()) == ("norm" not in path[-2].key.lower()), path
  assert all(np.any(leaf) for leaf in jax.tree.leaves(free))  # norms, too


@pytest.mark.parametrize(
  ("network", "shape"),
  [
    (models.ConvNet((4,), (1,), "batch"), (8, 6, 6, 1)),
    (models.Conv4(4), (4, 16, 16, 1)),
    (models.BNInception(2), (4, 31, 31, 3)),
  ],
  ids=lambda x: type(x).__name__,
)
def test_statistics_of_all_devices(network, shape, monkeypatch):
  monkeypatch.setattr(_bn_inception, "_BLOCKS", ())
  images = images_of(*shape)
  variables = random_variables(network, images)

  def train(network, images):
    return network.apply(variables, images, train=True, mutable=["batch_stats"])

  @jax.jit
  def run(images):
    apart = functools.partial(train, network.clone(axis_name="batch"))
    parts = images.reshape(2, -1, *shape[1:])
    return train(network, images), jax.vmap(apart, axis_name="batch")(parts)

  (whole, expected), (parts, updates) = run(images)
  np.testing.assert_allclose(parts.reshape(whole.shape), whole, rtol=1e-4, atol=1e-4)
  before = jax.tree.leaves(variables["batch_stats"])
  pairs = zip(jax.tree.leaves(updates), jax.tree.leaves(expected), before, strict=True)
  for both, wanted, old in pairs:
    assert not np.isclose(wanted, old).any()
    for new in both:
      np.testing.assert_allclose(new, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("few_blocks")
@pytest.mark.parametrize(
  ("network", "shape"),
  [
    (models.ConvNet((4, 4), (1, 2), "batch"), (2, 16, 16, 3)),
    (models.ConvNet((4, 4), (1, 2), groups=2), (2, 16, 16, 3)),
    (models.Conv4(4), (2, 16, 16, 3)),
    (models.ResNet20(blocks=1, widths=(2, 4, 4)), (2, 16, 16, 3)),
    pytest.param(models.BNInception(2), (1, 31, 31, 3), marks=SLOW),
    (
      models.SwinT((2,), (2,), width=4, patch=2, window=3, stochastic_depth=0.0),
      (2, 15, 11, 3),
    ),
  ],
  ids=lambda x: type(x).__name__,
)
def test_half_precision_stays_half(network, shape):
  images = images_of(*shape)
  variables = jax.jit(network.init)(jax.random.key(1), images)

  @jax.jit
  def both(images):
    training = {"train": True, "mutable": "batch_stats"}
    short = images.astype(jnp.bfloat16)
    return [network.apply(variables, x, **training)[0] for x in (images, short)]

  full, half = map(np.asarray, both(images))
  assert (full.dtype, half.dtype) == (np.float32, jnp.bfloat16)
  assert np.abs(half.astype(np.float32) - full).mean() < 0.03 * np.abs(full).mean()

"""What a projector keeps of displacements and of changes, against loops in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage, stats

from experiments.frame import at_once
from experiments.self_supervision import geometry, runs
from experiments.self_supervision import settings as collapse_sets
from experiments.self_supervision.geometry import ALIGNMENT, LOCAL, OVERLAP
from experiments.self_supervision.settings import Settings
from experiments.self_supervision.training import Run
from spherejax import data
from tests.metrics.test_projector import unexplained


def inside(weights, move):
  """Share of a move in the column space of its weights."""
  return 1 - unexplained([move], weights)


def local(widths, kernels, h, moves):
  params = {f"layer{i}": {"kernel": x} for i, x in enumerate(kernels)}
  with at_once.on_host():
    params, h, moves = jax.tree.map(geometry.wide, (params, h, moves))
    found = geometry.local_maps(widths, params, h, moves, threshold=0.1)
    return {name: float(x) for name, x in found.items()}


def test_local_maps_of_two_hidden_layers():
  drawn = np.random.default_rng(0)
  kernels = [drawn.normal(size=shape) for shape in ((7, 5), (5, 4), (4, 3))]
  h, moves = drawn.normal(size=(2, 20, 7))
  aligned, ranks, entropies, shares = [], [], [], []
  for own, move in zip(h, moves, strict=True):
    weights, x = np.eye(7), own
    for number, kernel in enumerate(kernels):
      if number:
        active = x > 0
        weights, x = weights * active, x * active
      weights, x = weights @ kernel, x @ kernel
    np.testing.assert_allclose(own @ weights, x, atol=1e-12)  # SSL eq. 11
    values = np.linalg.svd(weights, compute_uv=False)
    ranks.append(np.sum(values >= 0.1 * values[0]) if values[0] else 0)
    aligned.append(inside(weights, move))
    entropies.append(np.exp(stats.entropy(values)) if values[0] else 0)
    shares.append(np.linalg.matrix_rank(weights) / 7)
  found = local((5, 4, 3), kernels, h, moves)
  assert found[ALIGNMENT] == pytest.approx(np.mean(aligned), rel=1e-8)
  assert found[LOCAL[0]] == pytest.approx(np.mean(ranks))
  assert found[LOCAL[1]] == pytest.approx(np.mean(entropies), rel=1e-8)
  assert found[geometry.CHANCE] == pytest.approx(np.mean(shares), rel=1e-6)
  assert 0.5 < np.mean(ranks) < 2.9  # or the masks would not matter
  linear = local((5,), kernels[:1], h, moves)
  expected = np.mean([inside(kernels[0], move) for move in moves])
  assert linear == {ALIGNMENT: pytest.approx(expected, rel=1e-8)}


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_overlaps_are_of_the_generator_of_the_first_half(noise):
  drawn = np.random.default_rng(1)
  dim, count = 5, 60
  generator, kernel = drawn.normal(size=(dim, dim)), drawn.normal(size=(dim, 2))
  h, scales = drawn.normal(size=(count, dim)), drawn.uniform(-0.4, 0.4, count)
  moved = h + scales[:, None] * (h @ generator.T) + noise * drawn.normal(size=h.shape)
  pairs = {"brightness": (moved, scales), "flip": (h @ generator.T, np.ones(count))}
  found = geometry.overlaps(kernel, h, pairs)
  scaled = scales[:30, None] * h[:30]
  pushed = h[30:] @ np.linalg.lstsq(scaled, (moved - h)[:30], rcond=None)[0]
  unseen = unexplained(pushed, kernel)
  assert found[f"{OVERLAP}brightness"] == pytest.approx(unseen, rel=1e-7)
  rest = (moved - h)[30:] - scales[30:, None] * pushed
  explained = 1 - np.sum(rest**2) / np.sum((moved - h)[30:] ** 2)
  assert found[f"{geometry.EXPLAINED}brightness"] == pytest.approx(explained, rel=1e-7)
  assert found[f"{geometry.EXPLAINED}flip"] == pytest.approx(1)
  assert (explained > 1 - 1e-9) == (noise == 0)
  # A generator that does nothing but what the projector does not see.
  null = np.linalg.svd(kernel.T)[2][2:]
  hidden = h + scales[:, None] * (h @ null.T @ drawn.normal(size=(3, 3)) @ null)
  shares = geometry.overlaps(kernel, h, {"zoom": (hidden, scales)})
  assert shares.keys() == {f"{OVERLAP}zoom", f"{geometry.EXPLAINED}zoom"}
  assert shares[f"{OVERLAP}zoom"] == pytest.approx(1)


@pytest.mark.parametrize("channels", [1, 3])
def test_changes_of_images(channels):
  """Pixel by pixel; a zoom by SciPy's bilinear look-up."""
  images = np.random.default_rng(2).uniform(size=(6, 8, 8, channels)).astype(np.float32)
  found = geometry.changed(jax.random.key(4), jnp.asarray(images))
  colours = {"saturation", "flip"} if channels == 3 else set()
  assert found.keys() == {"brightness", "contrast", "zoom"} | colours
  signed, share = (np.asarray(found[name][1]) for name in ("brightness", "zoom"))
  assert -0.4 <= signed.min() < 0 < signed.max() <= 0.4
  assert 0 <= share.min() < share.max() <= 0.4
  luma = images @ np.float32([0.299, 0.587, 0.114]) if channels == 3 else images[..., 0]
  for i, x in enumerate(images):
    bright = np.clip(x * (1 + signed[i]), 0, 1)
    np.testing.assert_allclose(found["brightness"][0][i], bright, atol=1e-5)
    mean = luma[i].mean()
    far = np.clip(mean + (1 + signed[i]) * (x - mean), 0, 1)
    np.testing.assert_allclose(found["contrast"][0][i], far, atol=1e-5)
    grid = 3.5 + (np.arange(8) - 3.5) * (1 - share[i])
    rows, columns = np.meshgrid(grid, grid, indexing="ij")
    for channel in range(channels):
      near = ndimage.map_coordinates(x[..., channel], (rows, columns), order=1)
      np.testing.assert_allclose(found["zoom"][0][i, ..., channel], near, atol=1e-4)
  if channels == 3:
    grey = luma[..., None]
    vivid = np.clip(grey + (1 + signed[:, None, None, None]) * (images - grey), 0, 1)
    np.testing.assert_allclose(found["saturation"][0], vivid, atol=1e-5)
    np.testing.assert_array_equal(found["flip"][0], images[:, :, ::-1])


@pytest.mark.slow
def test_a_network_is_measured_where_its_images_are():
  """Features of other images, or other displacements, would show."""
  settings = Settings(
    widths=(4, 4, 8), strides=(1, 2, 1), projector=(6,), convolution="native",
    measured=20,
  )  # fmt: skip
  study = collapse_sets.digits()
  given = runs.device_data(study)
  run = Run(settings, study.classes)
  variables = jax.jit(run.network.init)(jax.random.key(3), jnp.zeros((2, 8, 8, 1)))
  params, stats = variables["params"], variables["batch_stats"]
  columns = collapse_sets.cells([data.view_strengths("small")])
  hyper = {name: jnp.float32(x) for name, (x,) in columns.items()}
  _, shown = run.measured(given, params, stats, hyper)
  found = geometry.measured(run, given, params, stats, shown)
  kernel = np.asarray(params["projector"]["layer0"]["kernel"], np.float64)
  moves = np.asarray(shown["displacements"], np.float64)
  expected = np.mean([inside(kernel, move) for move in moves])
  assert found[ALIGNMENT] == pytest.approx(expected, rel=1e-5)
  # Eight pairs for each of eight dimensions, and as many to try.
  images = jnp.float32(study.train[:128]) / 255
  changes = geometry.changed(jax.random.key(0), images)

  @jax.jit
  def features(x):
    return run.network.apply(variables, given.normalized(x))[0]

  pairs = {name: (features(x), scale) for name, (x, scale) in changes.items()}
  right = geometry.overlaps(kernel, features(images), pairs)
  assert right.keys() == found.keys() - {ALIGNMENT}
  for name, x in right.items():
    assert found[name] == pytest.approx(x, rel=1e-3, abs=1e-3), name

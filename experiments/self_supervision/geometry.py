"""Geometry of a projector: displacements, changes of images, ranks, spectra.

A projector with hidden layers is an affine map near each image, SSL eq. 11. Changes
with a single strength, such as brightness, are treated as the action of a generator on
the features, SSL section 4. Spectra are computed in float64 on the host for all
presets: in float32, singular values below 1e-6 of the largest are noise.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from experiments.frame import at_once
from experiments.frame.training import Tree
from experiments.self_supervision.settings import Settings
from experiments.self_supervision.training import Arrays, Projector, Run, chance
from spherejax import data, metrics

ALL = ", all images"  # suffix of measures on all images
HALFWAY = ", halfway"  # suffix of spectra halfway through training
_SEEN = 1e-2  # share of the largest singular value from which a rank of features counts

_STRENGTH = 0.4  # strength of changes, as in large augmentation (SSL, table 2)
_PAIRS = 8  # pairs per feature dimension, to estimate a generator from
ALIGNMENT = "alignment with the displacements"
_NEGLIGIBLE = 1e-12  # relative to the largest singular value, in float64
MOVES = "in the kernel: what moves one view to the other"
DRAWN = "probe of random directions"
BY_CHANCE = "unexplained by random directions"
LOCAL = ("rank of local maps", "effective rank of local maps")
CHANCE = "alignment of as many random directions"
OVERLAP, EXPLAINED = "in the kernel: ", "explained by a generator: "


def wide(x: ArrayLike) -> Array:
  """Converts to float64, inside `on_host`."""
  return jnp.asarray(np.asarray(x, np.float64))


def to_numpy(tree: Mapping[str, Array]) -> dict[str, np.ndarray]:
  """Converts results of `on_host` to plain arrays."""
  return {name: np.asarray(x) for name, x in tree.items()}


def of_features(
  view_arrays: Mapping[str, Array], kernel: Array
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Ranks and logarithmic spectra of plain and augmented features; spectrum of W."""
  ranks, spectra = {}, {}
  with at_once.on_host():
    for name in ("h", "augmented h"):
      x = wide(view_arrays[f"features {name}"])
      rank = metrics.relative_rank(x, threshold=_SEEN)
      ranks[f"rank of {name}"] = rank / x.shape[1]
      ranks[f"effective rank of {name}"] = metrics.effective_rank(x)
      spectra[f"spectrum {name}"] = metrics.log_singular_values(x)
    spectra["spectrum W"] = metrics.log_singular_values(wide(kernel))
    return to_numpy(ranks), to_numpy(spectra)


def of_weights(settings: Settings, kernels: Array) -> dict[str, np.ndarray]:
  """Ranks of linear projectors [..., features, outputs]; empty for deeper ones."""
  if len(settings.projector) > 1:
    return {}
  with at_once.on_host():
    x = wide(kernels)
    ranks = {
      "effective rank": metrics.effective_rank(x),
      "relative rank": metrics.relative_rank(x, threshold=settings.threshold),
    }
    return to_numpy(ranks)


def of_views(
  settings: Settings, view_arrays: Mapping[str, Array], kernel: Array
) -> dict[str, np.ndarray]:
  """Overlap of moves between views with W's kernel, and a control of random weights."""
  if len(settings.projector) > 1:
    return {}
  with at_once.on_host():
    random_weights, weights = wide(chance(settings, kernel)), wide(kernel)
    far, moves = wide(view_arrays["displacements"]), wide(view_arrays["moves"])
    unexplained = metrics.unexplained_variance(far, random_weights)
    overlap = metrics.kernel_overlap(moves.T, weights)
    return to_numpy({BY_CHANCE: unexplained, MOVES: overlap})


def measured(
  run: Run, arrays: Arrays, params: Tree, stats: Tree, view_arrays: Mapping[str, Array]
) -> dict[str, np.ndarray]:
  """Measures the geometry of one network; `view_arrays` comes from `Run.measured`."""
  widths = run.settings.projector
  with at_once.on_host():
    weights = jax.tree.map(wide, params["projector"])
    h, moves = (wide(view_arrays[n]) for n in ("features augmented h", "displacements"))
    maps = local_maps(widths, weights, h, moves, threshold=run.settings.threshold)
    measures = to_numpy(maps)
  if len(widths) == 1:
    kernel = params["projector"]["layer0"]["kernel"]
    measures |= overlaps(kernel, *_pairs(run, arrays, params, stats))
  return measures


@functools.partial(jax.jit, static_argnums=0)
def local_maps(
  widths: tuple[int, ...], params: Tree, h: Array, moves: Array, threshold: float
) -> dict[str, Array]:
  """Mean share of an image's displacement in the span of its local map.

  For projectors with hidden layers, also returns the mean ranks of the maps, and the
  mean share in random subspaces of these ranks.
  """

  def aligned(move: Array, weights: Array) -> Array:
    return metrics.displacement_alignment(move[None], weights[None])[0]

  if len(widths) == 1:  # one map for all
    kernel = params["layer0"]["kernel"]
    return {ALIGNMENT: jnp.mean(jax.vmap(aligned, (0, None))(moves, kernel))}

  def project(x: Array) -> Array:
    return jnp.asarray(Projector(widths).apply({"params": params}, x))

  def measure(pair: tuple[Array, Array]) -> dict[str, Array]:
    point, move = pair
    weights = metrics.local_affine(project, point).weights
    rank = metrics.relative_rank(weights, threshold=threshold)
    return {
      ALIGNMENT: aligned(move, weights),
      LOCAL[0]: rank.astype(h.dtype),
      LOCAL[1]: metrics.effective_rank(weights),
      CHANCE: metrics.relative_rank(weights, threshold=_NEGLIGIBLE) / h.shape[1],
    }

  # One after another: all maps at once are large if there are many features.
  return jax.tree.map(jnp.mean, jax.lax.map(measure, (h, moves)))


def changed(key: Array, images: Array) -> dict[str, tuple[Array, Array]]:
  """Images [count, side, side, channels] after each change, and its strengths [count].

  Grey images have no change of colours and no flip. The strength of a flip is 1.
  """
  keys, count = jax.random.split(key, 3), len(images)
  drawn = functools.partial(jax.random.uniform, shape=(count,), maxval=_STRENGTH)
  signed, share = drawn(keys[0], minval=-_STRENGTH), drawn(keys[1], minval=0.0)
  factor = signed[:, None, None, None]
  # Luma, with the weights of the library.
  grey = data.random_grayscale(keys[2], images, probability=1.0)
  mean = grey.mean((1, 2, 3), keepdims=True)
  images_and_scales = {
    "brightness": (images * (1 + factor), signed),
    "contrast": (images + factor * (images - mean), signed),
    "zoom": (jax.vmap(_zoomed)(images, share), share),
  }
  if images.shape[-1] == 3:
    images_and_scales["saturation"] = images + factor * (images - grey), signed
    images_and_scales["flip"] = images[:, :, ::-1], jnp.ones(count)
  return {
    name: (jnp.clip(x, 0, 1), scale) for name, (x, scale) in images_and_scales.items()
  }


def _zoomed(image: Array, share: Array) -> Array:
  """Cuts a share off an image's sides and scales the middle to the original size."""
  scale = jnp.full(2, 1 / (1 - share))
  sides = jnp.asarray(image.shape[:2], image.dtype)
  return jax.image.scale_and_translate(
    image, image.shape, (0, 1), scale, (1 - scale) * sides / 2, "linear"
  )


@functools.partial(jax.jit, static_argnums=0)
def _pairs(
  run: Run, arrays: Arrays, params: Tree, stats: Tree
) -> tuple[Array, dict[str, tuple[Array, Array]]]:
  """Features of images, and features and strengths of the changed images."""
  dim = len(params["projector"]["layer0"]["kernel"])
  count = 2 * min(len(arrays.train) // 2, _PAIRS * dim)
  images = data.to_float(arrays.train[:count])

  def features(x: Array) -> Array:
    return run.features(arrays, params, stats, x)[0]

  key = jax.random.key(run.settings.seed)
  others = changed(key, images).items()
  return features(images), {name: (features(x), scale) for name, (x, scale) in others}


def overlaps(
  kernel: Array, before: Array, after: Mapping[str, tuple[Array, Array]]
) -> dict[str, np.ndarray]:
  """Share of each change's generator that W does not see.

  Generators are estimated on the first half of the images. Also returns the share of
  the change that they explain on the other half, below 0 if no generator is better.
  """
  half, measures = len(before) // 2, {}
  with at_once.on_host():
    weights, h = wide(kernel), wide(before)
    for name, (changed_features, strengths) in after.items():
      x, scales = wide(changed_features), wide(strengths)
      generator = metrics.estimate_generator(h[:half], x[:half], scales=scales[:half])
      pushed = h[half:] @ generator.T
      moves = x[half:] - h[half:]
      residual = moves - scales[half:, None] * pushed
      measures[f"{OVERLAP}{name}"] = metrics.kernel_overlap(pushed.T, weights)
      measures[f"{EXPLAINED}{name}"] = 1 - jnp.sum(residual**2) / jnp.sum(moves**2)
    return to_numpy(measures)

"""Times the Voronoi adversary of 1000 images and 60,000 sites in 784 dimensions, in l2.

The floor is the work that cannot be left out: as many gradients of the model as the
attack takes, and one product of the images with all sites. "ray" goes back along the
ray to the image's own site. So does the peer, a plain loop that checks all sites in
every step. "project" projects onto the cell instead. "project, bound" skips the second
pass over the sites; its margins are lower bounds.

    python -m benchmarks.voronoi                  # minutes on 2 cores
    python -m benchmarks.voronoi --smoke          # seconds
    python -m benchmarks.voronoi --json FILE
"""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from spherejax import voronoi

DIM, CLASSES, WIDTH, LATENT = 784, 10, 256, 12
SITES, IMAGES, PEER_IMAGES = 60_000, 1000, 100
STEPS = 40
EPSILON = 3.0  # most images have a few sites within twice this budget
STEP_SIZE = 2.5 * EPSILON / STEPS
NEIGHBOURS = 32
BLOCK = 125
MEMORY = 2**31


@functools.cache
def directions() -> np.ndarray:
  return np.random.default_rng(0).normal(size=(LATENT, DIM)).astype(np.float32)


def data(sites: int) -> np.ndarray:
  """Points of a curved set of few dimensions in the unit box, like images."""
  hidden = np.random.default_rng(1).normal(size=(sites, LATENT)).astype(np.float32)
  return 1 / (1 + np.exp(1 - hidden @ directions()))


@functools.cache
def weights() -> list[np.ndarray]:
  """Weights of a network that follows the set of points, like a trained network."""
  rng = np.random.default_rng(2)
  shapes = ((LATENT, WIDTH), (WIDTH, WIDTH), (WIDTH, CLASSES))
  layers = [(rng.normal(size=s) / s[0] ** 0.5).astype(np.float32) for s in shapes]
  return [directions().T @ layers[0] / DIM**0.5, *layers[1:]]


def logits(x: jax.Array) -> jax.Array:
  first, second, last = weights()
  return jax.nn.relu(jax.nn.relu(x @ first) @ second) @ last


def attack(
  x: jax.Array, site_index: jax.Array, sites: jax.Array, *, sweeps: int, exact: bool
) -> jax.Array:
  """Attacks the images."""
  return voronoi.voronoi_pgd(
    logits,
    x,
    jnp.argmax(logits(x), axis=1),
    site_index,
    sites,
    key=None,
    random_start=False,
    epsilon=EPSILON,
    neighbours=NEIGHBOURS,
    steps=STEPS,
    step_size=STEP_SIZE,
    sweeps=sweeps,
    exact=exact,
    mode="last",
    block_size=BLOCK,
  ).x_adv


def dense(x: jax.Array, site_index: jax.Array, sites: jax.Array) -> jax.Array:
  """Takes the same steps, each against all sites, by one product."""
  labels = jnp.argmax(logits(x), axis=1)
  squares = jnp.sum(sites**2, axis=1)
  itself = site_index[:, None] == jnp.arange(len(sites))[None]

  def loss(points: jax.Array) -> jax.Array:
    z = logits(points)
    return jnp.sum(
      jax.nn.logsumexp(z, 1) - jnp.take_along_axis(z, labels[:, None], 1)[:, 0]
    )

  def step(_, points: jax.Array) -> jax.Array:
    gradient = jax.grad(loss)(points)
    size = jnp.linalg.norm(gradient, axis=1, keepdims=True)
    delta = points + STEP_SIZE * gradient / jnp.maximum(size, 1e-30) - x
    # Onto ball and box: the multiple with the right norm after clipping.
    low, high = jnp.zeros((len(x), 1)), jnp.ones((len(x), 1))
    for _ in range(40):
      middle = (low + high) / 2
      clipped = jnp.clip(x + middle * delta, 0, 1) - x
      inside = jnp.linalg.norm(clipped, axis=1, keepdims=True) <= EPSILON
      low, high = jnp.where(inside, middle, low), jnp.where(inside, high, middle)
    delta = jnp.clip(x + high * delta, 0, 1) - x
    # Back along the ray, to the point where another site is as near.
    squared = squares[None] - 2 * x @ sites.T + jnp.sum(x**2, axis=1)[:, None]
    inner = delta @ sites.T - jnp.sum(delta * x, axis=1)[:, None]
    share = jnp.where(
      (inner > 0) & ~itself, squared / (2 * jnp.maximum(inner, 1e-9)), 1
    )
    return x + jnp.minimum(jnp.min(share, axis=1), 1)[:, None] * delta

  return jax.lax.fori_loop(0, STEPS, step, x)


def floor(x: jax.Array, site_index: jax.Array, sites: jax.Array) -> tuple:
  """Computes the gradients of all steps, and one product with all sites."""
  del site_index

  def step(_, points: jax.Array) -> jax.Array:
    return points + jax.grad(lambda p: jnp.sum(logits(p)[:, 0]))(points)

  def block(points: jax.Array) -> jax.Array:
    return jnp.max(points @ sites.T, axis=1)

  rows = x.reshape(-1, min(BLOCK, len(x)), DIM)
  return jax.lax.fori_loop(0, STEPS, step, x), jax.lax.map(block, rows)


def case(name: str, images: int, sites: int, repetitions: int) -> dict[str, Any]:
  """Compares ours with the floor and, for the way along the ray, with the peer."""
  points = data(sites)
  site_index = np.arange(images) * (sites // images)
  inputs = (points[site_index], site_index, points)
  sweeps, exact = 0 if name == "ray" else 20, "bound" not in name
  ours = functools.partial(attack, sweeps=sweeps, exact=exact)
  ways: dict[str, _measure.Contender] = {_measure.OURS: _measure.Contender(ours, 0)}
  if name == "ray":
    ways["dense"] = _measure.Contender(dense, 1e-2)
  ways["floor"] = _measure.Contender(floor)
  targets = (_measure.Target("floor", 1 / 2),)
  title = f"{images} of {sites}, {name}"
  return _measure.compare(title, inputs, ways, targets, repetitions=repetitions)


def memory(images: int, sites: int) -> None:
  """Runs once in this process, for its peak memory."""
  points = data(sites)
  site_index = np.arange(images) * (sites // images)
  ours = functools.partial(attack, sweeps=20, exact=True)
  jax.block_until_ready(jax.jit(ours)(points[site_index], site_index, points))
  _measure.print_peak_memory()


def main() -> None:
  """Runs the command line."""
  if sys.argv[1:2] == ["--memory"]:
    memory(*map(int, sys.argv[2:]))
    return
  options = _measure.parse(__doc__)
  images, peers, sites = (
    (16, 16, 400) if options.smoke else (IMAGES, PEER_IMAGES, SITES)
  )
  names = ("ray",) if options.smoke else ("ray", "project", "project, bound")
  works = {
    name: functools.partial(
      case, name, peers if name == "ray" else images, sites, options.repetitions
    )
    for name in names
  }
  _measure.run("voronoi", works, [], options)
  if not options.smoke and not options.only:
    peak = _measure.peak_memory(
      "benchmarks.voronoi", "--memory", str(images), str(sites)
    )
    print(
      f"peak memory of {images} images: {peak / 2**30:.2f} GiB, below "
      f"{MEMORY / 2**30:.0f}: {'yes' if peak < MEMORY else 'NO'}"
    )


if __name__ == "__main__":
  main()

"""Compares attacks on the same weights: time, success and least distances.

Two networks are attacked on 256 images each: dense layers trained on digits, and a
small convolutional network on images of CIFAR's size. The floor is the model's own
gradient, as often as the attack needs it. "torch floor" is the same in torch, whose
convolutions are faster on a CPU. So each library's time can be compared with its own
model's.

foolbox comes with the extra `bench`. torchattacks does not, because its requirements
conflict with newer libraries: `pip install --no-deps torchattacks` after that extra.

    python -m benchmarks.attacks                  # a quarter of an hour on 2 cores
    python -m benchmarks.attacks --only digits    # a minute, without the convolutions
    python -m benchmarks.attacks --smoke          # seconds
    python -m benchmarks.attacks --json FILE
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.console
import rich.table
import sklearn.datasets
from jax import Array

from benchmarks import _attack_peers, _measure
from benchmarks._attack_cases import CASES, CLASSES, FOOLBOX, TORCHATTACKS, Weights
from spherejax import losses

TORCH_FLOOR = "torch floor"


def dense(weights: Weights, x: Array) -> Array:
  """Logits for images [batch, 8, 8, 1]."""
  x = x.reshape(len(x), -1)
  for kernel, bias in weights[:-1]:
    x = jax.nn.relu(x @ kernel + bias[None])
  return x @ weights[-1][0] + weights[-1][1][None]


def convolutional(weights: Weights, x: Array) -> Array:
  """Logits for images [batch, 32, 32, 3]."""
  for place, (kernel, bias) in enumerate(weights[:-1]):
    x = jax.lax.conv_general_dilated(
      x,
      kernel,
      (1 + (place > 0),) * 2,
      ((1, 1), (1, 1)),
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    x = jax.nn.relu(x + bias[None, None, None])
  return x.mean((1, 2)) @ weights[-1][0] + weights[-1][1][None]


def _random_weights(shapes: list[tuple[int, ...]], seed: int) -> Weights:
  random = np.random.default_rng(seed)
  return [
    (
      jnp.asarray(
        random.normal(size=s) * np.sqrt(2 / np.prod(s[:-1])), dtype=jnp.float32
      ),
      jnp.zeros(s[-1], jnp.float32),
    )
    for s in shapes
  ]


@functools.cache
def digits(count: int) -> tuple[Callable, Weights, Array, Array]:
  """Trains a network of 256 and 256 units on the images that are attacked."""
  images, labels = sklearn.datasets.load_digits(return_X_y=True)
  x, y = jnp.asarray(images / 16, jnp.float32).reshape(-1, 8, 8, 1), jnp.asarray(labels)
  weights = _random_weights([(64, 256), (256, 256), (256, CLASSES)], 0)
  optimiser = optax.adam(1e-3)

  def step(carry, _):
    weights, state = carry
    gradient = jax.grad(lambda w: losses.softmax(dense(w, x), y).mean())(weights)
    updates, state = optimiser.update(gradient, state)
    return (optax.apply_updates(weights, updates), state), None

  train = jax.jit(lambda carry: jax.lax.scan(step, carry, length=60)[0][0])
  weights = train((weights, optimiser.init(weights)))
  return dense, weights, x[:count], dense(weights, x[:count]).argmax(1)


@functools.cache
def images(count: int) -> tuple[Callable, Weights, Array, Array]:
  """Random weights and images, with the network's decisions as labels."""
  weights = _random_weights(
    [(3, 3, 3, 8), (3, 3, 8, 16), (3, 3, 16, 16), (16, CLASSES)], 1
  )
  x = jnp.asarray(np.random.default_rng(0).random((count, 32, 32, 3)), jnp.float32)
  return convolutional, weights, x, convolutional(weights, x).argmax(1)


def floor(network: Callable, count: int):
  """Computes `count` gradients of the model."""

  def run(weights, x, y):
    def total(x):
      return losses.softmax(network(weights, x), y).sum()

    def step(x, _):
      return x + 1e-9 * jax.grad(total)(x), None

    return jax.lax.scan(step, x, length=count)[0]

  return run


def compare(name: str, data: str, options: _measure.Options, peers: list[str]) -> dict:
  """Row of the table: times, success and distances."""
  case = CASES[name]
  count = 32 if options.smoke else 256
  network, weights, x, y = (digits if data == "digits" else images)(count)
  size = case.sizes[2 if options.smoke else int(data != "digits")]

  def ours(weights, x, y):
    result = case.ours(lambda x: network(weights, x), x, y, size)
    distance = jnp.linalg.norm((result.x_adv - x).reshape(len(x), -1), axis=1)
    broken = jnp.where(result.success, distance, jnp.nan)
    return result.success.mean()[None], jnp.nanmedian(broken)[None]

  start = time.perf_counter()
  compiled = jax.jit(ours).lower(weights, x, y).compile()
  compile_seconds = time.perf_counter() - start
  ways = {_measure.OURS: _measure.Contender(compiled, 0, compiled=False)}
  targets, them = [], {}
  has = {FOOLBOX: case.foolbox, TORCHATTACKS: case.torchattacks}
  for peer in peers:
    if has[peer] is not None:
      call = them[peer] = _attack_peers.theirs(peer, case, weights, x, y, size)
      rate = lambda *_, call=call: call()[:1]  # noqa: E731
      ways[peer] = _measure.Contender(rate, case.agrees, compiled=False)
      if peer == FOOLBOX and data == "digits":
        targets.append(_measure.Target(peer, 2))
  if case.gradients is not None:
    gradients = case.gradients(size)
    ways["floor"] = _measure.Contender(floor(network, gradients))
    if name in ("PGD", "APGD"):
      targets.append(_measure.Target("floor", 1 / 1.1))
    if peers and not options.smoke:
      floor_of_torch = _attack_peers.torch_floor(weights, x, y, gradients)
      ways[TORCH_FLOOR] = _measure.Contender(floor_of_torch, compiled=False)
  row = _measure.compare(
    f"{data}, {name} of {size}",
    (weights, x, y),
    ways,
    tuple(targets),
    repetitions=options.repetitions,
  )
  row["compile_seconds"][_measure.OURS] = compile_seconds
  calls = {_measure.OURS: compiled, **them}
  row["found"] = {}
  for way, call in calls.items():
    rate, distance = call(weights, x, y)
    row["found"][way] = {"success": float(rate[0]), "distance": float(distance[0])}
  if case.minimal and them:
    row["not larger"] = all(no_larger(row["found"], peer) for peer in them)
  return row


def no_larger(results: dict[str, dict[str, float]], peer: str) -> bool:
  """True if our median distance is at most the peer's; 1 % more counts as chance."""
  return results[_measure.OURS]["distance"] <= 1.01 * results[peer]["distance"]


def print_found(rows: list[dict[str, Any]]) -> None:
  """Prints success and distances; ours must not be larger than the peers'."""
  table = rich.table.Table(title="what was found, and overhead over the own gradients")
  for heading in ("case", "", "success", "median l2", "not larger", "overhead"):
    table.add_column(heading, justify="left" if heading in ("case", "") else "right")
  for row in rows:
    times = row["milliseconds"]
    for way, result in row["found"].items():
      floor_time = times.get("floor" if way == _measure.OURS else TORCH_FLOOR)
      wanted = "not larger" in row and way != _measure.OURS
      better = wanted and no_larger(row["found"], way)
      table.add_row(
        row["case"] if way == _measure.OURS else "",
        way,
        f"{result['success']:.3f}",
        f"{result['distance']:.4f}",
        ("yes" if better else "NO") if wanted else "",
        "" if floor_time is None else f"{100 * (times[way] / floor_time - 1):.0f} %",
      )
    table.add_section()
  rich.console.Console().print(table)


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__)
  known = (FOOLBOX, TORCHATTACKS)
  peers = [peer for peer in known if not _measure.lacking(peer, "torch")]
  missing = [peer for peer in known if peer not in peers]
  works = {
    f"{data}, {name}": functools.partial(compare, name, data, options, peers)
    for data in (("digits",) if options.smoke else ("digits", "images"))
    for name in (("PGD", "DeepFool") if options.smoke else CASES)
  }
  print_found(_measure.run("attacks", works, missing, options))


if __name__ == "__main__":
  main()

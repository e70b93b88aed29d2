"""Attacks: time, success and least distances on the same weights as the peers'.

256 images: digits with a trained network of dense layers, and the size of CIFAR with a
small convolutional one. The floor is the model's own gradient, as often as the attack
needs it; "torch floor" the same in torch, whose convolutions are faster on a CPU, so
that each library has its overhead over its own model beside its time.

foolbox comes with the extra `bench`. torchattacks does not, because what it requires
contradicts newer libraries: `pip install --no-deps torchattacks` after that extra.

    python -m benchmarks.attacks                  # a quarter of an hour on 2 cores
    python -m benchmarks.attacks --only digits    # a minute, without the convolutions
    python -m benchmarks.attacks --smoke          # seconds
    python -m benchmarks.attacks --json FILE
"""

import functools
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.console
import rich.table
import sklearn.datasets
from jax import Array

from benchmarks import _measure
from spherejax import attacks, losses

FOOLBOX, TORCHATTACKS, TORCH_FLOOR = "foolbox", "torchattacks", "torch floor"
CLASSES = 10
Weights = list[tuple[Array, Array]]


class Case(NamedTuple):
  """One attack of ours and of the peers.

  Attributes:
    ours: of (logits_fn, x, labels, size) to an AttackResult; `size` is the steps.
    foolbox: of (foolbox.attacks, size) to their attack; None if there is none.
    torchattacks: of (torchattacks, model, size, epsilon) to their attack, or None.
    gradients: how many of the model a size needs; None if that depends on the data.
    minimal: whether the least l2 distance is sought, and not success at epsilon.
    sizes: steps for digits, for images and for the smoke.
    agrees: how far success rates may be apart.
  """

  ours: Callable[..., Any]
  foolbox: Callable[..., Any] | None
  torchattacks: Callable[..., Any] | None
  gradients: Callable[[int], int] | None
  minimal: bool
  sizes: tuple[int, int, int]
  agrees: float


EPSILON = 0.08
CASES = {
  "FGSM": Case(
    lambda f, x, y, n: attacks.fgsm(f, x, y, epsilon=EPSILON, mode="last"),
    lambda them, n: them.LinfFastGradientAttack(),
    lambda them, model, n, e: them.FGSM(model, eps=e),
    lambda n: 1,
    False,
    (1, 1, 1),
    0.01,
  ),
  "PGD": Case(
    lambda f, x, y, n: attacks.bim(f, x, y, epsilon=EPSILON, steps=n, mode="last"),
    lambda them, n: them.LinfProjectedGradientDescentAttack(
      rel_stepsize=2.5 / n, steps=n, random_start=False
    ),
    lambda them, model, n, e: them.PGD(
      model, eps=e, alpha=2.5 * e / n, steps=n, random_start=False
    ),
    lambda n: n,
    False,
    (40, 40, 5),
    0.01,
  ),
  "APGD": Case(
    lambda f, x, y, n: attacks.apgd(
      f, x, y, key=jax.random.key(0), epsilon=EPSILON, steps=n
    ),
    None,
    lambda them, model, n, e: them.APGD(model, eps=e, steps=n, n_restarts=1),
    lambda n: n + 1,
    False,
    (100, 40, 10),
    0.02,
  ),
  "DeepFool": Case(
    lambda f, x, y, n: attacks.deepfool(f, x, y, steps=n),
    lambda them, n: them.L2DeepFoolAttack(steps=n, overshoot=0.02),
    None,  # crosses the border for half of the digits only
    None,
    True,
    (50, 50, 50),
    0.02,
  ),
  "C&W": Case(
    lambda f, x, y, n: attacks.carlini_wagner(
      f, x, y, steps=n, rounds=9, first_weight=1e-3
    ),
    lambda them, n: them.L2CarliniWagnerAttack(
      binary_search_steps=9, steps=n, stepsize=0.01, initial_const=1e-3
    ),
    None,  # searches no weight, so that it is another problem
    lambda n: 9 * n,
    True,
    (100, 25, 100),
    0.05,
  ),
  "FAB": Case(
    lambda f, x, y, n: attacks.fab(f, x, y, steps=n),
    None,
    lambda them, model, n, e: them.FAB(
      model, norm="L2", eps=10.0, steps=n, n_restarts=1, n_classes=CLASSES
    ),
    None,
    True,
    (40, 10, 5),
    0.02,
  ),
}


def dense(weights: Weights, x: Array) -> Array:
  """Logits of [batch, 8, 8, 1]."""
  x = x.reshape(len(x), -1)
  for kernel, bias in weights[:-1]:
    x = jax.nn.relu(x @ kernel + bias[None])
  return x @ weights[-1][0] + weights[-1][1][None]


def convolutional(weights: Weights, x: Array) -> Array:
  """Logits of [batch, 32, 32, 3]."""
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
  """A network of 256 and 256 units, trained on the images that it is attacked on."""
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
  """Random weights, and the decisions of the network for labels."""
  weights = _random_weights(
    [(3, 3, 3, 8), (3, 3, 8, 16), (3, 3, 16, 16), (16, CLASSES)], 1
  )
  x = jnp.asarray(np.random.default_rng(0).random((count, 32, 32, 3)), jnp.float32)
  return convolutional, weights, x, convolutional(weights, x).argmax(1)


def in_torch(weights: Weights):
  """The same network in torch, of [batch, channels, height, width]."""
  import torch

  layers: list[Any] = []
  for place, (kernel, bias) in enumerate(weights):
    array, last = np.asarray(kernel), place == len(weights) - 1
    if array.ndim == 4:
      layer = torch.nn.Conv2d(array.shape[2], array.shape[3], 3, 1 + (place > 0), 1)
      array = array.transpose(3, 2, 0, 1)
    else:
      layer = torch.nn.Linear(*array.shape)
      array = array.T
    layer.weight.data = torch.tensor(np.ascontiguousarray(array))
    assert layer.bias is not None
    layer.bias.data = torch.tensor(np.array(bias))
    convolved = np.asarray(weights[0][0]).ndim == 4
    if last and convolved:
      layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    elif place == 0 and not convolved:
      layers.append(torch.nn.Flatten())
    layers += [layer] if last else [layer, torch.nn.ReLU()]
  return torch.nn.Sequential(*layers).eval()


def theirs(
  name: str, case: Case, weights: Weights, x: Array, y: Array, size: int
) -> Callable[..., Any]:
  """A peer's attack: of anything to success rate and median l2 distance."""
  import torch

  network = in_torch(weights)
  images = torch.tensor(np.array(x).transpose(0, 3, 1, 2).copy())
  labels = torch.tensor(np.array(y), dtype=torch.int64)
  if name == FOOLBOX and case.foolbox is not None:
    import foolbox

    model = foolbox.PyTorchModel(  # pyright: ignore[reportPrivateImportUsage]
      network, bounds=(0, 1), device="cpu"
    )
    attack = case.foolbox(foolbox.attacks, size)

    def run():
      epsilon = None if case.minimal else EPSILON
      return attack(model, images, labels, epsilons=epsilon)[1]

  else:
    assert case.torchattacks is not None
    # By name: it belongs to no extra, its requirements contradict newer ones.
    peer = importlib.import_module(TORCHATTACKS)
    attack = case.torchattacks(peer, network, size, EPSILON)

    def run():
      return attack(images, labels)

  def measure(*_):
    found = run().detach()
    with torch.no_grad():
      # Where foolbox's Carlini-Wagner fails it returns an image of zeros.
      kept = found.flatten(1).any(1)
      success = (network(found).argmax(1) != labels) & kept
    moved = (found - images).flatten(1).norm(dim=1)
    broken = moved[success].numpy()
    distance = np.median(broken) if len(broken) else np.nan
    return success.float().mean().numpy()[None], np.asarray([distance])

  return measure


def torch_floor(weights: Weights, x: Array, y: Array, count: int):
  """So many gradients of the model in torch."""
  import torch

  network = in_torch(weights)
  images = torch.tensor(np.array(x).transpose(0, 3, 1, 2).copy())
  labels = torch.tensor(np.array(y), dtype=torch.int64)

  def run(*_):
    point = images.clone().requires_grad_()
    for _ in range(count):
      loss = torch.nn.functional.cross_entropy(network(point), labels, reduction="sum")
      (gradient,) = torch.autograd.grad(loss, point)
      point = (point + 1e-9 * gradient).detach().requires_grad_()
    return point.detach().numpy()

  return run


def floor(network: Callable, count: int):
  """So many gradients of the model."""

  def run(weights, x, y):
    def total(x):
      return losses.softmax(network(weights, x), y).sum()

    def step(x, _):
      return x + 1e-9 * jax.grad(total)(x), None

    return jax.lax.scan(step, x, length=count)[0]

  return run


def compare(name: str, data: str, options: _measure.Options, peers: list[str]) -> dict:
  """One row: times, success and distances."""
  case = CASES[name]
  count = 32 if options.smoke else 256
  network, weights, x, y = (digits if data == "digits" else images)(count)
  size = case.sizes[2 if options.smoke else int(data != "digits")]

  def ours(weights, x, y):
    found = case.ours(lambda x: network(weights, x), x, y, size)
    distance = jnp.linalg.norm((found.x_adv - x).reshape(len(x), -1), axis=1)
    broken = jnp.where(found.success, distance, jnp.nan)
    return found.success.mean()[None], jnp.nanmedian(broken)[None]

  start = time.perf_counter()
  compiled = jax.jit(ours).lower(weights, x, y).compile()
  compile_seconds = time.perf_counter() - start
  ways = {_measure.OURS: _measure.Contender(compiled, 0, compiled=False)}
  targets, them = [], {}
  has = {FOOLBOX: case.foolbox, TORCHATTACKS: case.torchattacks}
  for peer in peers:
    if has[peer] is not None:
      call = them[peer] = theirs(peer, case, weights, x, y, size)
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
      own = torch_floor(weights, x, y, gradients)
      ways[TORCH_FLOOR] = _measure.Contender(own, compiled=False)
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


def no_larger(found: dict[str, dict[str, float]], peer: str) -> bool:
  """Whether our median distance is at most the peer's; a hundredth is chance."""
  return found[_measure.OURS]["distance"] <= 1.01 * found[peer]["distance"]


def print_found(rows: list[dict[str, Any]]) -> None:
  """Success and distances; ours must not be larger than the peers'."""
  table = rich.table.Table(title="what was found, and overhead over the own gradients")
  for heading in ("case", "", "success", "median l2", "not larger", "overhead"):
    table.add_column(heading, justify="left" if heading in ("case", "") else "right")
  for row in rows:
    times = row["milliseconds"]
    for way, found in row["found"].items():
      own = times.get("floor" if way == _measure.OURS else TORCH_FLOOR)
      wanted = "not larger" in row and way != _measure.OURS
      better = wanted and no_larger(row["found"], way)
      table.add_row(
        row["case"] if way == _measure.OURS else "",
        way,
        f"{found['success']:.3f}",
        f"{found['distance']:.4f}",
        ("yes" if better else "NO") if wanted else "",
        "" if own is None else f"{100 * (times[way] / own - 1):.0f} %",
      )
    table.add_section()
  rich.console.Console().print(table)


def main() -> None:
  """The command line."""
  options = _measure.parse(__doc__)
  known = (FOOLBOX, TORCHATTACKS)
  peers = [
    peer
    for peer in known
    if importlib.util.find_spec(peer) and importlib.util.find_spec("torch")
  ]
  missing = [peer for peer in known if peer not in peers]
  rows = []
  smoke = ("PGD", "DeepFool")
  for data in ("digits",) if options.smoke else ("digits", "images"):
    for name in smoke if options.smoke else CASES:
      if options.only in f"{data}, {name}":
        rows.append(compare(name, data, options, peers))
        print(f"done: {data}, {name}", flush=True)
        _measure.save("attacks", rows, missing, options)
  _measure.report("attacks", rows, missing, options)
  print_found(rows)


if __name__ == "__main__":
  main()

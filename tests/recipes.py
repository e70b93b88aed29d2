"""Methods that the library does not have, which `test_recipes.py` adds to it.

`ADDED` has the new or inserted text of each file of a recipe, by its path.
"""

import textwrap
from typing import NamedTuple


def code(text: str) -> str:
  return textwrap.dedent(text).lstrip("\n")


class Insert(NamedTuple):
  """Lines to insert in a file after the first line that begins with `after`."""

  after: str
  lines: str


class Made(NamedTuple):
  """A file that a module writes."""

  module: str
  path: str


class Export(NamedTuple):
  """An import line and a name in `__all__`; ruff puts them in order."""

  line: str
  name: str


WRITTEN = "docs/results.md"
"""File that a step about another file writes."""

POOLING = {
  "tests/pooling/cases/lse.py": code('''
    """A smooth maximum, by loops."""

    import math

    from spherejax import pooling
    from tests.pooling.cases._frame import Case


    def oracle(features, params):
      r, count = params["sharpness"], len(features)
      return [
        math.log(sum(math.exp(r * value) for value in channel) / count) / r
        for channel in features.T
      ]


    CASES = {
      "lse": Case(
        lambda features, params, where: pooling.lse(features, **params, where=where),
        oracle,
        {"sharpness": 2.0},
      )
    }
  '''),
  "spherejax/pooling/_lse.py": code('''
    """Log-sum-exp pooling."""

    import jax.numpy as jnp
    from jax import Array
    from jax.typing import ArrayLike
    from jaxtyping import Bool, Float, Real

    from spherejax import _checks, _numerics
    from spherejax.pooling import _tokens


    def lse(
      features: Float[ArrayLike, "batch *positions channels"],
      *,
      sharpness: Real[ArrayLike, ""] = 1.0,
      where: Bool[ArrayLike, "batch *positions"] | None = None,
    ) -> Float[Array, "batch channels"]:
      """Log-sum-exp pooling: a smooth maximum of each channel.

          log(mean_j exp(r x_j)) / r      over the kept positions j, r the sharpness

      Args:
        features: [batch, tokens, channels] or [batch, height, width, channels],
          floating.
        sharpness: positive, may be traced.
        where: boolean, the shape of `features` without channels, True keeps.

      Returns:
        [batch, channels], dtype of `features`. 0 where nothing is kept.

      Raises:
        TypeError: features not floating, where not boolean.
        ValueError: shapes do not match, a static sharpness not positive.

      Differentiable in: features, sharpness. Cost: one read of the features.

      Source: Pinheiro, Collobert 2015, "From image-level to pixel-level labeling".

      Example:
        >>> spherejax.pooling.lse(jnp.array([[[0.0], [0.0]]]))
        Array([[0.]], dtype=float32)
      """
      features = _checks.array("features", features)
      tokens, kept = _tokens.flatten(features, where)
      _checks.positive("sharpness", sharpness)
      r = _checks.scalar("sharpness", sharpness, tokens.dtype)
      if kept is None:
        kept = jnp.ones(tokens.shape[:2], bool)
      mask = jnp.broadcast_to(kept[..., None], tokens.shape)
      total = _numerics.logsumexp(r * tokens, mask, axis=1)
      number = jnp.log(_tokens.count(kept, tokens.dtype))[:, None]
      some = jnp.any(kept, axis=1)[:, None]  # -inf / r has no derivative
      return (jnp.where(some, total - number, 0) / r).astype(features.dtype)
  '''),
  "spherejax/pooling/__init__.py": Export(
    "from spherejax.pooling._lse import lse as lse\n", "lse"
  ),
  "tests/pooling/test_lse.py": code('''
    """Log-sum-exp pooling: its limits."""

    import jax.numpy as jnp
    import numpy as np

    from spherejax import pooling


    def test_sharp_is_the_maximum_and_blunt_the_mean():
      x = jnp.array([[[1.0], [3.0], [-1.0]]])
      np.testing.assert_allclose(pooling.lse(x, sharpness=1e4), [[3]], rtol=1e-3)
      np.testing.assert_allclose(pooling.lse(x, sharpness=1e-2), [[1]], rtol=2e-2)
  '''),
  "docs/choose.md": [
    Insert(
      "| `pooling.gap_gmp` |",
      "| `pooling.lse` | for a smooth maximum of each channel |\n",
    )
  ],
}
LOSS = {
  "tests/losses/cases/brier.py": code('''
    """The squared error of probabilities, by loops."""

    import math

    from spherejax import losses
    from tests.losses.cases._frame import CLASSES, Case


    def oracle(rows, labels, params):
      values = []
      for logits, y in zip(rows["logits"], labels, strict=True):
        terms = [math.exp(z - max(logits)) for z in logits]
        chances = [term / sum(terms) for term in terms]
        values.append(sum((p - (c == y)) ** 2 for c, p in enumerate(chances)))
      return values


    CASES = {
      "brier": Case(
        lambda rows, labels, params, where: losses.brier(
          rows["logits"], labels, where=where
        ),
        oracle,
        {"logits": ("logit", CLASSES)},
      )
    }
  '''),
  "spherejax/losses/_brier.py": code('''
    """The Brier score."""

    import jax.numpy as jnp
    from jax import Array
    from jax.typing import ArrayLike
    from jaxtyping import Bool, Float, Int

    from spherejax import _numerics
    from spherejax.losses import _classes


    def brier(
      logits: Float[ArrayLike, "batch classes"],
      labels: Int[ArrayLike, " batch"],
      *,
      where: Bool[ArrayLike, " batch"] | None = None,
    ) -> Float[Array, " batch"]:
      """Brier score: the squared error of the probabilities.

          loss_i = sum_c (softmax_c(z_i) - 1[c = y_i])^2

      Args:
        logits: [batch, classes], floating.
        labels: [batch], integer in [0, classes).
        where: [batch], boolean, True keeps. None keeps all.

      Returns:
        [batch], dtype of `logits`; 0 for masked rows. `loss.mean()` is the score.

      Raises:
        TypeError: logits are not floating, labels not integers.
        ValueError: shapes do not match, or a known label outside [0, classes).

      Differentiable in: logits. Cost: O(batch classes).

      Source: Brier 1950, "Verification of forecasts expressed in terms of probability".

      Example:
        >>> spherejax.losses.brier(jnp.zeros((1, 2)), jnp.array([0]))
        Array([0.5], dtype=float32)
      """
      batch = _classes.scores("logits", logits, labels, where)
      chances = jnp.exp(_numerics.log_softmax(batch.values))
      error = jnp.sum((chances - batch.class_mask) ** 2, axis=1)
      return jnp.where(jnp.any(batch.class_mask, axis=1), error, 0).astype(batch.dtype)
  '''),
  "spherejax/losses/__init__.py": Export(
    "from spherejax.losses._brier import brier as brier\n", "brier"
  ),
  "tests/losses/test_brier.py": code('''
    """The Brier score: its bounds."""

    import jax.numpy as jnp
    import numpy as np

    from spherejax import losses


    def test_sure_answers_cost_nothing_or_two():
      sure = 50 * jnp.eye(3)[:2]
      values = losses.brier(sure, jnp.array([0, 2]))
      np.testing.assert_allclose(values, [0, 2], atol=1e-6)
  '''),
  "docs/choose.md": [
    Insert(
      "| `losses.softmax` |",
      "| `losses.brier` | if wrong answers should cost at most 2 |\n",
    )
  ],
}
ATTACK = {
  "tests/attacks/test_one_step.py": code('''
    """One step from a random start: it ends where a linear model is worst."""

    import jax
    import jax.numpy as jnp
    import numpy as np

    from spherejax import attacks


    def test_a_long_step_reaches_the_corner_of_a_linear_model():
      weights = jnp.array([[1.0, -1.0], [-2.0, 0.5]])
      x, labels = jnp.array([[0.5, 0.5], [0.75, 0.25]]), jnp.array([1, 0])
      run = jax.jit(
        lambda x, key: attacks.one_step(
          lambda x: x @ weights, x, labels, key=key, epsilon=0.25, stride=2.0
        )
      )
      found = run(x, jax.random.key(0))
      corners = [[0.75, 0.25], [0.5, 0.5]]
      np.testing.assert_allclose(found.x_adv, corners, atol=1e-6)
  '''),
  "spherejax/attacks/_one_step.py": code('''
    """The gradient's sign once, from a random start."""

    import jax.numpy as jnp
    from jax import Array
    from jax.typing import ArrayLike
    from jaxtyping import Float, Int, Real

    from spherejax import _checks
    from spherejax.attacks._gradient import pgd
    from spherejax.attacks._problem import AttackResult, Model
    from spherejax.distances._lp import Norm


    def one_step(
      logits_fn: Model,
      x: Float[ArrayLike, "batch ..."],
      labels: Int[ArrayLike, " batch"],
      *,
      key: Array | None,
      epsilon: Real[ArrayLike, "..."],
      stride: Real[ArrayLike, ""] = 1.25,
      norm: Norm = "linf",
      index: Int[ArrayLike, " batch"] | None = None,
    ) -> AttackResult:
      """One step from a random start.

          x' = P(x_0 + stride epsilon s(grad loss(x_0))),   x_0 = P(x + uniform draw)

      Args:
        logits_fn: of [batch, ...] to [batch, classes].
        x: [batch, ...], floating, in [0, 1].
        labels: [batch], integer in [0, classes).
        key: a typed PRNG key.
        epsilon: radius, at least 0, one number or [batch]; may be traced.
        stride: positive, may be traced. The step in units of epsilon.
        norm: "linf", "l2" or "l1". Static.
        index: as in `pgd`.

      Returns:
        AttackResult.

      Raises:
        TypeError: as `pgd`.
        ValueError: as `pgd`, or a static stride that is not positive.

      Differentiable in: nothing. Cost: a gradient and 2 evaluations.

      Source: Wong, Rice, Kolter 2020, "Fast is better than free".

      Example:
        >>> x, labels = jnp.array([[0.5, 0.5]]), jnp.array([0])
        >>> spherejax.attacks.one_step(
        ...   lambda x: x, x, labels, key=jax.random.key(0), epsilon=0.25, stride=2.0
        ... ).x_adv
        Array([[0.25, 0.75]], dtype=float32)
      """
      _checks.batched("x", _checks.array("x", x))
      _checks.positive("stride", stride)
      size = _checks.scalar("stride", stride, jnp.float32)
      size *= _checks.array("epsilon", epsilon)
      return pgd(
        logits_fn,
        x,
        labels,
        key=key,
        epsilon=epsilon,
        norm=norm,
        steps=1,
        step_size=size,
        index=index,
      )
  '''),
  "spherejax/attacks/__init__.py": Export(
    "from spherejax.attacks._one_step import one_step as one_step\n", "one_step"
  ),
  "tests/attacks/test_every_attack.py": [
    Insert("BUDGETED = {", '  "one_step": attacks.one_step,\n'),
    Insert("CASES = [", '  ("one_step", "linf"),\n'),
  ],
  "docs/choose.md": [
    Insert(
      "| `attacks.fgsm` |",
      "| `attacks.one_step` | 3 | for robust training at the least price |\n",
    )
  ],
}
EXPERIMENT = {
  "experiments/mean_norms.py": code('''
    """Means of random unit vectors: the more of them, the shorter the mean.

    The default preset of `python -m experiments.mean_norms` takes a second.
    """

    import dataclasses

    import jax
    import jax.numpy as jnp

    from experiments.frame.study import Claim, Study, Table
    from spherejax import distances


    @dataclasses.dataclass(frozen=True)
    class Config:
      """Settings of the means."""

      seeds: int = 3
      """Draws of each mean."""
      count: int = 16
      """Vectors of the shorter list; the other one is four times as long."""


    PRESETS = {"cpu": Config(), "smoke": Config(seeds=2)}


    def norm(seed: int, count: int) -> float:
      """Norm of the mean of so many unit vectors."""
      vectors = jax.random.normal(jax.random.key(seed), (count, 8))
      return float(jnp.linalg.norm(distances.l2_normalize(vectors).mean(axis=0)))


    def measure(config: Config, _) -> tuple[Table, None]:
      """The norm of both means."""
      table = Table()
      for name, count in (("few", config.count), ("many", 4 * config.count)):
        table.add(name, "norm", [norm(seed, count) for seed in range(config.seeds)])
      return table, None


    CLAIMS = [
      Claim(
        "mean-norms",
        "few > many",
        lambda t: t.gain("norm", "few", over="many"),
        every_seed=True,
      )
    ]
    STUDY = Study("mean_norms", __doc__, "none", PRESETS, measure, CLAIMS)

    if __name__ == "__main__":
      STUDY.main()
  '''),
  "tests/experiments/test_mean_norms.py": code('''
    """The lengths of means, against their expectation."""

    from experiments import mean_norms


    def test_the_mean_of_many_is_shorter(tmp_path):
      content = mean_norms.STUDY.run(mean_norms.PRESETS["smoke"], tmp_path, "smoke")
      assert content["claims"][0]["verdict"] == "reproduced"
      few, many = (row["mean"] for row in content["rows"])
      assert 0.5 / 4 < few < 2 / 4  # 1 / sqrt(16)
      assert 0.5 / 8 < many < 2 / 8
  '''),
  "docs/results/mean_norms.json": Made(
    "experiments.mean_norms", "runs/mean_norms/cpu/results.json"
  ),
  "docs/results/data.toml": [
    Insert('"quickstart" = ', '"mean_norms" = "Normal vectors, drawn."\n')
  ],
  WRITTEN: Made("experiments.results_page", WRITTEN),
  "docs/gallery.md": [
    Insert(
      "# Gallery",
      "\n## Means\n\n`python -m experiments.mean_norms`: the more, the shorter.\n",
    )
  ],
}

ADDED = {"pooling": POOLING, "loss": LOSS, "attack": ATTACK, "experiment": EXPERIMENT}

"""Methods that the library does not have, which `test_recipes.py` adds to it.

All but the experiment are methods of the library under new names. `ADDED` has the text
of each file of a recipe, by its path, or says how the file is made.
"""

import textwrap
from typing import NamedTuple


def code(text: str) -> str:
  return textwrap.dedent(text).lstrip("\n")


class Insert(NamedTuple):
  """Lines to insert in a file after the first line that begins with `after`."""

  after: str
  lines: str


class Like(NamedTuple):
  """The file of another method, under the new name."""

  path: str
  old: str
  new: str


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
    """The generalized mean under another name, by its oracle."""

    from tests.pooling.cases import _parts, means

    CASES = {"lse": means.CASES["gem"]._replace(pool=_parts.call("lse"))}
  '''),
  "spherejax/pooling/_lse.py": Like("spherejax/pooling/_gem.py", "gem", "lse"),
  "spherejax/pooling/__init__.py": Export(
    "from spherejax.pooling._lse import lse as lse\n", "lse"
  ),
  "tests/pooling/test_lse.py": Like("tests/pooling/test_gem.py", "gem", "lse"),
  "docs/choose.md": [
    Insert("| `pooling.gap_gmp` |", "| `pooling.lse` | as `pooling.gem` |\n")
  ],
}
LOSS = {
  "tests/losses/cases/brier.py": Like(
    "tests/losses/cases/manifold.py", "manifold", "brier"
  ),
  "spherejax/losses/_brier.py": Like(
    "spherejax/losses/_manifold.py", "manifold", "brier"
  ),
  "spherejax/losses/__init__.py": Export(
    "from spherejax.losses._brier import brier as brier\n", "brier"
  ),
  "tests/losses/test_brier.py": code('''
    """A single proxy has no others."""

    import jax.numpy as jnp

    from spherejax import losses


    def test_a_single_proxy_costs_nothing():
      assert losses.brier(jnp.eye(2), jnp.zeros(2, int), jnp.ones((1, 2))).sum() == 0
  '''),
  "docs/choose.md": [
    Insert("| `losses.softmax` |", "| `losses.brier` | as `losses.manifold` |\n")
  ],
}
ATTACK = {
  "tests/attacks/test_one_step.py": code('''
    """The boundary of a linear model is found at its distance."""

    import jax.numpy as jnp
    import numpy as np

    from spherejax import attacks


    def test_distance_to_a_plane():
      x, weights = jnp.array([[0.6, 0.5]]), jnp.array([[1.0, -1.0], [-1.0, 1.0]])
      found = attacks.one_step(lambda x: x @ weights, x, jnp.array([0]))
      np.testing.assert_allclose(found.norm, 0.1 / 2**0.5, rtol=1e-2)
  '''),
  "spherejax/attacks/_one_step.py": Like(
    "spherejax/attacks/_fab.py", "fab", "one_step"
  ),
  "spherejax/attacks/__init__.py": Export(
    "from spherejax.attacks._one_step import one_step as one_step\n", "one_step"
  ),
  "tests/attacks/test_every_attack.py": [
    Insert(
      "MINIMAL = {", '  "one_step": functools.partial(attacks.one_step, steps=5),\n'
    )
  ],
  "docs/choose.md": [
    Insert("| `attacks.fgsm` |", "| `attacks.one_step` | 100 | as `attacks.fab` |\n")
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

    from experiments.frame.study import Claim, Measured, Study, Table
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


    def measure(config: Config, _) -> Measured:
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

"""Effects of a two-level design, and their aliases."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from spherejax import _checks


class Effect(NamedTuple):
  """Effect of one or two factors.

  Attributes:
    value: [] or the trailing shape of the responses: mean response where the product
      of the factors' signs is +1 minus the mean where it is -1.
    aliases: words of one or two factors that this design cannot tell from this effect,
      each with the sign, +1 or -1, in which it enters the value.
  """

  value: np.ndarray
  aliases: dict[tuple[str, ...], int]


def factorial_effects(
  design: Mapping[str, ArrayLike | Sequence[float | int]],
  responses: ArrayLike | Sequence[float | int],
) -> dict[tuple[str, ...], Effect]:
  """Main effects and two-factor interactions of a two-level design.

      effect(A) = mean(response | A high) - mean(response | A low)
      effect(AB) = mean(response | signs of A and B equal) - mean(... | different)

  In a fraction of the full design several effects have the same contrast. The value is
  their sum (with signs), and each effect lists the others as its aliases.

  Args:
    design: for each factor its level in each run, [runs], with two different values;
      the higher counts as +1. `training.factorial` makes such designs.
    responses: [runs, ...], one number for each run and, for example, each seed.

  Returns:
    For each word of one or two factors, as a tuple of names, its `Effect`. A word
    whose product is constant over the runs has no contrast and is left out.

  Raises:
    TypeError: design or responses not numbers.
    ValueError: no factor, a factor without exactly two levels, each in half of the
      runs, or lengths that differ.

  Differentiable in: nothing (runs on the host, in float64).

  Source: Box, Hunter, Hunter 2005, "Statistics for experimenters", chapters 5 and 6;
  DML table 5.4.

  Example:
    >>> design = {"mass": [0.3, 0.7, 0.3, 0.7], "margin": [0.5, 0.5, 1.0, 1.0]}
    >>> effects = spherejax.metrics.factorial_effects(design, [1.0, 2.0, 1.0, 4.0])
    >>> [(word, float(effect.value)) for word, effect in effects.items()]
    [(('mass',), 2.0), (('margin',), 1.0), (('mass', 'margin'), 1.0)]
  """
  _checks.mapping("design", design)
  signs = {name: _signs(name, levels) for name, levels in design.items()}
  if not signs:
    raise ValueError("design must name at least one factor, got none")
  responses = _checks.numbers_of("responses", responses)
  runs = {name: len(column) for name, column in signs.items()}
  if responses.ndim == 0 or set(runs.values()) != {len(responses)}:
    raise ValueError(
      f"design and responses must have as many runs, got {runs} and responses of "
      f"shape {responses.shape}"
    )
  words: dict[tuple[str, ...], Any] = {(name,): signs[name] for name in signs}
  for a, b in itertools.combinations(signs, 2):
    words[a, b] = signs[a] * signs[b]
  effects = {}
  for word, contrast in words.items():
    if abs(contrast.sum()) == len(contrast):
      continue
    value = responses[contrast > 0].mean(0) - responses[contrast < 0].mean(0)
    aliases = {
      other: int(contrast @ column / len(contrast))
      for other, column in words.items()
      if other != word and abs(contrast @ column) == len(contrast)
    }
    effects[word] = Effect(value, aliases)
  return effects


def _signs(name: str, levels: Any) -> np.ndarray:
  """-1 where the factor is low, +1 where it is high."""
  levels = _checks.numbers_of(f"design[{name!r}]", levels)
  _checks.expect(f"design[{name!r}]", levels, rank=1)
  values = np.unique(levels)
  high = levels == values[-1]
  if len(values) != 2 or high.sum() * 2 != len(levels):
    raise ValueError(
      f"design[{name!r}] must have two levels, each in half of the runs, got "
      f"{levels.tolist()}"
    )
  return 2 * high.astype(np.int64) - 1

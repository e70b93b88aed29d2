"""Figure 3.5: weights and numbers of proxies that are tried, and what is reported."""

import dataclasses

import numpy as np

from experiments import retrieval
from experiments.metric_learning.photographs import comparison

PRESET = retrieval.PRESETS["figure-3.5"]


def test_trials_are_trained_and_reported(tmp_path, monkeypatch):
  seen = []

  class Known(comparison.Comparison):
    """MAP@R is best at a weight of 1e-2 and with many proxies."""

    def __init__(self, config, output, sets):
      seen.append((config.weight, config.proxies, output.name, sets))
      self.sets = "read once"

    def train(self):
      weight, proxies, *_ = seen[-1]
      score = proxies - (np.log10(weight) + 2) ** 2
      runs = [
        comparison.TrainingOutcome({"MAP@R": score + x}, 1, np.zeros(0))
        for x in (0, 0.2)
      ]
      return {"c2+ccp": [runs]}

  monkeypatch.setattr(comparison, "Comparison", Known)
  config = dataclasses.replace(PRESET, weights="none", trials=99)
  content = retrieval.STUDY.run(config, tmp_path, "figure-3.5")
  names, sets = zip(*(x[2:] for x in seen), strict=True)
  assert names == tuple(f"trial-{n}" for n in range(1, 100))
  assert sets == (None, *["read once"] * 98)
  weights, counts = zip(*(x[:2] for x in seen), strict=True)
  # Logarithms are uniform.
  assert 1e-6 < min(weights) < 1e-5 < 1e-1 < max(weights) < 1
  assert 30 < sum(weight < 1e-3 for weight in weights) < 69
  assert (min(counts), max(counts)) == (1, 16)
  *trials, best = content["rows"]
  for (weight, proxies, *_), row in zip(seen, trials, strict=True):
    assert row["name"] == f"c2+ccp, weight {weight:.3g}, proxies {proxies}"
    assert row["values"][0] == proxies - (np.log10(weight) + 2) ** 2
  assert best["mean"] == max(row["mean"] for row in trials)
  assert best["name"].startswith("best: weight")
  assert content["pictures"] == ["search.png"]

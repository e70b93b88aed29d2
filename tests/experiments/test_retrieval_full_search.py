"""The search of hyperparameters: what it proposes, refuses and reports."""

import dataclasses

import numpy as np
import pytest

from experiments import retrieval
from experiments.metric_learning.photographs import comparison
from experiments.metric_learning.photographs import search as retrieval_full_search

PRESET = retrieval.PRESETS["figure-3.5"]


def test_ranges_are_wide_or_narrow_whole_or_not():
  config = dataclasses.replace(
    PRESET,
    search=(("weight", 1e-6, 1.0), ("proxies", 1, 16), ("negative_margin", 0.2, 0.6)),
  )
  box = retrieval_full_search.Box(config)
  middle = box.config(config, np.full(3, 0.5))
  assert middle.weight == pytest.approx(1e-3)
  assert middle.proxies == 8
  assert isinstance(middle.proxies, int)
  assert dict(middle.numbers) == {"negative_margin": pytest.approx(0.4)}
  assert middle.search == ()
  ends = [box.numbers(np.full(3, x)) for x in (0.0, 1.0)]
  for name, low, high in config.search:
    assert [end[name] for end in ends] == pytest.approx([low, high])


@pytest.mark.parametrize(
  ("method", "has", "lacks"),
  [
    ("c2", {"batch"}, {"proxies", "pool", "weight", "memory", "mass"}),
    ("c2+proxy", {"proxies", "pool", "in_batch"}, {"weight", "switch_patience"}),
    ("c2+ccp", {"proxies", "in_batch", "weight", "switch_patience"}, {"memory"}),
    ("c1+xbm", {"memory"}, {"proxies", "weight"}),
    ("proxy_nca+ccp", {"pool", "weight"}, {"proxies", "in_batch"}),
    ("soft_triple", {"proxies"}, {"pool", "in_batch"}),
    ("soft_triple+ccp", {"proxies", "pool", "weight"}, {"in_batch"}),
    ("c2+gsp", {"prototypes", "mass", "inverse_temperature", "zero_shot"}, {"pool"}),
    ("c2+gsp_alone", {"prototypes", "mass"}, {"zero_shot"}),
  ],
)
def test_a_search_is_of_what_its_method_depends_on(method, has, lacks):
  search = (("learning_rate", 1e-6, 1e-4),)
  box = retrieval_full_search.Box(
    dataclasses.replace(PRESET, methods=(method,), search=search)
  )
  assert has <= {*box.fields}
  assert not lacks & {*box.fields}


def test_batches_of_a_search_have_whole_classes():
  config = dataclasses.replace(PRESET, search=(("batch", 16, 128),))
  box = retrieval_full_search.Box(config)
  values = [box.numbers(np.array([x]))["batch"] for x in np.linspace(0, 1, 57)]
  assert {*values} == {*range(16, 129, 4)}


def test_what_the_ends_cannot_be_is_said_before_the_first_trial(tmp_path, monkeypatch):
  seen = []

  class Ends:
    sets = "read once"

    def __init__(self, config, output, sets):
      seen.append((config.memory, config.batch, sets))
      if config.memory > 900:
        raise ValueError(f"a memory of {config.memory} embeddings is larger")

    def train(self):
      pytest.fail("a trial began")

  monkeypatch.setattr(comparison, "Comparison", Ends)
  search = (("batch", 8, 64), ("memory", 100, 1000))
  config = dataclasses.replace(
    PRESET, weights="none", methods=("c1+xbm",), search=search
  )
  with pytest.raises(ValueError, match="a memory of 1000 embeddings is larger"):
    retrieval.STUDY.run(config, tmp_path, "figure-3.5")
  assert seen == [(100, 8, None), (1000, 8, "read once")]


def test_trials_are_trained_and_reported(tmp_path, monkeypatch):
  seen = []

  class Known:
    """MAP@R is best at a weight of 1e-2 and with many proxies."""

    sets = None

    def __init__(self, config, output, sets):
      self.config = config
      if output != tmp_path:  # the ends are looked at before
        seen.append((config.weight, config.proxies, output.name))

    def train(self):
      score = self.config.proxies - (np.log10(self.config.weight) + 2) ** 2
      found = [
        comparison.Found({"MAP@R": score + x}, 1, np.zeros(0)) for x in (0.0, 0.2)
      ]
      return {self.config.methods[0]: [found]}

  monkeypatch.setattr(comparison, "Comparison", Known)
  config = dataclasses.replace(PRESET, weights="none", trials=7)
  content = retrieval.STUDY.run(config, tmp_path, "figure-3.5")
  assert [name for *_, name in seen] == [f"trial-{n}" for n in range(1, 8)]
  assert len({weight for weight, *_ in seen}) == 7
  *trials, best = content["rows"]
  for (weight, proxies, _), row in zip(seen, trials, strict=True):
    assert row["name"] == f"c2+ccp, weight {weight:.3g}, proxies {proxies:.3g}"
    assert row["mean"] == pytest.approx(proxies - (np.log10(weight) + 2) ** 2 + 0.1)
  assert best["mean"] == max(row["mean"] for row in trials)
  assert best["name"].startswith("best: weight")
  assert content["pictures"] == ["search.png"]
  assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")

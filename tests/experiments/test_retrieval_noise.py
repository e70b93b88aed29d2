"""`retrieval --preset full` on noise of the size of its photographs, by BN-Inception.

A narrow one: all of its layers, an eighth of their channels.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import retrieval
from experiments.frame import networks
from experiments.metric_learning.photographs import batches
from experiments.metric_learning.plan import FULL

# Nothing is learned of noise, so that every second evaluation ends a problem.
FULL = dataclasses.replace(
  FULL["full"], weights="none", learned_classes=32, methods=("c2+ccp",), folds=(1,),
  width=8, batch=16, proxies=2, pool=3, steps=8, evaluate_every=2, switch_patience=1,
  patience=9, checkpoint_every=7, evaluation_batch=16, prefetch=2, frozen_norm=True,
  learning_rate=1e-9,
)  # fmt: skip


@pytest.mark.slow
def test_the_full_preset_on_noise_resumes_in_its_second_problem(
  noise_folder, tmp_path, monkeypatch
):
  folder = noise_folder(64, [(227, 227)] * 4, "jpg")
  config = dataclasses.replace(FULL, folder=folder)
  whole = retrieval.STUDY.run(config, tmp_path / "whole", "full")
  text = (tmp_path / "whole" / "evaluations.jsonl").read_text()
  problems = [json.loads(line)["problem"] for line in text.splitlines()]
  assert problems == [1, 1, 2, 2]

  score, seen = batches.score, []

  def stopped(*arguments):
    seen.append(arguments)
    if len(seen) == 4:  # the newest checkpoint is that of step 7
      raise KeyboardInterrupt
    return score(*arguments)

  monkeypatch.setattr(batches, "score", stopped)
  with pytest.raises(KeyboardInterrupt):
    retrieval.STUDY.run(config, tmp_path / "again", "full")
  resumed = retrieval.STUDY.run(config, tmp_path / "again", "full")
  assert len(seen) == 5
  assert resumed["rows"] == whole["rows"]
  assert (tmp_path / "again" / "evaluations.jsonl").read_text() == text
  both = [
    networks.load(tmp_path / name / "model-c2+ccp-1").variables
    for name in ("whole", "again")
  ]
  jax.tree.map(np.testing.assert_array_equal, *both)

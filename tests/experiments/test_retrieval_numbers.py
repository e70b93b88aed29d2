"""Hyperparameters of DML, chapter 3, as each method of `retrieval` is trained with."""

import numpy as np
import pytest

from experiments import _retrieval_full_jobs, _retrieval_full_presets
from experiments._retrieval_full import FullConfig

SETS = ("cub", "cars", "inshop", "sop")
# As section 3.3.2 prints them, for SETS in this order; one where all have it.
PRINTED = {
  "c1": {"margin": [0.5]},
  "c2": {
    "positive_margin": [0, 0.2652, 0.2858, 0.2858],
    "negative_margin": [0.3841, 0.5409, 0.5130, 0.5130],
  },
  "triplet": {"margin": [0.0961, 0.1190, 0.0451, 0.0451]},
  "ms": {
    "positive_scale": [2, 14.35, 8.49, 2],
    "negative_scale": [40, 75.83, 57.38, 40],
    "threshold": [0.5, 0.66, 0.41, 0.5],
  },
  "proxy_anchor": {"margin": [0.1], "scale": [32]},
  "proxy_nca": {"temperature": [0.1]},
  "soft_triple": {
    "scale": [20, 17.69, 20, 100],
    "temperature": [0.1, 19.18, 0.1, 47.9],
    "regularization": [0.2, 0.0669, 0.2, 0.2],
    "margin": [0.01, 0.3588, 0.01, 0.3145],
  },
}
# Batches of 32 in the memory, centres of SoftTriple, proxies, pool, small and large.
SIZES = {
  "xbm+s": [3, 3, 100, 400],
  "xbm+l": [25, 25, 400, 1400],
  "soft_triple+s": [1, 1, 1, 1],
  "soft_triple+l": [10, 10, 4, 4],
  "ccp+s": [1, 1, 1, 1],
  "ccp+l": [8, 8, 4, 4],
}
POOLS, PROTOTYPES, PERIODS = [12, 12, 7, 7], [64, 64, 128, 128], [25, 25, 250, 250]


def made(name, **changes):
  config = FullConfig(**changes)
  return _retrieval_full_jobs.job(
    config, _retrieval_full_jobs.protocol_of(config), name
  )


@pytest.mark.parametrize("loss", PRINTED)
def test_losses_have_the_printed_numbers(loss):
  for place, dataset in enumerate(SETS):
    found = made(loss, dataset=dataset).method.settings()
    expected = {
      name: values[place if len(values) > 1 else 0]
      for name, values in PRINTED[loss].items()
    }
    assert found == expected
    if loss == "proxy_nca":  # section 5.3.4 has another one
      newer = made(loss, dataset=dataset, protocol="fair534").method.settings()
      assert newer == {"temperature": 0.11}


def test_memories_proxies_pools_and_prototypes_have_the_printed_sizes():
  for place, dataset in enumerate(SETS):
    found = {}
    for size in ("s", "l"):
      found[f"xbm+{size}"] = (
        made(f"c1+xbm+{size}", dataset=dataset).settings.memory / 32
      )
      for name, method in (("soft_triple", "soft_triple"), ("ccp", "c2+ccp")):
        own = made(f"{method}+{size}", dataset=dataset).method
        found[f"{name}+{size}"] = own.proxies
    assert found == {name: values[place] for name, values in SIZES.items()}
    own = made("c2+ccp", dataset=dataset)
    assert own.method.pool == POOLS[place]
    assert (own.settings.weight, own.settings.switch_patience) == (2e-4, 3)
    assert own.settings.in_batch == 0.1
    assert made("c1+xbm", dataset=dataset).settings.memory_start == 1000
    summed = made("c2+gsp", dataset=dataset).settings
    assert summed.prototypes == PROTOTYPES[place]
    assert (summed.mass, summed.inverse_temperature, summed.zero_shot) == (0.3, 5, 0.1)
    assert made("proxy_nca+gsp", dataset=dataset).settings.inverse_temperature == 0.5
    assert own.settings.evaluate_every == PERIODS[place]
    assert (own.settings.learning_rate, own.settings.weight_decay) == (1e-5, 1e-4)
    usual = made("c2", dataset=dataset, protocol="conventional").settings
    assert usual.learning_rate == (1e-5 if dataset == "cub" else 1e-4)
    # SoftTriple is the small one of products and clothes in the tables.
    centres = made("soft_triple", dataset=dataset).method.proxies
    assert centres == [10, 10, 1, 1][place]


@pytest.mark.parametrize(
  ("name", "methods", "protocol"),
  [
    ("table-5.2", {"c1+xbm", "c1+xbm+gsp"}, (1, 1, 3, "P@1", 512, "gap_gmp")),
    (
      "table-5.3",
      {"c2", "c2+gsp_alone", "c2+zsp", "c2+gsp"},
      (4, 4, 3, "MAP@R", 128, "gap"),
    ),
    ("table-3.2", {"c1+ccp", "c2+ccp", "ms+ccp"}, (1, 1, 1, "P@1", 512, "gap_gmp")),
    ("table-3.3", None, (4, 4, 1, "MAP@R", 128, "gap")),
  ],
)  # fmt: skip
def test_tables_have_their_methods_and_protocols(name, methods, protocol):
  preset = _retrieval_full_presets.PRESETS[name]
  own = _retrieval_full_jobs.protocol_of(preset)
  assert (
    own.parts, own.models, own.repeats, own.metric, own.dim, own.pooling
  ) == protocol  # fmt: skip
  jobs = [_retrieval_full_jobs.job(preset, own, method) for method in preset.methods]
  if methods is None:
    assert preset.dataset == "sop"
    return
  assert {job.name for job in jobs} == methods
  if name == "table-5.3":
    parts = {
      (job.settings.pooling, job.settings.mass, job.settings.zero_shot) for job in jobs
    }
    # All of the mass is the average.
    assert parts == {
      ("gap", 0.3, 0.0), ("gsp", 0.3, 0.0), ("gsp", 1.0, 0.1), ("gsp", 0.3, 0.1)
    }  # fmt: skip
  assert np.isclose([job.settings.second_moment for job in jobs], 0.999).all()

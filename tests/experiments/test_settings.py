"""Settings that cannot work are refused, and named, before anything is trained."""

import dataclasses

import pytest

from spherejax import training
from tests.experiments.entries import module

# By experiment and preset: changes of its settings and what the answer must say.
CASES = {
  "projector_collapse smoke": [
    ({"strengths": ("large, crops alone",)}, "must be among .* crops alone"),
    ({"batch": 1}, "batch must be at least 2, got 1"),
    ({"batch": 5000}, r"batch must be at most the 1200 .* got 5000"),
    ({"probe_every": 30}, "30"),
    ({"steps": 50}, "50"),
    ({"steps": 100}, "steps must be a multiple of probe_every = 60, got 100"),
    ({"projector": (64, 32)}, r"projector must be linear.* got \(64, 32\)"),
    ({"strengths": ()}, r"strengths of digits must be among .*, got \(\)"),
    ({"threshold": 0.0}, r"threshold must be in \[1e-06, 1\], got 0\.0"),
    ({"threshold": 1.5}, r"threshold must be in \[1e-06, 1\], got 1\.5"),
    ({"toy_seeds": 0}, "toy_seeds must be at least 1, got 0"),
    ({"image_size": 0}, "image_size must be at least 1, got 0"),
    ({"measured": 1}, "measured must be at least 2, got 1"),
    ({"widths": (0, 1, 1)}, "widths must be at least 1, got 0"),
    ({"inverse_temperature": 0.0}, "temperature must be at least 1e-06"),
    ({"projectors": ("64-32", "0-32")}, "projectors must be widths .* got '0-32'"),
    ({"projectors": ("abc",)}, "projectors must be widths like 64-32, got 'abc'"),
    ({"at_once": False, "warm_up": 60}, "warm_up must be below steps = 60, got 60"),
  ],
  "retrieval smoke": [
    ({"batch": 30}, "batch must be a multiple of per_class = 4, got 30"),
    ({"rates": (1.0, 0.0)}, r"rates must be positive.*, got \(1\.0, 0\.0\)"),
    ({"steps": 7}, "steps must be a multiple .* got 7"),
    ({"frozen_norm": True}, "frozen_norm must be False for mlp, got True"),
    ({"batch": 32}, "a batch of 32 has 8 classes, but only 7 are learned"),
    ({"pool": 0}, "at least one proxy and a pool of one image, got 4 and 0"),
    ({"proxies": 13}, "a memory of 91 embeddings is larger than the 70 images"),
    ({"switch_patience": 0}, "switch_patience must be at least 1, got 0"),
    ({"second_moment": 1.0}, r"second_moment must be in \[0, 1\), got 1.0"),
    ({"weights": "missing"}, "weights must be empty for mlp, got 'missing'"),
    ({"shift": 4}, "shift must be below the 4 pixels .* got 4"),
    ({"channels": 3}, r"of the images, \(4, 4, 1\), got \(4, 4, 3\)"),
    ({"image_size": 5}, r"of the images, \(4, 4, 1\), got \(5, 5, 1\)"),
    ({"pooling": "sum"}, "pooling must be one of .* got 'sum'"),
    ({"zero_shot": 0.1}, r"zero_shot must be 0 .* got 0.1 for 'gap'"),
    ({"backbone": "conv", "weights": "x.pth"}, "weights must be empty for conv"),
  ],
  "retrieval cars-gsp": [
    ({"pooling": "gem"}, r"pooling must be gap, .* got gem"),
    ({"gsp_methods": ("c1",)}, r"gsp_parts must be among .* got \['c2'"),
  ],
  "retrieval figure-3.5": [
    ({"protocol": "fair"}, r"validation classes, .* got c2\+ccp by fair"),
    ({"methods": ("c1+ccp", "c2+ccp")}, "need one method with ccp"),
    ({"methods": ("c2",)}, "need one method with ccp.* got c2 by ablation"),
  ],
  "ccp_proxies cpu": [
    ({"batches": (8, 66)}, "multiple of per_class = 4, got 66"),
    ({"backbone": "last_stage"}, "channels must be 192 for last_stage, got 512"),
    ({"backbone": "last_stage", "channels": 192}, "backbone must not be last_stage"),
    ({"losses": ("ms",)}, "other_weights .* are compared for c2"),
  ],
  "ccp_proxies smoke": [({"pool": 0}, "a pool of one image, got 4 and 0")],
  "plankton cpu": [
    ({"neighbours": (1, 5)}, r"neighbours must contain 10.*got \(1, 5\)"),
    ({"neighbours": (0, 10)}, "neighbours must be at least 1, got 0"),
    ({"curve": ()}, r"curve some, got .* and \(\)"),
    ({"triplets": 0}, "triplets must be at least 1, got 0"),
    ({"iterations": 0}, "iterations must be at least 1, got 0"),
    ({"baseline_batch": 0}, "baseline_batch must be at least 1, got 0"),
    ({"dim": 0}, "dim must be at least 1, got 0"),
    ({"decay": 0.0}, "decay must be at least 1e-09, got 0"),
    ({"margins": (1.0, 4.1)}, r"margins must be in \[1e-06, 4\], got 4.1"),
    ({"margins": (1.0,)}, r"one less than margins, got \(1\.0,\)"),
    ({"margins": (1.0, 1.2, 1.3), "raised_after": (5, 5)}, r"must grow.*\(5, 5\)"),
    ({"percent": 0}, r"percent must be in \[1, 100\], got 0"),
    ({"shrink": 5}, "canvas must be a multiple of shrink = 5, got 96"),
    ({"test_images": 1}, "test_images must be at least 2, got 1"),
    ({"unseen_images": 1}, "unseen_images must be at least 2.* got 1"),
    ({"unseen_from": 1}, "unseen_from must be at least 2.* got 1"),
    ({"drawn": 0}, "drawn must be at least 1, got 0"),
  ],
  "plankton full": [
    ({}, "weights for inception_v3 by --weights"),
    ({"weights": "nowhere.pth"}, r"weights nowhere\.pth does not exist"),
  ],
  "few_shot smoke": [
    ({"episodes": 25}, "episodes must be a multiple of validate_every = 10, got 25"),
    ({"validate_every": 4}, "validate_every must .* of check_every = 5, got 4"),
    ({"num_ways": 1}, "num_ways must be at least 2, got 1"),
    ({"check_every": 0}, "episodes must be a multiple of check_every = 0, got 20"),
    ({"test_queries": 0}, "test_queries must be at least 1, got 0"),
    ({"test_episodes": 0}, "test_episodes must be at least 1, got 0"),
    ({"exponents": (2.0, 0.0)}, "exponents must be at least 1e-06, got 0.0"),
  ],
  "norm_count smoke": [
    ({"measures": ("episodes",), "grids": 40}, r"num_shots \+ num_queries = 20"),
    ({"grids": 3}, "grids must be at least 4, got 3"),
    ({"block": 0}, "block must be at least 1, got 0"),
    ({"fills": ()}, r"fills must name what empty cells hold, got \(\)"),
    ({"methods": ("SimCLR",), "simclr_batch": 1}, "simclr_batch must be at least 2"),
    ({"measures": ("episodes",), "episodes": 0}, "episodes must be at least 1, got 0"),
    ({"measures": ("episodes",), "ways": 1}, "ways must be at least 2, got 1"),
    ({"measures": ("episodes",), "shots": (1, 0)}, "shots must be at least 1, got 0"),
  ],
  "norm_count table-1": [
    ({}, "stl10 and voc: name a file of weights"),
    ({"supervised_weights": "nowhere.pth"}, "weights nowhere.* does not exist"),
  ],
  "gsp_collage cpu": [
    ({"steps": 12}, r"^steps must be a multiple of parts = 5, got 12"),
    ({"pretraining": 12}, r"^pretraining must be a multiple of parts = 5"),
    ({"losses": ()}, "losses must have one of C2, PNCA, got none"),
    ({"images": "svhn"}, "one of omniglot, cifar100, got 'svhn'"),
  ],
  "gsp_screening full": [({"mass": 0.9}, r"mass is what table-5\.4 varies.* got 0\.9")],
  "robust_features digits": [
    ({"train_images": 1500}, "at most 1797 together, got 1500 and 500")
  ],
  "dynamic_assignment smoke": [
    ({"images": (("omniglot", 5), ("omniglot", 10))}, "images must name each set once")
  ],
}  # fmt: skip


@pytest.mark.parametrize(
  ("where", "changes", "message"),
  [(where, *case) for where, cases in CASES.items() for case in cases],
)
def test_settings_that_cannot_work(where, changes, message, tmp_path, monkeypatch):
  name, preset = where.split()
  monkeypatch.setattr(training, "sweep", None)
  monkeypatch.setattr(training, "fit", None)
  entry = module(name)
  config = entry.PRESETS[preset]
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    entry.STUDY.run(dataclasses.replace(config, **changes), tmp_path, preset)

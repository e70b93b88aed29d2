"""Claims, hyperparameters and norms of `retrieval` on photographs."""

import pytest

from experiments import retrieval
from experiments.frame.study import Table
from experiments.metric_learning import plan
from experiments.metric_learning.photographs import claims as retrieval_full_claims
from experiments.metric_learning.photographs import methods as retrieval_full_jobs
from experiments.metric_learning.photographs.methods import FullConfig
from tests.experiments import entries


def claimed(**figures):
  """MAP@R of one network; 2 more for networks side by side. P@1 is 50 higher."""
  table = Table()
  for name, x in figures.items():
    single, joined = [{"MAP@R": x, "P@1": 50 + x}], [{"MAP@R": x + 2, "P@1": 52 + x}]
    method = name.replace("_", "+").replace("gsp+alone", "gsp_alone")
    retrieval_full_claims.add(table, method, {128: single, 512: joined})
  return retrieval.STUDY.claimed(table, FullConfig())


def test_every_pair_belongs_to_its_claim():
  made = claimed(
    c1=10.0, c1_gsp=11.0, c1_xbm=13.0, c1_ccp=12.0, c1_xbm_gsp=13.5, c1_ccp_gsp=11.5,
    c2=14.0, c2_gsp=17.0, c2_gsp_alone=15.0, c2_zsp=14.5,
  )  # fmt: skip
  claims = {claim["id"]: claim for claim in made}
  assert {key: claim["values"] for key, claim in claims.items()} == {
    "retrieval-ccp-beats-baseline": [2.0, 0.5],  # of C1, and of C1 with GSP
    "retrieval-xbm": [3.0, 2.5],
    "retrieval-ccp-vs-xbm": [-1.0, -2.0],
    "retrieval-gsp": [1.0, 3.0],
    "xbm-gsp": [0.5],
    "ccp-gsp": [-0.5],
    "components": [1.0, 2.0, 0.5, 2.5],
    "retrieval-concatenation": [2.0] * 10,
    # From 10 to 17 with a mean of 13.15, 2 more side by side.
    "retrieval-map-separates": [pytest.approx(7 / 15.15 - 7 / 65.15)],
  }
  assert claims["retrieval-xbm"]["verdict"] == "reproduced"
  assert claims["ccp-gsp"]["verdict"] != "reproduced"
  assert "c1+ccp > c1+xbm" in claims["retrieval-ccp-vs-xbm"]["statement"]
  (only,) = claimed(c1=10.0)
  assert only["id"] == "retrieval-concatenation"


def test_small_variants_and_batches_have_their_claims():
  made = claimed(
    c1=10.0, c1_xbm=12.0, c1_ccp_s=13.0, c1_xbm_s=11.0, c1_proxy_s=12.5,
    c2_b16=20.0, c2_b32=23.0, c2_ccp_b16=24.0, c2_ccp_b32=25.0,
    ms_b8=20.0, ms_b32=24.0, ms_ccp_b8=24.0, ms_ccp_b32=24.5,
  )  # fmt: skip
  claims = {claim["id"]: claim for claim in made}
  assert len(claims) == len(made)
  beats = claims["retrieval-ccp-beats-baseline"]["values"]
  assert beats == [3.0, 4.0, 2.0, 4.0, 0.5]
  assert claims["retrieval-xbm"]["values"] == [2.0, 1.0]
  assert claims["retrieval-ccp-vs-xbm"]["values"] == [2.0]
  assert claims["ccp-alternating"]["values"] == [0.5]
  # 3 without and 1 with, 4 without and 0.5 with.
  assert claims["ccp-batch-size"]["values"] == [2.0, 3.5]
  words = "16 against 32, c2+ccp, 8 against 32, ms+ccp"
  assert words in claims["ccp-batch-size"]["statement"]


def test_a_name_may_have_a_variant_and_a_batch_of_its_own():
  methods = ("c1+xbm", "c1+xbm+s", "c2+ccp+s+b64", "soft_triple", "soft_triple+l")
  made = settings(methods=methods, dataset="sop")
  assert [own.settings.places for own in made[:2]] == [44_800, 12_800]
  (few,) = settings(methods=("c1+xbm+b64",), dataset="sop", memory=3)
  assert few.settings.places == 192  # batches, as they are
  assert (made[2].method.proxies, made[2].settings.batch) == (1, 64)
  assert [own.method.proxies for own in made[3:]] == [1, 4]
  assert [own.title for own in made[1:3]] == ["C1+XBM-S", "C2+CCP-S, batch 64"]
  (mixed,) = settings(methods=("C1+xbm+GSP+s+b16",), dataset="sop")
  assert mixed.name == "c1+xbm+gsp+s+b16"
  for name in ("c1+s", "c1+xbm+s+l", "c1+b0", "c1+gsp+xbm", "c1+b16+b32"):
    with pytest.raises(ValueError, match="c1"):
      settings(methods=(name,))


def test_presets_of_figures_of_variants_and_batches():
  small = plan.FULL["figure-3.4"]
  assert {"c1+xbm", "c1+xbm+s", "c2+ccp+s", "soft_triple+s"} <= {*small.methods}
  large = plan.FULL["figure-3.8"]
  own = retrieval_full_jobs.protocol_of(large)
  made = entries.jobs(large)
  found = {(one.method.kind, one.settings.batch) for one in made}
  assert found == {(k, b) for k in ("plain", "ccp") for b in (16, 32, 64, 128)}
  # DML 3.3.2.3 trains as the fair evaluation does; figure 3.4 is of two sets.
  assert (own.parts, own.models, own.patience) == (4, 4, 60)
  assert small.dataset == "sop"
  assert {one.settings.per_class for one in made} == {4}


def settings(**changes):
  return entries.jobs(FullConfig(**changes))


def test_networks_are_as_wide_as_published():
  for backbone, width in (("bn_inception", 64), ("resnet50", 64), ("inception_v3", 32)):
    (own,) = settings(methods=("c2",), backbone=backbone)
    assert own.settings.width == width
    (narrow,) = settings(methods=("c2",), backbone=backbone, width=8)
    assert narrow.settings.width == 8


def test_norms_stay_where_weights_were_read():
  for weights, frozen, expected in (
    ("weights.pth", None, True), ("none", None, False),
    ("weights.pth", False, False), ("none", True, True),
  ):  # fmt: skip
    (own,) = settings(methods=("c2",), weights=weights, frozen_norm=frozen)
    assert own.settings.frozen_norm is expected
  protocol = retrieval_full_jobs.protocol_of(FullConfig(frozen_norm=True))
  assert protocol.weight_decay == 1e-4

"""Generalized sum pooling in the small trainings of `retrieval`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import retrieval
from experiments.frame import networks
from experiments.frame import training as frame_training
from experiments.metric_learning import images as retrieval_sets
from experiments.metric_learning import methods, pictures, training
from experiments.metric_learning import plan as retrieval_plan
from experiments.metric_learning import settings as retrieval_settings
from experiments.metric_learning.methods import Method
from experiments.metric_learning.photographs.protocols import MEASURES
from experiments.metric_learning.plan import BOTH, GSP, ZSP, Name
from spherejax import distances, losses
from tests.experiments.test_retrieval import trained

STUDY = retrieval_sets.gaussians(0)
SETTINGS = retrieval_settings.Settings(
  width=4, dim=4, image_size=4, strides=(1, 1, 1, 1), shift=0, batch=8, per_class=2,
  seeds=1, steps=8, evaluate_every=1, switch_patience=1, pooling="gsp", prototypes=5,
  zero_shot=0.1,
)  # fmt: skip
PLAIN = Method("c2")
HYPER = {"weight": jnp.float32(2e-4), "fold": jnp.float32(0), "rate": jnp.float32(1)}
GIVEN = training.on_device(STUDY)


def begin(method=PLAIN, **changes):
  """A training and its first state."""
  run = training.Run(dataclasses.replace(SETTINGS, **changes), method, STUDY)
  return run, jax.jit(run.init)(GIVEN, jax.random.key(0), HYPER)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["gsp", "gsp_gmp"])
def test_prototypes_begin_among_averages_of_training_images(pooling):
  _, state = begin(pooling=pooling)
  params = dict(state.train.params["network"])
  own = params.pop("pooling")
  if pooling == "gsp_gmp":  # of its sum alone
    params["head"] = {"Dense_0": own["projection"]}
    own = own["gsp"]
  chosen = own["prototypes"]
  average = dataclasses.replace(SETTINGS, pooling="gap", zero_shot=0.0).architecture
  variables = {"params": params, "batch_stats": state.train.batch_stats["network"]}
  embed = jax.jit(networks.Model(average, variables).embed)
  points = distances.unit_ball(embed(STUDY.images[STUDY.train[0]]))
  nearest = np.asarray(distances.pairwise_euclidean(chosen, points))
  assert chosen.shape == (5, 4)
  assert (nearest.min(1) < 1e-5).all()
  assert len(set(np.asarray(nearest.argmin(1)).tolist())) == 5
  if pooling == "gsp":  # the rest begins as with the average
    _, plain = begin(pooling="gap", zero_shot=0.0)
    jax.tree.map(np.testing.assert_array_equal, params, plain.train.params["network"])


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_the_mixture_is_zero_shot_prediction_of_the_attributes(share):
  rng = np.random.default_rng(0)
  run, state = begin(backbone="mlp", zero_shot=share)
  params, stats = state.train.params, state.train.batch_stats
  labels = np.repeat(np.arange(4, dtype=np.int32), 2)
  batch = {"image": rng.normal(size=(8, *STUDY.images.shape[1:])), "label": labels}
  table = params["loss"]["zero_shot"]["label_embeddings"]
  assert table.shape == (run.classes, 4)

  @jax.jit
  def both():
    network, old = networks.Network(run.settings.architecture), stats.get("network", {})
    outputs, _ = frame_training.forward(network, params["network"], old, batch["image"])
    first, second = losses.split_by_class(labels)
    unseen = losses.zero_shot_prediction(
      outputs.attributes, labels, outputs.attributes, labels, table,
      where_a=first, where_b=second,
    )  # fmt: skip
    plain = methods.value(PLAIN, outputs.embeddings, labels, params["loss"])
    # A row is in one half and counts once.
    expected = (1 - share) * plain + share * unseen.sum() / len(labels)
    return expected, run(params, stats, batch, key=None, axis_name=None).loss

  expected, value = both()
  assert value == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
def test_label_embeddings_learn_and_outlive_a_problem():
  run, state = begin(Method("c2", "ccp", 2, 4), backbone="mlp")
  learned, _ = jax.jit(run.steps)(GIVEN, state, jax.random.key(1), HYPER)
  before, after = (x.train.params["loss"]["zero_shot"] for x in (state, learned))
  assert np.abs(before["label_embeddings"] - after["label_embeddings"]).max() > 1e-4
  first = state.train.params["loss"]["proxies"]
  turn = jax.jit(run.switched)
  for score, problem in ((0.5, 1), (0.4, 1), (0.4, 2)):  # of one evaluation is patience
    before = state.train.params["loss"]
    state, figures = turn(
      GIVEN, HYPER, state._replace(score=jnp.float32(score)), jax.random.key(3)
    )
    assert figures["problem"] == problem
  after = state.train.params["loss"]
  assert set(after) == {"proxies", "zero_shot"}
  jax.tree.map(np.testing.assert_array_equal, after["zero_shot"], before["zero_shot"])
  assert np.abs(after["proxies"] - first).max() > 0.01


SUMMED = dataclasses.replace(
  retrieval.PRESETS["cpu"], losses=(), memory_losses=(), proxy_losses=(),
  gsp_methods=("c2", "proxy_nca", "c1+xbm", "c2+ccp"), gsp_parts=("c2",),
)  # fmt: skip


def test_what_is_trained_with_the_sum():
  plan = retrieval_plan.plan(SUMMED)
  names = {name.title: name for name in plan}
  assert set(names) == {
    "C2", "C2+GSP", "C2+ZSP", "C2+GSP+ZSP", "ProxyNCA++", "ProxyNCA+++GSP+ZSP",
    "C1+XBM", "C1+XBM+GSP+ZSP", "C2+CCP", "C2+CCP+GSP+ZSP",
  }  # fmt: skip
  every = retrieval_plan.plan(retrieval.PRESETS["cpu"])
  for name, method in plan.items():
    assert method == every[name._replace(parts="")]
  shared = retrieval_settings.Settings(mass=0.3)

  def numbers(title):
    own = retrieval_plan.settings_of(SUMMED, shared, names[title], plan[names[title]])
    return own.pooling, own.mass, own.inverse_temperature, own.zero_shot

  assert numbers("C2")[::3] == ("gap", 0.0)
  assert numbers("C2+GSP") == ("gsp", 0.3, 5.0, 0.0)
  assert numbers("C2+ZSP") == ("gsp", 1.0, 5.0, 0.1)
  assert numbers("C1+XBM+GSP+ZSP") == ("gsp", 0.3, 5.0, 0.1)
  assert numbers("ProxyNCA+++GSP+ZSP") == ("gsp", 0.3, 0.5, 0.1)


def test_claims_about_the_sum():
  group = "cars"
  heights = {
    Name(group, "c2"): 0.2, Name(group, "c2", parts=GSP): 0.5,
    Name(group, "c2", parts=ZSP): 0.1, Name(group, "c2", parts=BOTH): 0.4,
    Name(group, "c2", "ccp"): 0.3, Name(group, "c2", "ccp", BOTH): 0.25,
    Name(group, "c1", "xbm"): 0.1, Name(group, "c1", "xbm", BOTH): 0.2,
  }  # fmt: skip
  found = {name: trained(x + 0.01 * np.arange(3)) for name, x in heights.items()}
  config = dataclasses.replace(SUMMED, gsp_methods=("c2", "c1+xbm", "c2+ccp"))
  untrained = dict.fromkeys(MEASURES, np.full(3, 0.1))
  table = retrieval.tabulate(config, found, {"untrained": untrained})
  assert table.values("P@1", "cars, untrained").tolist() == [0.1] * 3
  drawn = pictures.scores(config, table)
  assert list(drawn) == ["scores-cars", "gains-cars"]
  rows = [x.get_text() for x in drawn["scores-cars"].axes[0].get_yticklabels()]
  assert rows[:3] == ["C2+GSP", "C2+GSP+ZSP", "C2+CCP"]  # the best first
  panels = drawn["gains-cars"].axes
  assert [axes.get_title("left") for axes in panels] == ["GSP", "ZSP", "GSP+ZSP"]
  rows = [x.get_text() for x in panels[0].get_yticklabels()]
  assert rows == ["C2", "C1+XBM", "C2+CCP"]

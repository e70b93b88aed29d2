"""Values and gradients against pytorch-metric-learning, where it has the loss."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("pytorch_metric_learning", reason="a peer of the extra `bench`")

from benchmarks import _peers
from spherejax import _versions, distances, losses
from tests.losses.cases._parts import distance, dot, matrix_of, project
from tests.losses.slopes import with_slopes

pytestmark = [
  pytest.mark.peer,
  # The peer's own dealings with newer versions of NumPy and torch.
  pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
  pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning"),
]
SIZES = [6, 5, 4, 4, 3, 2]  # examples of each class


@pytest.fixture
def doubles():
  import torch

  torch.set_default_dtype(torch.float64)
  with _versions.enable_x64(True):
    yield torch
  torch.set_default_dtype(torch.float32)


@pytest.fixture
def theirs():
  return importlib.import_module("pytorch_metric_learning.losses")


def differentiated(loss, embeddings, torch):
  """The peer's value, and its gradient by the rows."""
  rows = torch.tensor(embeddings, requires_grad=True)
  value = loss(rows)
  value.backward()
  return value.item(), rows.grad


@pytest.mark.parametrize("name", _peers.PEERS)
def test_equals_the_peer(name, doubles):
  peer = _peers.PEERS[name]
  embeddings, labels = _peers.inputs(24, 8, peer.per_class)
  if peer.per_class == 4 and not peer.differs:
    labels = np.repeat(np.arange(len(SIZES)), SIZES).astype(np.int32)
  module, weights = _peers.torch_loss(peer, int(labels.max()) + 1, 8)
  arguments = (0, 1) if peer.weights else (0,)
  value, gradient = jax.jit(
    jax.value_and_grad(lambda x, w: peer.ours(x, jnp.asarray(labels), w), arguments)
  )(jnp.asarray(embeddings), weights)
  classes = doubles.tensor(labels, dtype=doubles.int64)
  expected, by_rows = differentiated(
    lambda rows: peer.call(module, rows, classes), embeddings, doubles
  )
  same = np.allclose(value, expected, rtol=peer.tolerance, atol=0)
  if peer.differs:
    assert not same, f"no longer differs: {peer.differs}"
    return
  assert same
  pairs = [(gradient[0], by_rows)]
  if peer.weights and not peer.fixed_norms:
    pairs.append((gradient[1], getattr(module, peer.weights).grad))
  for ours, wanted in pairs:
    atol = peer.tolerance * float(wanted.abs().max())
    np.testing.assert_allclose(ours, wanted.numpy(), rtol=peer.tolerance, atol=atol)


@pytest.mark.parametrize("name", ["angular", "smooth_ap"])
def test_equals_the_peer_where_the_peer_is_right(name, doubles):
  """Unit rows, in order of their classes, as many of each as there are classes."""
  embeddings = project(np.random.default_rng(0).normal(size=(9, 4)))
  labels = np.repeat(np.arange(3), 3)
  peer = _peers.PEERS[name]
  module, _ = _peers.torch_loss(peer, 3, 4)
  value, gradient = jax.value_and_grad(lambda x: peer.ours(x, labels, None))(embeddings)
  classes = doubles.tensor(labels)
  expected, slope = differentiated(
    lambda rows: peer.call(module, rows, classes), embeddings, doubles
  )
  np.testing.assert_allclose(value, expected, rtol=1e-9)
  tangent = slope.numpy()
  # The peer of angular does not divide by the norms, whose derivative is along x.
  if name == "angular":
    tangent -= (tangent * embeddings).sum(1, keepdims=True) * embeddings
  np.testing.assert_allclose(gradient, tangent, rtol=1e-8, atol=1e-9)


def test_dynamic_soft_margin_of_single_triplets(doubles, theirs):
  """Anchors of a single triplet, where all triplets are the hardest."""
  rng = np.random.default_rng(0)
  embeddings, labels = rng.normal(size=(3, 4)), np.array([0, 0, 1])
  module = theirs.DynamicSoftMarginLoss()
  near, far = np.eye(3, dtype=bool)[[1, 0]], np.eye(3, dtype=bool)[[2, 2]]
  histogram = jnp.zeros(11)  # the peer lacks the last
  for turn in range(3):
    x = embeddings + 0.3 * turn * rng.normal(size=(3, 4))
    d = distances.pairwise_euclidean(distances.l2_normalize(jnp.asarray(x)))
    momentum = 0.02 / 1.01  # theirs is for each triplet, not for the batch
    values, histogram = losses.dynamic_soft_margin_from_distance(
      d[:2], near, far, histogram, momentum=momentum
    )
    expected = module(doubles.tensor(x), doubles.tensor(labels)).item()
    np.testing.assert_allclose(np.mean(values), expected, rtol=1e-6)
    np.testing.assert_allclose(histogram[:10], module.hist_.numpy(), atol=1e-6)
  rows = doubles.tensor(embeddings, requires_grad=True)
  module(rows, doubles.tensor(labels)).backward()
  # The histogram holds on to the graph of the batch before.
  again = module(rows, doubles.tensor(labels))
  with pytest.raises(RuntimeError, match="second time"):
    again.backward()


def test_nt_xent_of_labels_is_a_tuplet_loss_without_a_margin(doubles, theirs):
  embeddings, _ = _peers.inputs(24, 8, 4)
  labels = np.repeat(np.arange(len(SIZES)), SIZES)
  pairs = sum(size * (size - 1) for size in SIZES)

  def ours(x):
    values = losses.tuplet_margin(x, labels, margin=0.0, scale=1 / 0.07)
    return values.sum() / pairs

  value, gradient = jax.jit(jax.value_and_grad(ours))(jnp.asarray(embeddings))
  loss = functools.partial(theirs.NTXentLoss(), labels=doubles.tensor(labels))
  expected, wanted = differentiated(loss, embeddings, doubles)
  np.testing.assert_allclose(value, expected, rtol=1e-9)
  np.testing.assert_allclose(gradient, wanted.numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
  ("name", "labels", "references"),
  [("SupConLoss", [0, 0, 0], None), ("NCALoss", [0], [0, 0, 1, 2])],
)
def test_the_peer_returns_zero(name, labels, references, doubles, theirs):
  """A batch without a negative pair, and a single query."""
  rng = np.random.default_rng(3)
  x, labels = rng.normal(size=(len(labels), 4)), np.array(labels)
  module, rows = getattr(theirs, name)(), doubles.tensor(x)
  if references is None:
    assert module(rows, doubles.tensor(labels)) == 0
    assert losses.sup_con(x, labels).mean() > 0.1
    return
  memory, classes = rng.normal(size=(len(references), 4)), np.array(references)
  others = doubles.tensor(memory), doubles.tensor(classes)
  assert module(rows, doubles.tensor(labels), None, *others) == 0
  values = losses.nca(x, labels, references=losses.References(memory, classes))
  assert values.mean() > 0.1


def test_the_peers_histogram_has_no_place_for_duplicates(doubles, theirs):
  x, labels = np.eye(3)[[0, 0, 1, 2]], np.array([0, 0, 1, 1])
  with pytest.raises(RuntimeError, match="out of bounds"):
    theirs.HistogramLoss()(doubles.tensor(x), doubles.tensor(labels))
  assert np.isfinite(losses.histogram(x, labels)).all()


def indices_of(kind, miner, embeddings, labels):
  """How often each pair is in the peer's pairs or triplets, as ours has them."""
  positives, negatives = np.zeros((2, len(labels), len(labels)))
  indices = [x.numpy() for x in miner(embeddings, labels)]
  if kind == "pairs":
    a, p, b, n = indices
  else:
    (a, p, n), b = indices, indices[0]
  np.add.at(positives, (a, p), 1)
  np.add.at(negatives, (b, n), 1)
  return positives, negatives


@pytest.mark.parametrize(
  ("name", "settings", "ours", "kind", "of"),
  [
    ("MultiSimilarityMiner", {}, losses.mine_multi_similarity, "pairs", "similarity"),
    ("PairMarginMiner", {"pos_margin": 1.2, "neg_margin": 1.3},
     functools.partial(losses.mine_pair_margin, positive_margin=1.2,
                       negative_margin=1.3), "pairs", "distance"),
    ("BatchHardMiner", {}, losses.mine_batch_hard, "triplets", "distance"),
    *(
      ("TripletMarginMiner", {"type_of_triplets": kind},
       functools.partial(losses.mine_triplet_margin, kind=kind), "triplets", "distance")
      for kind in ("all", "hard", "semihard", "easy")
    ),
    *(
      ("BatchEasyHardMiner", {"pos_strategy": p, "neg_strategy": n},
       functools.partial(losses.mine_batch_easy_hard, positive=p, negative=n), "pairs",
       "distance")
      for p, n in (("easy", "semihard"), ("hard", "hard"), ("easy", "easy"),
                   ("hard", "semihard"), ("all", "hard"))
    ),
  ],
)  # fmt: skip
def test_miners_keep_what_the_peer_keeps(name, settings, ours, kind, of, doubles):
  from pytorch_metric_learning import miners

  embeddings = np.random.default_rng(1).normal(size=(14, 4))
  labels = np.array([0, 3, 0, 1, 0, 1, 0, 1, 3, 0, 3, 4, 4, 4])
  measure = distance if of == "distance" else dot
  matrix, same = matrix_of(measure, embeddings, embeddings), labels[:, None] == labels
  masks = same & ~np.eye(14, dtype=bool), ~same
  mined = ours(matrix, *masks, of=of)
  expected = indices_of(
    kind, getattr(miners, name)(**settings), *map(doubles.tensor, (embeddings, labels))
  )
  for pairs, wanted, all_pairs in zip(mined, expected, masks, strict=True):
    assert wanted.any()
    np.testing.assert_array_equal(np.asarray(pairs, float), wanted)
    if name not in ("BatchEasyHardMiner", "TripletMarginMiner"):
      assert (wanted < all_pairs).any()  # it leaves something out


def test_a_memory_past_its_end_is_the_peers(doubles, theirs):
  """Batches of 8 in a memory of 20: overwritten from the third on."""
  module = theirs.CrossBatchMemory(theirs.ContrastiveLoss(), 4, memory_size=20)
  memory = losses.memory_init(20, 4, dtype=jnp.float64)
  rng = np.random.default_rng(0)
  for _ in range(5):
    x, labels = rng.normal(size=(8, 4)), rng.integers(3, size=8)
    theirs_of_batch = functools.partial(module, labels=doubles.tensor(labels))
    expected, wanted = differentiated(theirs_of_batch, x, doubles)
    # Theirs compares with the batch too, differentiably, before it lies in the memory.
    memory, slots = losses.memory_update(memory, x, labels.astype(np.int32))
    references = losses.memory_references(memory, slots=slots)
    loss = functools.partial(losses.contrastive, labels=labels, references=references)
    values, gradient = with_slopes(loss)(x)
    np.testing.assert_allclose(values.mean(), expected, rtol=1e-9)
    np.testing.assert_allclose(gradient / 8, wanted.numpy(), rtol=1e-8, atol=1e-10)

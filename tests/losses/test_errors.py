"""Wrong calls of the losses: the type of the error, and the value in its message."""

import functools
import inspect
from functools import partial as call

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses
from tests import refusals
from tests.losses.slopes import losses_of

X = np.eye(4, 3, dtype=np.float32)
Y = np.array([0, 0, 1, 2])
PROXIES = np.eye(3, dtype=np.float32)
MATRIX = np.eye(4, dtype=np.float32)
SAME = np.eye(4, dtype=bool)

REST = {
  "class_distances": 1 - PROXIES,
  "centres": PROXIES[:, None],
  "histogram": np.zeros(8, np.float32),
  "norms": np.ones(4, np.float32),
  "proxies": PROXIES,
}
OPTIONS = {"distance_ratio": functools.partial(losses.distance_ratio, exponent=2.0)}
SCORES = ("cosines", "distances", "logits", "products", "squared_distances")


def forms(first, *others):
  """All exported losses that begin with these arguments, and arrays for the rest.

  Those that need a tree are in `test_hierarchy`.
  """
  result = {}
  for name in losses.__all__:
    function = OPTIONS.get(name, getattr(losses, name))
    if inspect.isclass(function) or name == "subcentre_arcface":  # of three axes
      continue
    parameters = inspect.signature(function).parameters
    leading, *rest = (x.name for x in parameters.values() if x.default is x.empty)
    same, rest = tuple(rest[: len(others)]) == others, rest[len(others) :]
    if leading in first and same and "where" in parameters and set(rest) <= set(REST):
      result[name] = function, [REST[x] for x in rest]
  return result


LABEL_FORMS = forms(("embeddings", *SCORES), "labels")
MATRIX_FORMS = forms(("distances", "similarities"), "positives", "negatives")
pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize("name", ["proxy_anchor", "proxy_nca_plus_plus", "normface"])
@pytest.mark.parametrize("label", [-1, 3, 1000])
def test_known_labels_outside_the_classes(name, label):
  (function, rest), labels = LABEL_FORMS[name], np.array([0, 1, label, 2])
  with pytest.raises(ValueError, match=rf"labels must be in \[0, 3\), got {label}"):
    function(X, labels, *rest)
  values = function(X, labels, *rest, where=labels == np.clip(labels, 0, 2))
  assert values[2] == 0  # a masked row may hold any label
  assert (values[:2] > 0).all()


def test_labels_are_checked_where_they_and_the_mask_are_known():
  bad = jax.numpy.array([0, 1, -1, 2])  # known to what closes over it

  def loss(logits, where=None):
    return losses.softmax(logits, bad, where=where)

  with pytest.raises(ValueError, match=r"labels must be in \[0, 3\), got -1"):
    jax.jit(loss)(X)
  keep = np.array([True, True, False, True])
  right = losses.softmax(X[keep], np.array([0, 1, 2]))
  masks = np.stack([keep, keep])
  for values in (jax.jit(loss)(X, keep), *jax.vmap(lambda w: loss(X, w))(masks)):
    np.testing.assert_allclose(values[keep], right, rtol=1e-6)
    assert values[2] == 0


# What single replaced arguments, in `tests/test_wrong_uses.py`, do not show.
WEIGHTS, MASKS = SAME.astype(np.float32), (MATRIX, SAME, ~SAME)
CALLS = [
  *(
    (call(form, MATRIX, *masks), f"TypeError: {name} must be boolean")
    for form in (losses.smooth_ap_from_similarity, losses.pnp_from_similarity)
    for name, masks in (("positives", (WEIGHTS, ~SAME)), ("negatives", (SAME, WEIGHTS)))
  ),
  *(
    (call(loss, X, Y, positive_margin=2.0, negative_margin=1.0),
     r"negative_margin must be in \[2, inf\), got 1")
    for loss in (losses.contrastive, losses.signal_to_noise_contrastive)
  ),
  (call(losses.contrastive, X, Y, references=losses.References(X, Y, where=Y)),
   r"TypeError: ^references\.where must be boolean, got"),
  (call(losses.pnp, X, Y, penalty="X"), "penalty must be one of .*'X'"),
  (call(losses.softmax, X, np.ones((4, 6), np.float32)), r"\(4, 3\).*\(4, 6\)"),
  (call(losses.cosface, X, Y, margin=np.ones(4)), r"\(3,\).*got \(4,\)"),
  *(
    (call(losses.arcface, X, Y, margin=margin), "margin must be .*, got -?1.58")
    for margin in (-1.58, 1.58, np.full(3, -1.58))
  ),
  *(
    (call(losses.subcentre_arcface, np.zeros(shape, np.float32), Y), message)
    for shape, message in (
      ((4, 3), r"3 axes, got shape \(4, 3\)"),
      ((0, 3, 2), r"must have a row, got shape \(0, 3, 2\)"),
      ((3, 3, 2), r"labels must have shape \(3,\).*got \(4,\)"),
    )
  ),
  (call(losses.pull, X, Y, weights=Y[:3]), "TypeError: weights must be floating"),
  (call(losses.sphereface, X, Y, X), r"norms must have shape \(4,\).*got \(4, 3\)"),
  (call(losses.multi_proxy, np.ones((3, 0))), r"classes, per_class\).* got \(3, 0\)"),
  (call(losses.margin, X, Y, class_boundaries=X[0, :2]), r"\[0, 2\), got 2"),
  (call(losses.margin, X, Y, class_boundaries=Y),
   "TypeError: class_boundaries must be floating"),
  (call(losses.margin, X, Y, example_boundaries=X[0]), r"\(4,\).*got \(3,\)"),
  (call(losses.dynamic_soft_margin, X, Y, X[0, :1]), r"two bins or more, got \(1,\)"),
  (call(losses.distortion, PROXIES, 0 * PROXIES), "positive between classes, got 0"),
  (call(losses.class_ranking, PROXIES, 1 - PROXIES, samples=3),
   "come together, got samples=3"),
  (call(losses.soft_label_cross_entropy, X, Y, -PROXIES), r"in \[0, .* got -1"),
  (call(losses.mine_batch_easy_hard, *MASKS, positive="all"), "semihard"),
  (call(losses.mine_angular, *MASKS, among=MATRIX[:2]), r"\(4, 4\)"),
  (call(losses.mine_angular, *MASKS, points=X[:3]), r"points must have shape \(4, 3\)"),
  (call(losses.mine_angular, *MASKS), "given, got neither"),
  (call(losses.mine_angular, *MASKS, among=MATRIX, points=X), "given, got both"),
  (call(losses.mine_distance_weighted, *MASKS, key=jax.random.key(0), dim=3,
        cutoff=1.5), r"cutoff must be in \(0, 1\.4\), got 1\.5"),
]  # fmt: skip


@refusals.table(CALLS)
def test_calls(call, message):
  refusals.check(call, message)


@pytest.mark.parametrize("name", LABEL_FORMS)
def test_empty_batches(name):
  function, rest = LABEL_FORMS[name]
  rest = (x[: 0 if x.shape == Y.shape else None] for x in rest)
  with pytest.raises(ValueError, match=r"must have a row, got shape \(0, 3\)"):
    function(np.zeros((0, 3), np.float32), np.zeros(0, int), *rest)


@pytest.mark.parametrize("name", MATRIX_FORMS)
def test_matrices_without_queries(name):
  (function, rest), none = MATRIX_FORMS[name], np.zeros((0, 4), bool)
  with pytest.raises(ValueError, match=r"must have a row, got shape \(0, 4\)"):
    function(none.astype(np.float32), none, none, *rest)


@pytest.mark.parametrize("name", sorted({*LABEL_FORMS} & {*losses_of("references")}))
def test_copies_among_the_references(name):
  function, rest = LABEL_FORMS[name]
  for wrong, shown in (((0, 1, 4, -1), 4), ((0, 1, 2, -7), -7)):
    references = losses.References(X, Y, itself=np.array(wrong))
    text = rf"references.itself must be in \[-1, 4\), got {shown}"
    with pytest.raises(ValueError, match=text):
      function(X, Y, *rest, references=references)


def test_copies_of_masked_rows():
  references = losses.References(X, Y, itself=np.array((0, 1, 9, -1)))
  keep = np.array([True, True, False, True])
  assert losses.contrastive(X, Y, references=references, where=keep)[2] == 0


def test_an_empty_half_of_a_batch_has_no_loss():
  nothing, none = np.zeros((0, 3), np.float32), np.zeros(0, int)
  empty_half = jax.jit(losses.zero_shot_prediction)(nothing, none, X, Y, PROXIES)
  np.testing.assert_allclose(empty_half, np.full(4, np.log(3)), rtol=1e-6)
  assert all(half.shape == (0,) for half in losses.split_by_class(none))


@pytest.mark.parametrize("name", ["normface", "cosface", "arcface"])
def test_known_cosines_beyond_one_are_refused(name):
  loss, labels = getattr(losses, name), jnp.array([0, 1, 1])
  cosines = jnp.array([[0.1, 0.2], [-0.3, 1], [0.5, -1]])
  for dtype, rounding in (("float32", 1e-6), ("bfloat16", 1e-2), ("float16", 2e-3)):
    usual = (cosines * (1 + rounding)).astype(dtype)
    loss(usual, labels)
    with pytest.raises(ValueError, match=r"cosines must be in \[-1, 1\], got -5"):
      loss(usual.at[1, 0].set(-5), labels)
  loss(cosines.at[0, 0].set(jnp.nan), labels)
  # What is traced is taken as it comes.
  jax.jit(loss)(5 * cosines, labels)


@pytest.mark.parametrize("labels", [jnp.array([0, 1, 1]), jnp.full((3, 3), 1 / 3)])
def test_known_probabilities_are_no_logits(labels):
  logits = jnp.array([[2.0, -1, 0], [0, 0, 0], [1, 3, 2]])
  for dtype in ("float32", "bfloat16"):
    for usual in (logits, jnp.eye(3), jax.nn.log_softmax(logits), jnp.abs(logits)):
      losses.softmax(usual.astype(dtype), labels)
    probabilities = jax.nn.softmax(logits).astype(dtype)
    with pytest.warns(UserWarning, match="logits look like probabilities"):
      losses.softmax(probabilities, labels)
    where = jnp.array([True, False, True])
    with pytest.warns(UserWarning, match="logits look like probabilities"):
      losses.softmax(probabilities.at[1].set(9), labels, where=where)
    jax.jit(losses.softmax)(probabilities, labels)

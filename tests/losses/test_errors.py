"""Wrong calls of the losses: the type of the error, and the value in its message."""

import jax
import numpy as np
import pytest

from spherejax import losses

X = np.eye(4, 3, dtype=np.float32)
Y = np.array([0, 0, 1, 2])
PROXIES = np.eye(3, dtype=np.float32)
MATRIX = np.eye(4, dtype=np.float32)
SAME = np.eye(4, dtype=bool)

HISTOGRAM = np.zeros(8, np.float32)

LABEL_FORMS = {
  name: (getattr(losses, name), (X, Y))
  for name in (
    "circle",
    "contrastive",
    "cosine_contrastive",
    "generalized_lifted_structure",
    "hadsell_contrastive",
    "intra_pair_variance",
    "lifted_structure",
    "margin",
    "multi_similarity",
    "n_pair",
    "nca",
    "signal_to_noise_contrastive",
    "threshold_consistent_margin",
    "triplet",
  )
} | {
  "dynamic_soft_margin": (losses.dynamic_soft_margin, (X, Y, HISTOGRAM)),
  "proxy_anchor": (losses.proxy_anchor, (X, Y, PROXIES)),
  "proxy_nca_plus_plus": (losses.proxy_nca_plus_plus, (X, Y, PROXIES)),
  "normface": (losses.normface, (X, Y)),
}
MATRIX_FORMS = {
  name: (getattr(losses, name), (MATRIX, SAME, ~SAME))
  for name in (
    "circle_from_similarity",
    "contrastive_from_distance",
    "cosine_contrastive_from_similarity",
    "generalized_lifted_structure_from_distance",
    "hadsell_contrastive_from_distance",
    "intra_pair_variance_from_similarity",
    "lifted_structure_from_distance",
    "margin_from_distance",
    "multi_similarity_from_similarity",
    "n_pair_from_similarity",
    "nca_from_distance",
    "threshold_consistent_margin_from_similarity",
    "triplet_from_distance",
  )
}
ZERO_SHOT = (X, Y, X, Y, PROXIES)

pytestmark = pytest.mark.usefixtures("unchecked")


def replaced(arguments, position, value):
  return (*arguments[:position], value, *arguments[position + 1 :])


@pytest.mark.parametrize("name", LABEL_FORMS)
@pytest.mark.parametrize(
  ("position", "value", "error", "message"),
  [
    (0, np.eye(4, 3, dtype=np.int32), TypeError, "must be floating, got dtype int32"),
    (0, X[0], ValueError, r"2 axes, got shape \(3,\)"),
    (0, X[None], ValueError, r"2 axes, got shape \(1, 4, 3\)"),
    (1, Y.astype(np.float32), TypeError, "labels must be integers, got dtype float32"),
    (1, Y[:3], ValueError, r"labels must have shape \(4,\).*got \(3,\)"),
    (1, Y[:, None], ValueError, r"labels must have shape \(4,\).*got \(4, 1\)"),
  ],
)
def test_embeddings_and_labels(name, position, value, error, message):
  function, arguments = LABEL_FORMS[name]
  with pytest.raises(error, match=message):
    function(*replaced(arguments, position, value))


@pytest.mark.parametrize("name", LABEL_FORMS | MATRIX_FORMS)
def test_masks(name):
  function, arguments = (LABEL_FORMS | MATRIX_FORMS)[name]
  with pytest.raises(TypeError, match="where must be boolean, got dtype int32"):
    function(*arguments, where=np.ones(4, np.int32))
  with pytest.raises(ValueError, match=r"where must have shape \(4,\), got \(5,\)"):
    function(*arguments, where=np.ones(5, bool))


@pytest.mark.parametrize("name", MATRIX_FORMS)
@pytest.mark.parametrize(
  ("position", "value", "error", "message"),
  [
    (0, MATRIX.astype(int), TypeError, "must be floating, got dtype int"),
    (0, MATRIX[0], ValueError, r"2 axes, got shape \(4,\)"),
    (
      1,
      SAME.astype(int),
      TypeError,
      "positives must be boolean or weights, got dtype int",
    ),
    (1, SAME[:3], ValueError, r"positives must have shape \(4, 4\), got \(3, 4\)"),
    (
      2,
      SAME.astype(int),
      TypeError,
      "negatives must be boolean or weights, got dtype int",
    ),
    (2, SAME[:, :2], ValueError, r"negatives must have shape \(4, 4\), got \(4, 2\)"),
  ],
)
def test_matrices(name, position, value, error, message):
  function, arguments = MATRIX_FORMS[name]
  with pytest.raises(error, match=message):
    function(*replaced(arguments, position, value))


@pytest.mark.parametrize(
  ("function", "arguments", "name"),
  [
    (losses.contrastive, (X, Y), "average"),
    (losses.contrastive_from_distance, (MATRIX, SAME, ~SAME), "average"),
    (losses.triplet, (X, Y), "average"),
    (losses.triplet_from_distance, (MATRIX, SAME, ~SAME), "average"),
    (losses.contrastive, (X, Y), "normalize"),
    (losses.n_pair, (X, Y), "normalize"),
    (losses.signal_to_noise_contrastive, (X, Y), "average"),
    (losses.cosine_contrastive, (X, Y), "normalize"),
    (losses.multi_similarity, (X, Y), "normalize"),
    (losses.triplet, (X, Y), "normalize"),
    (losses.proxy_anchor, (X, Y, PROXIES), "normalize"),
    (losses.proxy_nca_plus_plus, (X, Y, PROXIES), "normalize"),
    (losses.proxy_nca_plus_plus, (X, Y, PROXIES), "logit"),
  ],
)
def test_unknown_names(function, arguments, name):
  with pytest.raises(ValueError, match=f"{name} must be one of .*, got 'other'"):
    function(*arguments, **{name: "other"})


@pytest.mark.parametrize(
  ("function", "arguments", "name"),
  [
    (losses.multi_similarity, (X, Y), "positive_scale"),
    (losses.multi_similarity, (X, Y), "negative_scale"),
    (losses.multi_similarity_from_similarity, (MATRIX, SAME, ~SAME), "positive_scale"),
    (losses.proxy_anchor, (X, Y, PROXIES), "scale"),
    (losses.proxy_nca_plus_plus, (X, Y, PROXIES), "temperature"),
    (losses.normface, (X, Y), "scale"),
    (losses.ridge_attribute_embeddings, (X, X), "ridge"),
    (losses.zero_shot_prediction, ZERO_SHOT, "ridge"),
  ],
)
def test_numbers_that_must_be_positive(function, arguments, name):
  for value in (-2.5, 0.0, float("nan")):
    with pytest.raises(ValueError, match=rf"{name} must be in .*, got {value:g}"):
      function(*arguments, **{name: value})
  with pytest.raises(ValueError, match=rf"{name} must be a scalar, got shape \(2,\)"):
    function(*arguments, **{name: np.ones(2, np.float32)})


@pytest.mark.parametrize(
  ("name", "number"),
  [
    ("contrastive", "positive_margin"),
    ("contrastive", "negative_margin"),
    ("cosine_contrastive", "margin"),
    ("multi_similarity", "threshold"),
    ("margin", "boundary"),
    ("margin", "boundary_weight"),
    ("n_pair", "norm_weight"),
    ("signal_to_noise_contrastive", "mean_weight"),
    ("threshold_consistent_margin", "positive_weight"),
    ("intra_pair_variance", "negative_tolerance"),
    ("dynamic_soft_margin", "momentum"),
    ("triplet", "margin"),
    ("proxy_anchor", "margin"),
  ],
)
def test_numbers_that_must_be_scalars(name, number):
  function, arguments = LABEL_FORMS[name]
  with pytest.raises(ValueError, match=rf"{number} must be a scalar, got shape \(2,\)"):
    function(*arguments, **{number: np.ones(2, np.float32)})


@pytest.mark.parametrize("name", ["proxy_anchor", "proxy_nca_plus_plus", "normface"])
@pytest.mark.parametrize("label", [-1, 3, 1000])
def test_known_labels_outside_the_classes(name, label):
  function, arguments = LABEL_FORMS[name]
  labels = np.array([0, 1, label, 2])
  with pytest.raises(ValueError, match=rf"labels must be in \[0, 3\), got {label}"):
    function(*replaced(arguments, 1, labels))
  values = function(
    *replaced(arguments, 1, labels), where=labels == np.clip(labels, 0, 2)
  )
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


@pytest.mark.parametrize(
  ("function", "more"),
  [
    (losses.smooth_ap_from_similarity, ()),
    (losses.pnp_from_similarity, ()),
    (losses.dynamic_soft_margin_from_distance, (HISTOGRAM,)),
  ],
)
def test_forms_without_weights(function, more):
  weights = SAME.astype(np.float32)
  with pytest.raises(TypeError, match="positives must be boolean, got dtype float32"):
    function(MATRIX, weights, ~SAME, *more)
  with pytest.raises(TypeError, match="negatives must be boolean, got dtype float32"):
    function(MATRIX, SAME, weights, *more)


def test_the_mask_of_references():
  references = losses.References(X, Y, where=np.ones(4, np.int32))
  with pytest.raises(TypeError, match=r"^references\.where must be boolean, got"):
    losses.contrastive(X, Y, references=references)


@pytest.mark.parametrize("momentum", [2.0, -0.1])
def test_a_share_of_the_histogram(momentum):
  with pytest.raises(
    ValueError, match=rf"momentum must be in \[0, 1\], got {momentum:g}"
  ):
    losses.dynamic_soft_margin(X, Y, HISTOGRAM, momentum=momentum)
  with pytest.raises(
    ValueError, match=rf"momentum must be in \[0, 1\], got {momentum:g}"
  ):
    losses.dynamic_soft_margin_from_distance(
      MATRIX, SAME, ~SAME, HISTOGRAM, momentum=momentum
    )


@pytest.mark.parametrize("name", ["proxy_anchor", "proxy_nca_plus_plus"])
def test_proxies(name):
  function, _ = LABEL_FORMS[name]
  with pytest.raises(TypeError, match="proxies must be floating, got dtype int32"):
    function(X, Y, np.eye(3, dtype=np.int32))
  with pytest.raises(ValueError, match=r"length 3 .*got shape \(3, 5\)"):
    function(X, Y, np.ones((3, 5), np.float32))
  with pytest.raises(ValueError, match=r"axes, got shape \(3,\)"):
    function(X, Y, PROXIES[0])


@pytest.mark.parametrize(
  ("position", "value", "error", "message"),
  [
    (0, X.astype(int), TypeError, "attributes_a must be floating, got dtype int"),
    (2, X[0], ValueError, r"attributes_b must have 2 axes, got shape \(3,\)"),
    (2, X[:, :2], ValueError, r"\(4, 3\) and \(4, 2\)"),
    (1, X[:, 0], TypeError, "labels_a must be integers, got dtype float32"),
    (3, Y[:2], ValueError, r"labels_b must have shape \(4,\).*got \(2,\)"),
    (1, Y - 1, ValueError, r"labels_a must be in \[0, 3\), got -1"),
    (3, Y + 1, ValueError, r"labels_b must be in \[0, 3\), got 3"),
    (4, PROXIES.astype(int), TypeError, "label_embeddings must be floating, got dtype"),
    (4, PROXIES[0], ValueError, r"label_embeddings must have 2 axes, got shape \(3,\)"),
  ],
)
def test_zero_shot_prediction(position, value, error, message):
  with pytest.raises(error, match=message):
    losses.zero_shot_prediction(*replaced(ZERO_SHOT, position, value))


def test_zero_shot_masks_and_scale():
  with pytest.raises(ValueError, match=r"where_a must have .*\(4,\), got \(3,\)"):
    losses.zero_shot_prediction(*ZERO_SHOT, where_a=np.ones(3, bool))
  with pytest.raises(TypeError, match="where_b must be boolean, got dtype float32"):
    losses.zero_shot_prediction(*ZERO_SHOT, where_b=X[:, 0])
  with pytest.raises(ValueError, match=r"scale must be a scalar, got shape \(2,\)"):
    losses.zero_shot_prediction(*ZERO_SHOT, scale=np.ones(2, np.float32))


def test_split_and_regression():
  with pytest.raises(TypeError, match="labels must be integers, got dtype float32"):
    losses.split_by_class(X[:, 0])
  with pytest.raises(ValueError, match=r"labels must have 1 axes, got shape \(4, 1\)"):
    losses.split_by_class(Y[:, None])
  with pytest.raises(ValueError, match=r"where must have shape \(4,\), got \(2,\)"):
    losses.split_by_class(Y, where=np.ones(2, bool))
  with pytest.raises(TypeError, match="targets must be floating, got dtype int"):
    losses.ridge_attribute_embeddings(X, X.astype(int))
  with pytest.raises(ValueError, match=r"targets must have shape \(4, 3\).*\(2, 3\)"):
    losses.ridge_attribute_embeddings(X, X[:2])


@pytest.mark.parametrize("name", LABEL_FORMS)
def test_empty_batches(name):
  function, arguments = LABEL_FORMS[name]
  with pytest.raises(ValueError, match=r"must have a row, got shape \(0, 3\)"):
    function(np.zeros((0, 3), np.float32), np.zeros(0, int), *arguments[2:])


def test_an_empty_half_of_a_batch_has_no_loss():
  nothing, none = np.zeros((0, 3), np.float32), np.zeros(0, int)
  empty_half = jax.jit(losses.zero_shot_prediction)(nothing, none, X, Y, PROXIES)
  np.testing.assert_allclose(empty_half, np.full(4, np.log(3)), rtol=1e-6)
  assert all(half.shape == (0,) for half in losses.split_by_class(none))

"""Wrong calls of the losses: the type of the error, and the value in its message."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses

X = np.eye(4, 3, dtype=np.float32)
Y = np.array([0, 0, 1, 2])
PROXIES = np.eye(3, dtype=np.float32)
MATRIX = np.eye(4, dtype=np.float32)
SAME = np.eye(4, dtype=bool)

HISTOGRAM = np.zeros(8, np.float32)

REST = {
  "class_distances": 1 - PROXIES,
  "centres": PROXIES[:, None],
  "histogram": HISTOGRAM,
  "norms": np.ones(4, np.float32),
  "proxies": PROXIES,
}
OPTIONS = {"distance_ratio": functools.partial(losses.distance_ratio, exponent=2.0)}
SCORES = ("cosines", "distances", "logits", "products", "squared_distances")


def forms(first, *others):
  """All exported losses that begin with these arguments, and arrays for the rest.

  Those that need a tree are in `test_hierarchy`.
  """
  found = {}
  for name in losses.__all__:
    function = OPTIONS.get(name, getattr(losses, name))
    if inspect.isclass(function) or name == "subcentre_arcface":  # of three axes
      continue
    parameters = inspect.signature(function).parameters
    kept, *rest = (x.name for x in parameters.values() if x.default is x.empty)
    same, rest = tuple(rest[: len(others)]) == others, rest[len(others) :]
    if kept in first and same and "where" in parameters and set(rest) <= set(REST):
      found[name] = function, tuple(REST[x] for x in rest)
  return found


LABEL_FORMS = {
  name: (function, (X, Y, *rest))
  for name, (function, rest) in forms(("embeddings", *SCORES), "labels").items()
}
MATRIX_FORMS = {
  name: (function, (MATRIX, SAME, ~SAME, *rest))
  for name, (function, rest) in forms(
    ("distances", "similarities"), "positives", "negatives"
  ).items()
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
    (0, X[0], ValueError, r"2 (or 3 )?axes, got shape \(3,\)"),
    (0, X[None, None], ValueError, r"2 (or 3 )?axes, got shape \(1, 1, 4, 3\)"),
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
      "positives must be boolean( or weights)?, got dtype int",
    ),
    (1, SAME[:3], ValueError, r"positives must have shape \(4, 4\), got \(3, 4\)"),
    (
      2,
      SAME.astype(int),
      TypeError,
      "negatives must be boolean( or weights)?, got dtype int",
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
  for value in ("nan", "inf"):
    with pytest.raises(ValueError, match=rf"{number} must be .*, got {value}"):
      function(*arguments, **{number: float(value)})


def test_a_margin_of_negatives_below_that_of_positives():
  for loss in (losses.contrastive, losses.signal_to_noise_contrastive):
    with pytest.raises(
      ValueError, match=r"negative_margin must be in \[2, inf\), got 1"
    ):
      loss(X, Y, positive_margin=2.0, negative_margin=1.0)


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
  rest = (x[: 0 if x.shape == Y.shape else None] for x in arguments[2:])
  with pytest.raises(ValueError, match=r"must have a row, got shape \(0, 3\)"):
    function(np.zeros((0, 3), np.float32), np.zeros(0, int), *rest)


@pytest.mark.parametrize("name", MATRIX_FORMS)
def test_matrices_without_queries(name):
  function, (_, _, _, *rest) = MATRIX_FORMS[name]
  none = np.zeros((0, 4), bool)
  with pytest.raises(ValueError, match=r"must have a row, got shape \(0, 4\)"):
    function(none.astype(np.float32), none, none, *rest)


def test_copies_among_the_references():
  for wrong, shown in (((0, 1, 4, -1), 4), ((0, 1, 2, -7), -7)):
    references = losses.References(X, Y, itself=np.array(wrong))
    text = rf"references.itself must be in \[-1, 4\), got {shown}"
    with pytest.raises(ValueError, match=text):
      losses.contrastive(X, Y, references=references)
  references = losses.References(X, Y, itself=np.array((0, 1, 9, -1)))
  kept = np.array([True, True, False, True])
  assert losses.contrastive(X, Y, references=references, where=kept)[2] == 0


def test_class_distances_of_soft_labels():
  with pytest.raises(TypeError, match=r"must be real numbers, got dtype bool"):
    losses.soft_label_cross_entropy(X, Y, np.eye(3) == 0)
  with pytest.raises(ValueError, match=r"class_distances must be in \[0, .* got -1"):
    losses.soft_label_cross_entropy(X, Y, -np.eye(3))


def test_subcentres():
  for shape, message in (
    ((4, 3), r"3 axes, got shape \(4, 3\)"),
    ((0, 3, 2), r"must have a row, got shape \(0, 3, 2\)"),
    ((3, 3, 2), r"labels must have shape \(3,\).*got \(4,\)"),
  ):
    with pytest.raises(ValueError, match=message):
      losses.subcentre_arcface(np.zeros(shape, np.float32), Y)


def test_an_empty_half_of_a_batch_has_no_loss():
  nothing, none = np.zeros((0, 3), np.float32), np.zeros(0, int)
  empty_half = jax.jit(losses.zero_shot_prediction)(nothing, none, X, Y, PROXIES)
  np.testing.assert_allclose(empty_half, np.full(4, np.log(3)), rtol=1e-6)
  assert all(half.shape == (0,) for half in losses.split_by_class(none))


WITH_COSINES = [
  name
  for name in losses.__all__
  if "cosines" in getattr(getattr(losses, name), "__annotations__", {})
]


def of_cosines(name, cosines):
  """A loss of three rows of cosines, and of what else it takes."""
  function = getattr(losses, name)
  names = inspect.signature(function).parameters
  labels, more = jnp.array([0, 1, 1]), {}
  if name == "subcentre_arcface":
    cosines = cosines[..., None]
  if "adversarial_cosines" in names:
    more["adversarial_cosines"] = 0.5 * jnp.eye(3)[:, :2]
  if "nearest_angles" in names:
    more["nearest_angles"] = jnp.ones(2)
  if "norms" in names:
    more["norms"] = jnp.ones((3, 2) if name == "large_margin_softmax" else 3)
  if name == "adacos_update":
    return function(losses.adacos_scale(3), cosines, labels)
  return function(cosines, labels=labels, **more)


@pytest.mark.parametrize("name", WITH_COSINES)
def test_known_cosines_beyond_one_are_refused(name, unchecked):
  cosines = jnp.array([[0.1, 0.2], [-0.3, 1], [0.5, -1]])
  for dtype, rounding in (("float32", 1e-6), ("bfloat16", 1e-2), ("float16", 2e-3)):
    usual = (cosines * (1 + rounding)).astype(dtype)
    of_cosines(name, usual)
    with pytest.raises(ValueError, match=r"cosines must be in \[-1, 1\], got -5"):
      of_cosines(name, usual.at[1, 0].set(-5))
  of_cosines(name, cosines.at[0, 0].set(jnp.nan))
  # What is traced is taken as it comes.
  jax.jit(lambda x: of_cosines(name, x))(5 * cosines)


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

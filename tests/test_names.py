"""Hints for names that a room does not have."""

import importlib
import pickle
import re

import pytest

import spherejax
from spherejax import _names

ROOMS = [name for name in spherejax.__all__ if not name.startswith("_")]
EVERY = [
  (room, name)
  for room in ROOMS
  for name in importlib.import_module(f"spherejax.{room}").__all__
]
GUESSES = {
  "losses": {
    "losses.arcface": "ArcFaceLoss arc_face additive_angular_margin",
    "losses.barlow_twins": "Barlow",
    "losses.contrastive": "contrastve C2",
    "losses.cosface": "CosFaceLoss",
    "losses.fast_ap": "FastAPLoss FastAP",
    "losses.lifted_structure": "lifted_struct",
    "losses.memory_init": "CrossBatchMemory XBM",
    "losses.mine_angular": "AngularMiner",
    "losses.mine_batch_hard": "BatchHardMiner",
    "losses.mine_hardest_fraction": "HDCMiner",
    "losses.mine_triplet_margin": "TripletMarginMiner",
    "losses.multi_similarity": "multi_simlarity",
    "losses.n_pair": "NPairsLoss",
    "losses.normface": "NormalizedSoftmaxLoss",
    "losses.nt_xent": "NTXentLoss ntxent SimCLRLoss",
    "losses.proxy_nca": "ProxyNCALoss",
    "losses.signal_to_noise_contrastive": "SignalToNoiseRatioContrastiveLoss",
    "losses.softmax": "CrossEntropyLoss softmax_cross_entropy_with_integer_labels",
    "losses.sphereface": "SphereFaceLoss",
    "losses.subcentre_arcface": "SubCenterArcFaceLoss",
    "losses.sup_con": "SupervisedContrastiveLoss",
    "losses.triplet": "triplet_margin_loss",
    "losses.vicreg": "VICRegLoss",
    "models.ArcFace": "ArcFaceLoss",
    "models.ProxyAnchor": "ProxyAnchorLoss proxy_anchor_loss",
    "models.ResNet50": "resnet50",
    "distances.pairwise_cosine": "cosine_similarity",
    "attacks.pgd": "LinfPGD",
  },
  "attacks": {
    "attacks.Expectation": "EOTPGD",
    "attacks.bim": "LinfBasicIterativeAttack",
    "attacks.carlini_wagner": "L2CarliniWagnerAttack CW CarliniL2Method",
    "attacks.deepfool": "L2DeepFoolAttack DeepFool",
    "attacks.ensemble": "AutoAttack",
    "attacks.fgsm": "LinfFastGradientAttack FGSM FastGradientMethod",
    "attacks.pgd": "LinfPGD PGDAttack LinfProjectedGradientDescentAttack pdg PGDL2",
    "voronoi.voronoi_pgd": "voronoi_pgd",
  },
  "metrics": {
    "distances.pairwise_euclidean": "pairwise_distances",
    "metrics.class_scores": "accuracy_score f1_score",
    "metrics.normalized_mutual_information": "NMI normalized_mutual_info_score",
    "metrics.recall_at_k": "recall_at_1",
    "metrics.retrieval": "precision_at_1 r_precision AccuracyCalculator MAP",
  },
  "models": {
    "losses.contrastive": "ContrastiveLoss",
    "models.InceptionV3": "inception_v3 Inception_V3",
    "models.ResNet18": "resnet18 Resnet18",
    "pooling.gem": "GeMPooling",
  },
  "pooling": {
    "pooling.gap": "GlobalAveragePooling AdaptiveAvgPool2d",
    "models.GeM": "GeM",
  },
  "prototypes": {
    "prototypes.nearest_neighbours": "KNeighborsClassifier",
    "prototypes.simplex": "ETF",
  },
  "solvers": {
    "solvers.k_means": "KMeans",
    "solvers.linear_assignment": "hungarian_algorithm linear_sum_assignment",
    "solvers.sphere_mds": "MDS",
  },
  "training": {"training.Monitor": "EarlyStopping", "training.make_step": "train_step"},
  "": {
    "losses": "loss LOSSES losess",
    "losses.contrastive": "ContrastiveLoss contrastive",
    "metrics.retrieval": "mean_average_precision",
  },
}


def hint(room: str, name: str) -> str:
  module = importlib.import_module(f"spherejax.{room}".rstrip("."))
  with pytest.raises(AttributeError) as error:
    getattr(module, name)
  assert f"module '{module.__name__}' has no attribute '{name}'" in str(error.value)
  return str(error.value).partition("did you mean ")[2]


def targets(text: str) -> list[str]:
  return re.findall(r"[\w.]+", text.replace(" or ", " "))


@pytest.mark.parametrize(
  ("room", "guess", "target"),
  [
    (room, guess, target)
    for room, answers in GUESSES.items()
    for target, guesses in answers.items()
    for guess in guesses.split()
  ],
)
def test_names_of_other_libraries_and_papers(room, guess, target):
  assert target in targets(hint(room, guess))


def test_the_right_hint_comes_first():
  assert hint("losses", "ContrastiveLoss") == "losses.contrastive?"
  assert hint("losses", "ProxyAnchor") == "losses.proxy_anchor or models.ProxyAnchor?"
  assert hint("models", "proxy_anchor") == "models.ProxyAnchor or losses.proxy_anchor?"
  assert hint("metrics", "mean_corelation").startswith("metrics.mean_correlation")


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_knows_the_names_of_all(room):
  assert hint(room, "TripletMarginLoss") == "losses.triplet?"
  away = "voronoi" if room != "voronoi" else "metrics"
  for name in importlib.import_module(f"spherejax.{room}").__all__:
    camel = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    for where, guess in [(room, camel + "Loss"), (room, name + "_loss"), (away, name)]:
      module = importlib.import_module(f"spherejax.{where}")
      if hasattr(module, guess):  # `circle`, which two rooms have
        continue
      assert f"{room}.{name}" in targets(hint(where, guess)), (where, guess)


def test_a_letter_too_few_is_understood():
  for room, name in EVERY[::3]:
    if len(name) > 6:
      guess = name[: len(name) // 2] + name[len(name) // 2 + 1 :]
      if (room, guess) not in EVERY:
        assert f"{room}.{name}" in targets(hint(room, guess)), guess


@pytest.mark.parametrize("name", ["FocalLoss", "hinge", "HopSkipJumpAttack", "cellar"])
def test_nothing_is_better_than_a_wrong_hint(name):
  assert not hint("losses", name)
  assert not hint("", name)


def test_imports_are_answered_too():
  wanted = (
    r"from 'spherejax\.losses' .* 'ProxyAnchor'; did you mean losses\.proxy_anchor"
  )
  with pytest.raises(ImportError, match=wanted):
    exec("from spherejax.losses import contrastive, ProxyAnchor")
  with pytest.raises(ImportError, match=r"did you mean losses\.contrastive"):
    exec("from spherejax import ContrastiveLoss")
  with pytest.raises(ImportError, match="cannot import name 'zzz'"):
    exec("from spherejax.losses import zzz")
  with pytest.raises(ModuleNotFoundError, match="No module named"):
    exec("import spherejax.losses.contrastive_loss")
  names = {}
  exec("from spherejax.losses import _triplet, triplet", names)
  exec("from spherejax import losses", names)
  assert names["triplet"] is names["losses"].triplet
  exec("from spherejax.losses import *", names)
  assert set(spherejax.losses.__all__) <= set(names)


def test_what_asks_for_attributes_works_as_before():
  losses = spherejax.losses
  assert not hasattr(losses, "ContrastiveLoss")
  assert not hasattr(losses, "")
  assert not hasattr(losses, "größe")
  assert "ContrastiveLoss" not in dir(losses)
  assert pickle.loads(pickle.dumps(losses.triplet)) is losses.triplet
  for name in ("__wrapped__", "_triplett", "__path_", "_ipython_display_"):
    assert not hint("losses", name)


def test_other_names_lead_to_what_is_there():
  for target, others in _names._OTHERS.items():
    room, name = target.split(".")
    assert (room, name) in EVERY, target
    for other in others.split():
      assert _names._key(other) != _names._key(name), f"{other} is found without this"

"""Suggests names where a sub-package lacks a requested name.

Other libraries use other names for losses, attacks and metrics, and some names are in
another sub-package. Nothing here runs before such a name is requested, and nothing is
imported for the answer: the names are read from each `__all__`.
"""

import ast
import difflib
import functools
import importlib.util
import pkgutil
import re
import sys
from typing import NoReturn

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_SPELT = {
  "center": "centre",
  "neighbor": "neighbour",
  "neighbors": "neighbours",
  "normalise": "normalize",
  "normalised": "normalized",
  "avg": "average",
}
_DROPPED = {
  *("loss", "losses", "attack", "sampler", "pool", "pooling", "score", "function"),
  *("layer", "method", "module"),
}
"""Last words that our names do without."""

_KIN = {
  "losses": ("losses", "models"),
  "pooling": ("pooling", "models"),
  "models": ("models", "losses", "pooling"),
}
"""Rooms where the same method has a function and a module."""

_OTHERS = {
  "attacks.Expectation": "eot eotpgd expectation_over_transformation",
  "attacks.apgd": "auto_pgd auto_projected_gradient_descent",
  "attacks.bim": "basic_iterative i_fgsm iterative_fgsm",
  "attacks.carlini_wagner": "cw carlini carlini_l2",
  "attacks.ensemble": "auto auto_attack aa",
  "attacks.fab": "fast_adaptive_boundary",
  "attacks.fgsm": "fast_gradient fast_gradient_sign fgm",
  "attacks.mi_fgsm": "momentum_iterative momentum_iterative_fgsm momentum_fgsm",
  "attacks.pgd": "projected_gradient_descent projected_gradient",
  "attacks.smoothed_certificate": "randomized_smoothing certify",
  "attacks.smoothed_prediction": "randomized_smoothing smooth",
  "data.class_balanced_indices": "m_per_class balanced_batch",
  "data.load_folder": "image_folder",
  "data.pipeline": "data_loader dataloader",
  "data.random_blur": "gaussian_blur",
  "data.random_flip": "random_horizontal_flip",
  "data.sample_episode": "episode episodes",
  "data.split_classes": "train_test_split random_split",
  "data.split_within_classes": "train_test_split random_split",
  "distances.cosine": "cosine_similarity",
  "distances.k_nearest": "knn k_neighbours k_nearest_neighbours",
  "distances.l2_normalize": "normalize unit_norm",
  "distances.lp_norm": "norm l1_norm l2_norm linf_norm",
  "distances.pairwise_cosine": "cosine_similarity",
  "distances.pairwise_dot": "dot_product_similarity",
  "distances.pairwise_euclidean": "cdist pdist pairwise_distances lp_distance"
  " euclidean_distances euclidean_distance",
  "distances.pairwise_lp": "lp_distance",
  "distances.pairwise_poincare": "hyperbolic_distance poincare_distance",
  "distances.squared_euclidean": "squared_error squared_distance",
  "hierarchy.ClassTree": "tree hierarchy",
  "hierarchy.from_newick": "newick read_newick",
  "losses.arcface": "additive_angular_margin aam_softmax",
  "losses.contrastive": "c2",
  "losses.correlation": "corr",
  "losses.cosface": "am_softmax additive_margin_softmax large_margin_cosine lmcl",
  "losses.cosine_contrastive": "c1 cosine_embedding",
  "losses.distance_ratio": "dr dr_formulation",
  "losses.dot_regression": "dot_regression_etf",
  "losses.hierarchical_cross_entropy": "hxe",
  "losses.lifted_structure": "lifted lifted_struct",
  "losses.memory_init": "cross_batch_memory xbm memory_bank",
  "losses.mine_hardest_fraction": "mine_hdc",
  "losses.mine_multi_similarity": "mine_ms",
  "losses.multi_similarity": "ms",
  "losses.n_pair": "n_pairs",
  "losses.normface": "normalized_softmax norm_softmax",
  "losses.nt_xent": "simclr",
  "losses.proxy_nca_plus_plus": "pnca proxy_nca_pp",
  "losses.signal_to_noise_contrastive": "signal_to_noise_ratio_contrastive snr"
  " snr_contrastive snr_distance",
  "losses.soft_label_cross_entropy": "soft_labels",
  "losses.softmax": "psc cross_entropy softmax_cross_entropy label_smoothing"
  " softmax_cross_entropy_with_integer_labels safe_softmax_cross_entropy"
  " categorical_cross_entropy sparse_categorical_cross_entropy",
  "losses.squared_distance_softmax": "prototypical proto_net prototypical_network",
  "losses.sup_con": "supervised_contrastive",
  "losses.triplet": "triplet_margin triplet_semi_hard triplet_hard centroid_triplet"
  " batch_hard_triplet triplet_margin_with_distance",
  "losses.zero_shot_prediction": "zsp zero_shot",
  "metrics.accuracy_curve": "saa vaa",
  "metrics.average_hierarchical_distance": "ahd",
  "metrics.average_hierarchical_similarity": "ahs",
  "metrics.class_scores": "accuracy f1 recall precision classification_report",
  "metrics.confusion_counts": "confusion_matrix",
  "metrics.correlation": "pearsonr spearmanr",
  "metrics.hierarchical_precision": "hp",
  "metrics.mean_correlation": "mc",
  "metrics.mean_interval": "confidence_interval mean_confidence_interval",
  "metrics.normalized_mutual_information": "nmi normalized_mutual_info",
  "metrics.paired_interval": "ttest_rel paired_t_test",
  "metrics.principal_axes": "pca",
  "metrics.recall_at_k": "recall recall_at_1 recall_k",
  "metrics.retrieval": "precision_at_1 precision_at_k r_precision map map_at_r"
  " mean_average_precision mean_average_precision_at_r accuracy_calculator",
  "models.NormFace": "normalized_softmax norm_softmax",
  "models.Softmax": "cross_entropy softmax_cross_entropy",
  "pooling.gap": "global_average adaptive_average average_pool mean_pool"
  " average_pooling mean_pooling",
  "pooling.gem": "ge_mean generalized_mean",
  "pooling.gmp": "global_max adaptive_max max_pool max_pooling",
  "prototypes.assign_prototypes": "dl2p",
  "prototypes.class_means": "nearest_centroid centroids prototypes",
  "prototypes.ema_update": "ema exponential_moving_average",
  "prototypes.gaussian_potential": "hyperspherical_energy mhe",
  "prototypes.greedy_k_centre": "k_centre coreset core_set farthest_point",
  "prototypes.hpn_prototypes": "hpn",
  "prototypes.nearest_neighbours": "k_neighbours_classifier knn knn_classifier"
  " k_nearest_neighbours",
  "prototypes.simplex": "etf simplex_etf equiangular_tight_frame",
  "solvers.fixed_point": "fixed_point_iteration",
  "solvers.host_linear_assignment": "linear_sum_assignment",
  "solvers.k_means": "mini_batch_k_means",
  "solvers.linear_assignment": "hungarian hungarian_algorithm linear_sum_assignment"
  " bipartite_matching",
  "solvers.newton": "bisection root root_find",
  "solvers.project_ball": "projection_l2_ball project_l2_ball",
  "solvers.sphere_mds": "mds smacof multidimensional_scaling",
  "training.ccp_projection": "ccp",
  "training.Checkpoints": "checkpointer checkpoint_manager save_checkpoint"
  " restore_checkpoint",
  "training.Monitor": "early_stopping",
  "training.create_state": "init_state",
  "training.fit": "train trainer train_loop",
  "training.linear_probe": "logistic_regression linear_evaluation",
  "training.make_step": "train_step",
  "training.optimizer": "optimiser adam",
}
"""Names of other libraries and papers for our functions."""


def _words(name: str) -> list[str]:
  """Words of a name, in lower case and British spelling."""
  words: list[str] = [word.lower() for word in _WORD.findall(name)]
  return [_SPELT.get(word, word) for word in words]


def _key(name: str) -> str:
  return "".join(_words(name))


def _keys(name: str) -> list[str]:
  """Variants of a guess, the closest to the original first."""
  # Removes the norms of attacks and the dimensions of torch's layers.
  words = _words(
    re.sub(r"^L(?:inf|[012])(?=[A-Z])|[Ll](?:inf|[012])$|[123]d$", "", name)
  )
  forms = [_key(name), "".join(words)]
  if words[-1:] == ["miner"]:
    forms.append("".join(["mine", *words[:-1]]))
  while len(words) > 1 and words[-1] in _DROPPED:
    words.pop()
    forms.append("".join(words))
  return list(dict.fromkeys(forms))


@functools.cache
def _rooms() -> dict[str, list[str]]:
  """Public names of every sub-package."""
  package = importlib.util.find_spec("spherejax")
  places = (package and package.submodule_search_locations) or []
  rooms = [module.name for module in pkgutil.iter_modules(places) if module.ispkg]
  return {room: _exports(f"spherejax.{room}") for room in rooms}


def _exports(module: str) -> list[str]:
  spec = importlib.util.find_spec(module)
  source = getattr(spec and spec.loader, "get_source", lambda _: None)(module)
  for node in ast.parse(source or "").body:
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
      return ast.literal_eval(node.value)
  return []


@functools.cache
def _ours() -> dict[str, list[str]]:
  """Our names "room.name", by key."""
  ours: dict[str, list[str]] = {}
  for room, names in _rooms().items():
    for name in names:
      ours.setdefault(_key(name), []).append(f"{room}.{name}")
  return ours


@functools.cache
def _known() -> dict[str, list[str]]:
  """Our names by key, including the names that other libraries use for them."""
  known = {key: list(targets) for key, targets in _ours().items()}
  for target, others in _OTHERS.items():
    for other in others.split():
      known.setdefault(_key(other), []).append(target)
  return known


@functools.lru_cache(256)  # pickle and mocks request the same name again and again
def meant(room: str, name: str) -> tuple[str, ...]:
  """Suggests names for a name that the sub-package does not have.

  Args:
    room: without the package's name; "" for the package.
    name: the requested name.

  Returns:
    At most three, as "room.name", the likeliest first; none if no name is near.
  """
  if not room:
    rooms = difflib.get_close_matches(name.lower(), list(_rooms()), 1, 0.75)
    if rooms:
      return tuple(rooms)
  kin = _KIN.get(room, (room,))

  def order(target: str) -> tuple[int, bool]:
    place, _, other = target.partition(".")
    return kin.index(place), other[0].isupper() != name[:1].isupper()

  def here(targets: list[str]) -> list[str]:
    return sorted((t for t in targets if t.partition(".")[0] in kin), key=order)

  keys, ours = _keys(name), _ours()
  exact = [target for key in keys for target in _known().get(key, [])]
  suggestions = here(exact) or exact
  if not suggestions:
    keys_here = [key for key, targets in ours.items() if here(targets)]
    longer = (
      [key for key in keys_here if key.startswith(keys[-1])] if keys[-1][3:] else []
    )
    suggestions = here([target for key in longer for target in ours[key]]) or here(
      _alike(keys, keys_here, 0.66 if len(name) < 5 else 0.72)
    )
  return tuple(dict.fromkeys(suggestions or _alike(keys, list(ours), 0.85)))[:3]


def _alike(keys: list[str], among: list[str], cutoff: float) -> list[str]:
  """Our names with the key most similar to the shortest of the keys, or the longest."""
  for key in (keys[-1], keys[0]):
    near = difflib.get_close_matches(key, among, 1, cutoff)
    if near:
      return _ours()[near[0]]
  return []


def unknown(module: str, name: str) -> Exception:
  """Error that a module's `__getattr__` should raise, with suggestions.

  Args:
    module: its full name.
    name: the missing name.

  Returns:
    AttributeError. If a near name is known and the request comes from `from module
    import name`, an ImportError, since Python would replace an AttributeError.
  """
  suggestions = () if name.startswith("_") else meant(module.partition(".")[2], name)
  if not suggestions:
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
  hint = f"{name!r}; did you mean {' or '.join(suggestions)}?"
  if _imported():
    return ImportError(f"cannot import from {module!r} the name {hint}", name=name)
  return AttributeError(f"module {module!r} has no attribute {hint}", name=name)


def _imported() -> bool:
  """True if the name was requested by `from module import name`."""
  frame = sys._getframe(1)
  # `unknown` and `__getattr__` are in between, each perhaps wrapped by jaxtyping.
  for _ in range(10):
    if frame is None or frame.f_code.co_name == "<module>":
      return False
    if frame.f_code.co_name == "_handle_fromlist":
      return True
    frame = frame.f_back
  return False


def suggest(module: str) -> None:
  """Makes a module suggest names when a requested name is missing.

  Its `__getattr__` is set from here and not written in the module, since type checkers
  assume that a module with `__getattr__` has every name.

  Args:
    module: its full name.
  """

  def __getattr__(name: str) -> NoReturn:
    raise unknown(module, name)

  vars(sys.modules[module])["__getattr__"] = __getattr__

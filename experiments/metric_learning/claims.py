"""What `retrieval` says about each claim of the tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame import results
from experiments.metric_learning.measures import NAMES
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.tables import (
  BOTH,
  FOLDS,
  GSP,
  ZSP,
  Found,
  Measures,
  Name,
  score,
)

PAPER = "DML, chapter 3"
POOLINGS = "DML, tables 5.1 and 5.3"
_SECOND = "plankton"


def claims(
  found: Found, untrained: Mapping[str, Measures], joined: Measures | None, config: Any
) -> list[dict[str, Any]]:
  """Every claim that the trainings can tell something about."""
  made, first = [], config.group

  def gain(group: str, loss: str, kind: str, other: str = "plain") -> np.ndarray:
    return score(found[Name(group, loss, kind)]) - score(
      found[Name(group, loss, other)]
    )

  if config.losses:
    gains = np.concatenate([gain(first, loss, "ccp") for loss in config.losses])
    text = f"MAP@R of unseen {first}: CCP > plain, over all pair losses"
    made.append(_claim("retrieval-ccp-beats-baseline", text, gains))
  for loss in config.second_losses:
    text = f"MAP@R of unseen plankton: {loss} with CCP > plain"
    key = _of_loss("retrieval-ccp-second-set", loss, config.second_losses)
    made.append(_claim(key, text, gain(_SECOND, loss, "ccp")))
  for loss in config.memory_losses:
    text = f"MAP@R: {loss} with a memory > plain"
    key = _of_loss("retrieval-xbm", loss, config.memory_losses)
    made.append(_claim(key, text, gain(first, loss, "xbm")))
    if loss in config.losses:
      text = f"MAP@R: {loss} with CCP > with a memory of as many vectors"
      key = _of_loss("retrieval-ccp-vs-xbm", loss, config.memory_losses)
      made.append(_claim(key, text, gain(first, loss, "ccp", "xbm")))
  if joined is not None:
    made += _of_folds(found, joined)
  for loss in config.proxy_losses:
    learned = score(found[Name(first, loss)]) - untrained[first]["map_at_r"]
    text = f"MAP@R of {loss}: the untrained network's and .1 more"
    key = f"retrieval-proxy-losses-{TITLES[loss]}"
    made.append(_claim(key, text, learned - 0.1))
  made += [*_of_parts(found)]
  return made + _of_measures(found, first) + _of_protocols(found)


def _claim(
  name: str,
  text: str,
  values: Iterable[float],
  paper: str = PAPER,
  *,
  every: bool = False,
) -> dict[str, Any]:
  return results.claim(name, text, values, paper=paper, every_seed=every)


def _of_loss(key: str, loss: str, losses: Sequence[str]) -> str:
  """A claim's id, with the loss where several have one."""
  return key if len(losses) == 1 else f"{key}-{TITLES[loss]}"


def _of_folds(found: Found, joined: Measures) -> list[dict[str, Any]]:
  """All folds together against their mean."""
  made = []
  for key, measure in (("precision", "precision"), ("map", "map_at_r")):
    alone = found[Name(FOLDS, "c2")].test[measure].mean(0)
    text = f"{NAMES[measure]} of the embeddings side by side > mean of the folds"
    more = joined[measure] - alone
    made.append(_claim(f"retrieval-concatenation-{key}", text, more, every=True))
  return made


def _of_parts(found: Found) -> Iterator[dict[str, Any]]:
  """Generalized sum pooling and zero-shot prediction against the average."""

  def more(name: Name, other: str) -> np.ndarray:
    return score(found[name]) - score(found[name._replace(parts=other)])

  for name in found:
    without = name._replace(parts="")
    plain = f"retrieval-gsp-{without.title}"
    ids = {"plain": plain, "xbm": "xbm-gsp", "ccp": "ccp-gsp"}
    components = f"components-{without.title}"
    text = f"MAP@R: {name.title} > "
    if name.parts:
      alone = name.parts in (GSP, ZSP)
      key = f"{components}-{name.parts}" if alone else ids[name.kind]
      yield _claim(key, text + without.title, more(name, ""), POOLINGS)
    if name.parts == BOTH:
      for part in (GSP, ZSP):
        if name._replace(parts=part) in found:
          other = name._replace(parts=part).title
          key = f"{components}-both-{part}"
          yield _claim(key, text + other, more(name, part), POOLINGS)


def _of_measures(found: Found, group: str) -> list[dict[str, Any]]:
  """Which measure tells the trainings of the first set apart."""
  own = [one for name, one in found.items() if name.group == group]
  if len(own) < 2:
    return []

  def separation(measure: str) -> np.ndarray:
    figures = np.stack([score(one, measure) for one in own])
    return (figures.max(0) - figures.min(0)) / figures.mean(0)

  text = "(largest - smallest) / mean over the trainings: MAP@R > P@1"
  more = separation("map_at_r") - separation("precision")
  return [_claim("retrieval-map-separates", text, more)]


def _of_protocols(found: Found) -> list[dict[str, Any]]:
  """Stopped by the test images, P@1 is as good at least: how much it flatters."""
  made = []
  for one in found.values():
    if "test precision" not in one.curves:
      continue
    curves = one.curves["test precision"][0]
    best = np.nanmax(curves, axis=-1)
    fair = np.take_along_axis(curves, one.best[0][:, None], axis=-1)[:, 0]
    text = "P@1 at the evaluation that the test images choose >= at the fair one"
    made.append(_claim("retrieval-protocol", text, best - fair + 1e-9, every=True))
  return made

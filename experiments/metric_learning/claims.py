"""Verdicts of `retrieval` on each claim about images in memory."""

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.frame import networks
from experiments.frame.study import Claim, Table
from experiments.metric_learning.methods import TITLES
from experiments.metric_learning.plan import POOLED_LOSSES, Config, plan
from experiments.metric_learning.tables import (
  BOTH,
  FLATTERY,
  FOLDS,
  GSP,
  VALIDATION,
  ZSP,
  Name,
)

MAP = "MAP@R"
POOLINGS = "DML, tables 5.1 and 5.3"


def claims(config: Config, table: Table) -> list[Claim]:
  """Lists every claim that the trainings can decide."""
  statements, first = [], config.group

  def better(loss: str, kind: str, other: str = "plain", group: str = first) -> Claim:
    first_name, over = (f"{Name(group, loss, x)}" for x in (kind, other))
    return Claim("", "", lambda t: t.gain(MAP, first_name, over=over))

  for loss in config.losses:
    text = f"MAP@R of unseen {first}: {loss} with CCP > plain"
    statements.append(
      Claim(f"retrieval-ccp-{TITLES[loss]}", text, better(loss, "ccp").difference)
    )
  for loss in config.second_losses:
    key = _of_loss("retrieval-ccp-second-set", loss, config.second_losses)
    text = f"MAP@R of unseen plankton: {loss} with CCP > plain"
    statements.append(
      Claim(key, text, better(loss, "ccp", group="plankton").difference)
    )
  for loss in config.memory_losses:
    key = _of_loss("retrieval-xbm", loss, config.memory_losses)
    text = f"MAP@R: {loss} with a memory > plain"
    statements.append(Claim(key, text, better(loss, "xbm").difference))
    if loss in config.losses and not config.memory:
      key = _of_loss("retrieval-ccp-vs-xbm", loss, config.memory_losses)
      text = f"MAP@R: {loss} with CCP > with a memory of as many vectors"
      statements.append(Claim(key, text, better(loss, "ccp", "xbm").difference))
  statements += _of_folds(config)
  # On maps of a trained network even a random layer retrieves well.
  for loss in config.proxy_losses if config.backbone not in networks.MAPS else ():
    statements.append(
      Claim(
        f"retrieval-proxy-losses-{TITLES[loss]}",
        f"MAP@R of {loss}: the untrained network's and .1 more",
        lambda t, loss=loss: (
          t.gain(MAP, f"{Name(first, loss)}", over=f"{first}, untrained") - 0.1
        ),
      )
    )
  statements += [*_of_parts(config), *_of_poolings(config, table)]
  return [*statements, *_of_measures(table, first), *_of_protocols(table)]


def _of_loss(key: str, loss: str, losses: Sequence[str]) -> str:
  """A claim's id, with the loss where several have one."""
  return key if len(losses) == 1 else f"{key}-{TITLES[loss]}"


def _of_folds(config: Config) -> Iterator[Claim]:
  """Claims that all folds together beat their mean."""
  folds = Name(FOLDS, "c2")
  for key, measure in (("precision", "P@1"), ("map", MAP)) if config.folds else ():
    yield Claim(
      f"retrieval-concatenation-{key}",
      f"{measure} of the embeddings side by side > mean of the folds",
      lambda t, measure=measure: t.gain(
        measure, f"{folds}, side by side", over=f"{folds}, mean of the folds"
      ),
      every_seed=True,
    )


def _of_parts(config: Config) -> Iterator[Claim]:
  """Generalized sum pooling and zero-shot prediction against the average."""
  planned = plan(config)
  for name in planned:
    if name.parts not in (GSP, ZSP, BOTH):
      continue
    without = name._replace(parts="")
    components = f"components-{without.title}"
    ids = {"plain": f"retrieval-gsp-{without.title}", "xbm": "xbm-gsp"}
    key = {**ids, "ccp": "ccp-gsp"}[name.kind]
    if name.parts in (GSP, ZSP):
      key = f"{components}-{name.parts}"
    compared = [(key, without)]
    if name.parts == BOTH:
      for part in (GSP, ZSP):
        if (other := name._replace(parts=part)) in planned:
          compared.append((f"{components}-both-{part}", other))
    for key, other in compared:
      yield Claim(
        key,
        f"MAP@R: {name.title} > {other.title}",
        lambda t, better=f"{name}", over=f"{other}": t.gain(MAP, better, over=over),
        POOLINGS,
      )


def _of_poolings(config: Config, table: Table) -> Iterator[Claim]:
  """Generalized sum pooling against the other pooling that validation finds best."""
  for loss in POOLED_LOSSES if config.poolings else ():
    average = f"{Name(config.group, loss)}"
    summed = f"{Name(config.group, loss, parts=GSP)}"
    others = [x for x in table.variants(MAP) if x.startswith(average) and x != summed]
    best = max(others, key=lambda name: table.values(VALIDATION, name).mean())
    yield Claim(
      f"retrieval-poolings-{TITLES[loss]}",
      f"MAP@R: {summed} > {best}, the best other pooling on validation classes",
      lambda t, summed=summed, best=best: t.gain(MAP, summed, over=best),
      "DML, section 5.3.5",
    )


def _of_measures(table: Table, group: str) -> Iterator[Claim]:
  """Claims about how well each measure separates the trainings of the first set."""
  untrained = f"{group}, untrained"
  names = [
    x for x in table.variants(MAP) if x.startswith(f"{group}, ") and x != untrained
  ]

  def separation(table: Table, measure: str) -> np.ndarray:
    figures = np.stack([table.values(measure, name) for name in names])
    return (figures.max(0) - figures.min(0)) / figures.mean(0)

  if len(names) > 1:
    yield Claim(
      "retrieval-map-separates",
      "(largest - smallest) / mean over the trainings: MAP@R > P@1",
      lambda t: separation(t, MAP) - separation(t, "P@1"),
    )


def _of_protocols(table: Table) -> Iterator[Claim]:
  """Stopped by the test images, P@1 is as good at least: how much it flatters."""
  for name in table.variants(FLATTERY):
    yield Claim(
      "retrieval-protocol",
      "P@1 at the evaluation that the test images choose >= at the fair one",
      lambda t, name=name: t.values(FLATTERY, name) + 1e-9,
      every_seed=True,
    )

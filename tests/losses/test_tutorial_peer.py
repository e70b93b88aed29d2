"""The tutorial on pytorch-metric-learning: its names exist, its two trainings agree."""

import importlib
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spherejax import losses
from tests import tutorials

PAGE = "from_pytorch_metric_learning.md"
TEXT = (tutorials.FOLDER / PAGE).read_text()
PEER = "pytorch_metric_learning"


def of_classes(cell):
  """Names of classes in a cell: what is in backticks and in capitals."""
  return re.findall(r"`([A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*)`", cell)


def rows_below(head):
  """Rows, as lists of cells, of the single table whose first cell is `head`."""
  (rows,) = re.findall(rf"^\| *{re.escape(head)} *\|.*\n((?:\|.*\n)*)", TEXT, re.M)
  _, *lines = rows.splitlines()
  return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_names_and_keywords_of_ours_exist():
  rooms = "losses|models|distances|metrics|data|training"
  named = set(re.findall(rf"\b({rooms})\.(?!md\b)([A-Za-z_0-9]+)", TEXT))
  assert len(named) > 70
  for room, name in named:
    module = importlib.import_module(f"spherejax.{room}")
    assert name in module.__all__, f"{room}.{name}"
  called = re.findall(r"`losses\.([a-z_0-9]+)\(([a-z_]+)=", TEXT)
  assert len(called) > 4
  for name, keyword in called:
    assert keyword in getattr(losses, name).__annotations__, f"{name}({keyword}=)"


@pytest.mark.peer
@pytest.mark.parametrize("room", ["losses", "miners", "reducers", "distances"])
def test_every_name_of_theirs_is_there(room):
  pytest.importorskip(PEER, reason="a peer of the extra `bench`")
  module = importlib.import_module(f"{PEER}.{room}")
  rows = rows_below(f"`{PEER}.{room}`")
  named = [name for row in rows for name in of_classes(row[0])]
  assert len(named) == len(set(named))
  # Bases of other classes, and what only packs embeddings, have no counterpart.
  helpers = r"Base|Generic|.*Mixin$|EmbeddingsAlreadyPackaged"
  public = {name for name in dir(module) if re.match(r"[A-Z]", name)}
  assert set(named) == {name for name in public if not re.match(helpers, name)}


@pytest.mark.peer
def test_names_of_their_evaluation_exist():
  pytest.importorskip(PEER, reason="a peer of the extra `bench`")
  parts = ("samplers", "utils.accuracy_calculator", "utils.inference")
  modules = [importlib.import_module(f"{PEER}.{part}") for part in parts]
  named = [name for row in rows_below("there") for name in of_classes(row[0])]
  assert "MPerClassSampler" in named
  for name in named:
    assert any(hasattr(module, name) for module in modules), name


@pytest.mark.peer
def test_pairs_of_names_are_those_of_the_other_tests():
  pytest.importorskip(PEER, reason="a peer of the extra `bench`")
  from benchmarks import _peers

  table = rows_below(f"`{PEER}.losses`")
  rows = {name: row for row in table for name in of_classes(row[0])}
  compared = pathlib.Path(_peers.__file__).read_text()
  for ours, peer in _peers.PEERS.items():
    assert re.search(rf"losses\.{ours}\b", rows[peer.name][1]), peer.name
    assert bool(peer.differs) == ("differs" in rows[peer.name][1]), peer.name
    for setting in re.findall(rf"losses\.{ours}\((.*?)\)`", rows[peer.name][1]):
      assert setting in compared, f"{peer.name}: {setting}"


@pytest.mark.peer
# The peer's own dealings with newer versions of NumPy and torch.
@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")
def test_both_trainings_have_the_same_losses():
  pytest.importorskip(PEER, reason="a peer of the extra `bench`")
  names = {"jax": jax, "jnp": jnp}
  # The data, their training, our training: as they stand on the page.
  for program in tutorials.programs(PAGE)[:3]:
    exec(compile(program, PAGE, "exec"), names)
  ours, theirs = np.array(names["ours"]), np.array(names["theirs"])
  assert len(ours) == len(theirs) == 20
  assert np.ptp(theirs) > 0.1  # something is learned
  np.testing.assert_allclose(ours, theirs, rtol=1e-5)
  # What the page shows of theirs.
  exec(compile(tutorials.programs(PAGE)[3], PAGE, "exec"), names)
  np.testing.assert_allclose(names["theirs"], theirs, atol=1e-5)

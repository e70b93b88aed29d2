"""What the presets of `retrieval` take from the thesis, digit by digit."""

import dataclasses
import functools
import itertools
import pathlib
import re

import numpy as np
import pytest

from experiments.metric_learning.photographs import methods, protocols
from experiments.published import dml
from experiments.retrieval import PRESETS
from tests.experiments import entries

# Lines as the thesis prints them, without references; the file names its tables.
PRINTED = pathlib.Path(__file__).with_name("dml_retrieval_tables.txt")
COLUMNS = list(itertools.product(("sop", "inshop", "cub", "cars"), (512, 128)))
CONVENTIONAL = ("cub", "cars", "sop", "inshop")
METHODS = {
  "C1": "c1", "C2": "c2", "MS": "ms", "Triplet": "triplet",
  "ProxyAnchor": "proxy_anchor", "PAnchor": "proxy_anchor",
  "ProxyNCA++": "proxy_nca", "PNCA": "proxy_nca",
  "SoftTriple": "soft_triple", "SoftTriple-L": "soft_triple",
  "SoftTriplet-S/L": "soft_triple",
}  # fmt: skip
# Of Table 5.3, by its components.
COMPONENTS = {
  "none": "c2", "GSP": "c2+gsp_alone", "ZSP": "c2+zsp", "ZSP+GSP": "c2+gsp",
}  # fmt: skip


def printed(title):
  """The name and the figures of each line of a table."""
  _, _, rest = PRINTED.read_text(encoding="utf-8").partition(f"# {title}\n")
  lines = rest.partition("\n#")[0].strip("\n").split("\n")
  assert len(lines) > 1
  return [(name, figures) for name, *figures in (x.split("\t") for x in lines)]


def method_of(name):
  """C1+CCP-L and C1+XBM+L are c1+ccp and c1+xbm; other papers' names stay."""
  name = re.sub(r"(XBM|CCP)[-+]L$", r"\1", name)
  if name in METHODS:
    return METHODS[name]
  first, *others = name.split("+")
  return "+".join([METHODS.get(first, first), *(x.lower() for x in others)])


def numbers(text):
  return [float(x) for x in re.findall(r"\d+\.\d+", text)]


@pytest.mark.parametrize(
  ("table", "found", "rows", "protocol"),
  [
    ("Table 3.1", dml.TABLE_3_1, 13, "fair"),
    ("Table 5.1", dml.TABLE_5_1, 15, "fair534"),
  ],
)
def test_tables_of_the_fair_protocols(table, found, rows, protocol):
  wanted, above = {}, ""
  for name, figures in printed(table):
    above = above if name.startswith("+") else method_of(name)
    method = above + name.lower() if name.startswith("+") else above
    for place, *pair in zip(COLUMNS, figures[::2], figures[1::2], strict=True):
      both = zip(*map(numbers, pair), strict=True)  # in Table 3.1 without deviations
      wanted[method, *place] = (*itertools.chain(*both), None, None)[:4]
  assert len(wanted) == rows * 8
  assert wanted == found
  for key, one in wanted.items():
    assert dml.cell(protocol, "bn_inception", *key) == one
  assert dml.cell(protocol, "resnet50", "c2", "sop", 512) is None


@pytest.mark.parametrize(
  ("table", "found", "cells", "protocol"),
  [
    ("Table 3.2", dml.TABLE_3_2, 32 + 35, "conventional"),
    ("Table 5.2", dml.TABLE_5_2, 8 + 16, "conventional534"),
  ],
)
def test_tables_of_the_conventional_protocol(table, found, cells, protocol):
  wanted = {"bn_inception": {}, "resnet50": {}}
  for title, backbone in (
    ("BN-Inception-512D", "bn_inception"), ("ResNet50", "resnet50"),
  ):  # fmt: skip
    for name, figures in printed(f"{table} {title}"):
      name, _, dim = name.partition(" ")
      for place, figure in zip(CONVENTIONAL, figures, strict=True):
        if figure != "-":
          value = numbers(figure)
          value += [None] * (4 - len(value))
          key = method_of(name), place, 128 if dim == "¹²⁸" else 512
          wanted[backbone][key] = tuple(value)
  assert sum(map(len, wanted.values())) == cells
  assert wanted == found
  for backbone, of in wanted.items():
    for key, one in of.items():
      assert dml.cell(protocol, backbone, *key) == one


def test_tables_3_3_and_5_3():
  steps = {
    method_of(name): {
      place: int(figure.removesuffix("K"))
      for place, figure in zip(("sop", "inshop"), figures, strict=True)
    }
    for name, figures in printed("Table 3.3")
  }
  assert len(steps) == 10
  assert steps == dml.TABLE_3_3
  parts = {
    COMPONENTS[name]: {
      dataset: tuple(map(float, figures[2 * i : 2 * i + 2]))
      for i, dataset in enumerate(("sop", "inshop", "cub", "cars"))
    }
    for name, figures in printed("Table 5.3")
  }
  assert len(parts) == 4
  assert parts == dml.TABLE_5_3
  # Beside a run: those that Table 5.1 has, too, are printed there.
  cell = functools.partial(dml.cell, "fair534", "bn_inception")
  assert cell("c2+zsp", "cars", 128) == (None, 17.67, None, None)
  assert cell("c2+gsp", "cub", 128).map_at_r == 21.53
  assert cell("c2+gsp_alone", "cub", 512).map_at_r == 26.25


@pytest.mark.parametrize(
  ("dataset", "classes", "images", "learned", "sought"),
  [
    ("sop", 22_634, 120_053, (11_318, 59_551), (11_316, 60_502)),
    ("inshop", 7_982, 52_712, (3_997, 25_882), (3_985, 14_218 + 12_612)),
    ("cars", 196, 16_185, (98, 8_054), (98, 8_131)),
    ("cub", 200, 11_788, (100, 5_864), (100, 5_924)),
  ],
)
def test_sizes_are_the_sums_of_their_parts(dataset, classes, images, learned, sought):
  assert tuple(dml.SIZES[dataset].values()) == (classes, images, *learned)
  assert np.add(learned, sought).tolist() == [classes, images]


def jobs(preset, **changes):
  """Trainings of a preset, by name."""
  config = dataclasses.replace(PRESETS[preset], **changes)
  return {job.name: job for job in entries.jobs(config)}


# Columns: CUB, Cars196, In-shop, SOP.
LOSSES = {
  "c1": {"margin": (0.5, 0.5, 0.5, 0.5)},
  "c2": {
    "positive_margin": (0, 0.2652, 0.2858, 0.2858),
    "negative_margin": (0.3841, 0.5409, 0.5130, 0.5130),
  },
  "triplet": {"margin": (0.0961, 0.1190, 0.0451, 0.0451)},
  "ms": {
    "positive_scale": (2, 14.35, 8.49, 2), "negative_scale": (40, 75.83, 57.38, 40),
    "threshold": (0.5, 0.66, 0.41, 0.5),
  },
  "proxy_anchor": {"margin": (0.1,) * 4, "scale": (32,) * 4},
  "proxy_nca": {"temperature": (0.1,) * 4},
  "soft_triple": {
    "scale": (20, 17.69, 20, 100), "temperature": (0.1, 19.18, 0.1, 47.9),
    "regularization": (0.2, 0.0669, 0.2, 0.2), "margin": (0.01, 0.3588, 0.01, 0.3145),
  },
}  # fmt: skip
CENTRES_S, CENTRES_L, CENTRES_TABLE = (1, 1, 1, 1), (10, 10, 4, 4), (10, 10, 1, 1)
BATCHES_S, BATCHES_L = (3, 3, 100, 400), (25, 25, 400, 1400)
PROXIES, POOL, PROTOTYPES = (8, 8, 4, 4), (12, 12, 7, 7), (64, 64, 128, 128)
DATASETS = ("cub", "cars", "inshop", "sop")


@pytest.mark.parametrize(("column", "dataset"), list(enumerate(DATASETS)))
def test_hyperparameters(column, dataset):
  older = jobs("figure-3.4", dataset=dataset)
  newer = jobs("table-5.1", dataset=dataset)
  table = jobs("table-3.1", dataset=dataset)
  assert {name.partition("+")[0] for name in table} == {*LOSSES}
  for name, one in [*older.items(), *newer.items(), *table.items()]:
    loss = name.partition("+")[0]
    wanted = {key: values[column] for key, values in LOSSES[loss].items()}
    if loss == "proxy_nca" and one is newer.get(name):
      wanted["temperature"] = 0.11
    assert one.method.settings() == wanted
    own = one.method.own_proxies
    assert own == (loss in ("proxy_anchor", "proxy_nca", "soft_triple"))
    settings = one.settings
    assert (settings.batch, settings.per_class) == (32, 1 if own else 4)
    assert (settings.proxy_rate, settings.memory_start) == (100, 1000)
    slow = loss == "proxy_anchor" and dataset == "sop" and one is newer.get(name)
    assert settings.learning_rate == (5e-6 if slow else 1e-5)
    if "ccp" in name.split("+"):
      assert one.method.proxies == (1 if name.endswith("+s") else PROXIES[column])
      assert (one.method.pool, settings.weight) == (POOL[column], 2e-4)
      assert settings.switch_patience == 3
    if "xbm" in name.split("+"):
      batches = BATCHES_S if name.endswith("+s") else BATCHES_L
      assert settings.places == 32 * batches[column]
    if "gsp" in name.split("+"):
      assert settings.prototypes == PROTOTYPES[column]
      assert settings.inverse_temperature == (0.5 if own else 5.0)
      assert (settings.mass, settings.zero_shot) == (0.3, 0.1)
  centres = (older["soft_triple+s"], older["soft_triple+l"], table["soft_triple"])
  assert [one.method.proxies for one in centres] == [
    CENTRES_S[column], CENTRES_L[column], CENTRES_TABLE[column],
  ]  # fmt: skip
  for kind, number in (("xbm", 4), ("ccp", 8)):  # each variant has been looked at
    assert sum(kind in name.split("+") for name in older) == number
  assert sum("gsp" in name.split("+") for name in newer) == 7


@pytest.mark.parametrize("backbone", ["bn_inception", "resnet50"])
@pytest.mark.parametrize("dataset", DATASETS)
def test_the_preset_of_table_5_2(dataset, backbone):
  config = dataclasses.replace(PRESETS["table-5.2"], dataset=dataset, backbone=backbone)
  assert config.protocol == "conventional534"
  small = dataset in ("cub", "cars")
  residual = backbone == "resnet50"
  wanted = protocols.Protocol(
    parts=1, models=1, repeats=3, metric="P@1", batch=112 if residual else 128,
    evaluate_every=25 if small else 250, patience=15 if small else 10, dim=512,
    learning_rate=1e-5 if dataset == "cub" else 1e-4,
    weight_decay=4e-4 if residual else 1e-4, pooling="gap_gmp",
  )  # fmt: skip
  assert methods.protocol_of(config) == wanted
  # Chapter 3 trains once.
  once = dataclasses.replace(PRESETS["table-3.2"], dataset=dataset, backbone=backbone)
  assert methods.protocol_of(once) == wanted._replace(repeats=1)
  for dim in (128, 512) if residual else (512,):  # with --dim
    made = jobs("table-5.2", dataset=dataset, backbone=backbone, dim=dim)
    assert list(made) == ["c1+xbm", "c1+xbm+gsp"]
    assert [one.settings.pooling for one in made.values()] == ["gap_gmp", "gsp"]
    assert [one.settings.zero_shot for one in made.values()] == [0, 0.1]
    for name, one in made.items():
      settings = one.settings
      assert one.method.kind == "xbm"
      assert settings.places == 32 * BATCHES_L[DATASETS.index(dataset)]
      assert (settings.dim, settings.batch) == (dim, wanted.batch)
      assert (settings.per_class, settings.metric) == (4, "P@1")
      assert settings.learning_rate == wanted.learning_rate
      assert settings.weight_decay == wanted.weight_decay
      # The thesis's own run, not that of the memory's paper in Table 3.2.
      found = dml.cell(config.protocol, backbone, name, dataset, dim)
      assert found == dml.TABLE_5_2[backbone][name, dataset, dim]


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_preset_of_table_5_3(dataset):
  config = dataclasses.replace(PRESETS["table-5.3"], dataset=dataset)
  assert config.protocol == "fair534"
  small = dataset in ("cub", "cars")
  wanted = protocols.Protocol(
    parts=4, models=4, repeats=3, metric="MAP@R", batch=32,
    evaluate_every=100 if small else 1000, patience=15 if small else 10, dim=128,
    learning_rate=1e-5, weight_decay=1e-4, pooling="gap",
  )  # fmt: skip
  assert methods.protocol_of(config) == wanted
  # Pooling, mass and share of zero-shot prediction: mu is 1 where GSP is left out.
  made = jobs("table-5.3", dataset=dataset)
  found = {
    name: (one.settings.pooling, one.settings.mass, one.settings.zero_shot)
    for name, one in made.items()
  }
  assert found == {
    "c2": ("gap", 0.3, 0.0), "c2+gsp_alone": ("gsp", 0.3, 0.0),
    "c2+zsp": ("gsp", 1.0, 0.1), "c2+gsp": ("gsp", 0.3, 0.1),
  }  # fmt: skip
  for one in made.values():
    assert (one.method.loss, one.method.kind) == ("c2", "plain")
    assert (one.settings.dim, one.settings.patience) == (128, wanted.patience)
    assert one.settings.evaluate_every == wanted.evaluate_every

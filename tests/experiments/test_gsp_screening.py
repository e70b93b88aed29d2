"""The screening and figure 3.5's trials; the design against the paper's."""

import dataclasses
import operator

import numpy as np
import pytest

from experiments import gsp_screening, retrieval
from experiments.frame import kept
from experiments.frame.study import Table
from experiments.gsp import screening_cells
from experiments.metric_learning.photographs import comparison, methods, screening

NUMBERS = operator.attrgetter("prototypes", "mass", "inverse_temperature", "zero_shot")
OF_C2 = dataclasses.replace(gsp_screening.PRESETS["cpu"], losses=("C2",))


@pytest.mark.slow
@pytest.mark.data
def test_smoke(tfds_dir, one_device, smoke):
  content, _, folder = smoke
  values = np.array([row["values"] for row in content["rows"]])
  assert values.shape == (2, 2)  # two inverse temperatures, two seeds
  assert (values[0] != values[1]).all()  # which the scores depend on
  assert (values[:, 0] != values[:, 1]).all()  # and so they do on the seed
  # A seed is the same run whatever others are asked for; both are kept.
  alone = dataclasses.replace(gsp_screening.PRESETS["smoke"], seeds=1)
  rows = gsp_screening.STUDY.run(alone, folder, "smoke")["rows"]
  np.testing.assert_array_equal(np.array([r["values"] for r in rows]), values[:, :1])
  (claim,) = content["claims"]
  assert (claim["id"], claim["verdict"]) == ("screen-design", "reproduced")
  assert content["pictures"] == ["grid-c2.svg"]


def test_the_design_is_the_papers():
  ours = {tuple(run) for run in screening_cells.runs_of_design()}
  assert ours == {tuple(row) for row in screening_cells.TABLE[:, :4].tolist()}
  effects = screening_cells.published()
  word = ("prototypes", "mass")
  assert screening_cells.label(word, effects[word]) == "m*mu = beta*lambda"
  assert set(screening_cells.BY_HAND) < set(effects)


def tabulated(config, loss, scores, apart=None):
  """The table of one loss, of [seeds] by cell."""
  table = Table()
  screening_cells.tabulate(table, config.plan, loss, scores, points=100)
  for cell in config.plan.cells if apart else ():
    own = screening_cells.name(loss, cell)
    table.add(own, screening_cells.APART, np.full(5, apart))
  return table


def test_every_cell_that_is_read_is_trained():
  config = dataclasses.replace(gsp_screening.PRESETS["cpu"], losses=("PNCA",))
  cells = config.plan.cells
  assert len({*cells}) == len(cells)
  table = tabulated(config, "PNCA", {x: np.full(5, sum(x)) for x in cells}, 3e-7)
  _, *made = gsp_screening.STUDY.claimed(table, config)
  assert {claim["id"]: claim["value"] for claim in made} == {
    "screen-beta-pnca": pytest.approx(19.5 - 112),
    "mu-sweep-pnca": pytest.approx(0.5 - 1.0),  # the best of the small masses
    "mu-sweep-average-pnca": pytest.approx(7e-7),
    "m-flat-pnca": pytest.approx(0 - (256 - 64)),  # all seeds are alike
  }
  paper = [row["paper"] for row in table.rows() if "effect of beta" in row["name"]]
  assert paper[0] == -0.68


def test_an_effect_of_both_signs_is_noise():
  def told(beta, m):
    config, table = dataclasses.replace(OF_C2, masses=(), counts=(16,)), Table()
    for word, values in (("inverse_temperature", beta), ("prototypes", m)):
      title = screening_cells.effect_name("C2", (word,))
      table.add(title, screening_cells.EFFECTS, 100 * np.array(values))
    return gsp_screening.STUDY.claimed(table, config)[1]

  # Larger than the other's in every seed, but not of one sign.
  noise = told([0.3, -0.31, 0.3, -0.3], [0.1, 0.1, 0.1, 0.1])
  assert noise["verdict"] == "undecided"
  np.testing.assert_allclose(noise["values"], [-0.4, 0.21, -0.4, 0.2])
  real = told([-0.3, -0.31, -0.3, -0.29], [0.1, -0.1, 0.1, -0.11])
  assert real["verdict"] == "reproduced"
  np.testing.assert_allclose(real["values"], [0.4, 0.21, 0.4, 0.18])


@pytest.mark.parametrize(
  ("changes", "names"),
  [
    ({"masses": (0.3, 0.5)}, {"m-flat-c2"}),
    ({"masses": (0.7, 1.0)}, {"m-flat-c2", "mu-sweep-average-c2"}),
    ({"counts": (16, 128)}, set()), ({"counts": (256,)}, set()),
  ],
)  # fmt: skip
def test_what_is_not_trained_has_no_claim(changes, names):
  config = dataclasses.replace(OF_C2, screen=False, **changes)
  scores = {cell: np.arange(3.0) for cell in config.plan.cells}
  table = tabulated(config, "C2", scores, 1e-9)
  _, *made = gsp_screening.STUDY.claimed(table, config)
  assert {claim["id"] for claim in made} == names
  pictures = gsp_screening.charts(config, table)
  assert ("mass-c2" in pictures) == (64 in config.counts)
  assert ("grid-c2" in pictures) == (16 in config.counts)


@pytest.fixture
def trained_as(monkeypatch):
  """Photographs' trainings have the MAP@R that a function gives of their settings."""

  def install(scores):
    seen = []

    def init(self, config, output, sets):
      self.config, self.sets = config, "read once"
      seen.append((config, output.name, sets))

    def train(self):
      runs = [kept.Finished({"best": {"MAP@R": x}}, {}) for x in scores(self.config)]
      return {self.config.methods[0]: [runs]}

    monkeypatch.setattr(comparison.Comparison, "__init__", init)
    monkeypatch.setattr(comparison.Comparison, "train", train)
    return seen

  return install


def test_the_full_preset_trains_the_cells_of_the_paper(tmp_path, trained_as):
  def printed(c):
    if not c.methods[0].endswith("+gsp"):
      return [30.0] * 3
    row = np.abs(screening_cells.TABLE[:, :4] - NUMBERS(c)).sum(1).argmin()
    return [screening_cells.TABLE[row, 4 + (c.methods[0].startswith("proxy_nca"))]] * 3

  trained = trained_as(printed)
  content = gsp_screening.STUDY.run(gsp_screening.PRESETS["full"], tmp_path, "full")
  seen = [config for config, *_ in trained]
  assert [c.methods[0] for c in seen] == [
    *["c2+gsp"] * 8, "c2", *["proxy_nca+gsp"] * 8, "proxy_nca",
  ]  # fmt: skip
  assert {c.protocol for c in seen} == {"tuning"}
  assert len({*map(NUMBERS, seen)}) == 9
  for row in content["rows"]:
    if "average" in row["name"]:
      assert row["mean"] == 30
    else:
      assert row["mean"] == pytest.approx(row["paper"], abs=0.01)
  assert len(content["rows"]) == 2 * (1 + 8 + 7)
  assert [claim["verdict"] for claim in content["claims"]] == ["reproduced"] * 2


# By preset: losses, cells of each, values of claims, charts of each.
VARIED = {
  # The best of the small masses is the smallest.
  "figure-5.8": ("C2", 10, {"mu-sweep-c2": 4.5}, "mass"),
  "figure-5.10": ("C2 PNCA", 20, {}, "grid prototypes"),
  # The worst of 64, 128 and 256 prototypes.
  "figure-5.11": (
    "C2 PNCA", 5, dict.fromkeys(("m-improves-c2", "m-improves-pnca"), 8.564),
    "prototypes",
  ),
}  # fmt: skip


@pytest.mark.parametrize("preset", VARIED)
def test_presets_of_figures_vary_what_they_show(preset, tmp_path, trained_as):
  losses, cells, claimed, drawn = VARIED[preset]

  def falling(c):
    """MAP@R falls with the mass; average pooling is worst."""
    score = 30 - 5 * (c.mass or 0) + c.prototypes / 1000
    score = score if c.methods[0].endswith("+gsp") else 20.0
    return score + np.array([0, 0.1, 1])

  trained = trained_as(falling)
  content = gsp_screening.STUDY.run(gsp_screening.PRESETS[preset], tmp_path, preset)
  seen = [config for config, *_ in trained]
  varied = {(c.methods[0], *NUMBERS(c)) for c in seen}
  assert len(seen) == len(varied) == len(losses.split()) * (1 + cells)
  assert {c.dataset for c in seen} == {"sop" if preset == "figure-5.11" else "cub"}
  assert len(content["rows"]) == len(seen)
  means = {row["name"]: row["mean"] for row in content["rows"]}
  assert means["C2, average pooling"] == pytest.approx(20 + 1.1 / 3)
  assert {c["id"]: c["value"] for c in content["claims"]} == pytest.approx(claimed)
  assert {c["verdict"] for c in content["claims"]} <= {"reproduced"}
  assert content["pictures"] == [
    f"{name}-{loss.lower()}.svg" for loss in losses.split() for name in drawn.split()
  ]
  option = screening.VARIED[preset][0]
  wrong = dataclasses.replace(gsp_screening.PRESETS[preset], **{option: 1})
  with pytest.raises(ValueError, match=f"{option} is what {preset} varies"):
    gsp_screening.STUDY.run(wrong, tmp_path, preset)


def test_numbers_of_the_pooling_reach_the_training():
  config = comparison.FullConfig(
    mass=0.7, inverse_temperature=20.0, zero_shot=0.0, prototypes=16
  )
  found = methods.job(config, methods.protocol_of(config), "proxy_nca+gsp").settings
  assert NUMBERS(found) == (16, 0.7, 20.0, 0.0)


def test_trials_are_trained_and_reported(tmp_path, trained_as):
  def score(config):
    """MAP@R is best at a weight of 1e-2 and with many proxies."""
    return config.proxies - (np.log10(config.weight) + 2) ** 2

  seen = trained_as(lambda config: [score(config), score(config) + 0.2])
  preset = retrieval.PRESETS["figure-3.5"]
  config = dataclasses.replace(preset, weights="none", trials=99)
  content = retrieval.STUDY.run(config, tmp_path, "figure-3.5")
  configs, names, sets = zip(*seen, strict=True)
  assert names == tuple(f"trial-{n}" for n in range(1, 100))
  assert sets == (None, *["read once"] * 98)
  weights, counts = zip(*((x.weight, x.proxies) for x in configs), strict=True)
  # Logarithms are uniform.
  assert 1e-6 < min(weights) < 1e-5 < 1e-1 < max(weights) < 1
  assert 30 < sum(weight < 1e-3 for weight in weights) < 69
  assert (min(counts), max(counts)) == (1, 16)
  *trials, best = content["rows"]
  for x, row in zip(configs, trials, strict=True):
    assert row["name"] == f"c2+ccp, weight {x.weight:.3g}, proxies {x.proxies}"
    assert row["values"][0] == score(x)
  assert best["mean"] == max(row["mean"] for row in trials)
  assert best["name"].startswith("best: weight")
  assert content["pictures"] == ["search.png"]

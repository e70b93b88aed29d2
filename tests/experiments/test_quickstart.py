"""The quickstart as a user runs it, and what the experiments share."""

import dataclasses
import functools
import json
import os
import re
import tomllib
from unittest import mock

import jax
import numpy as np
import pytest
from sklearn.decomposition import PCA

from benchmarks import startup
from experiments import quickstart, results_page
from experiments.frame import command as cli
from experiments.frame import images, results
from experiments.gsp import collages, quick, training
from spherejax import models
from tests.experiments import entries
from tests.experiments.test_evidence import FILES

COMMITTED = {path.stem: json.loads(path.read_text()) for path in FILES}
SMOKE = quickstart.PRESETS["smoke"]
parse = functools.partial(cli.parse, quickstart.PRESETS, name="quickstart", doc="")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
  folder = tmp_path_factory.mktemp("quickstart")
  first, whole = startup.quickstart(folder, "run", "smoke")
  assert 0 < first <= whole
  return folder / "run", (folder / "run.txt").read_text()


def test_results_are_complete(smoke):
  folder, printed = smoke
  content = json.loads((folder / "results.json").read_text())
  assert content["command"] == "python -m experiments.quickstart --preset smoke"
  rows, claims = content["rows"], [claim["id"] for claim in content["claims"]]
  assert {row["name"] for row in rows} == {"GAP", "GSP"}
  assert claims == ["quickstart-gsp", "quickstart-attention"]
  for row in rows:
    assert len(row["values"]) == 2
    np.testing.assert_allclose(row["mean"], np.mean(row["values"]))
    assert row["interval"][0] <= row["mean"] <= row["interval"][1]
  for picture in content["pictures"]:
    assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert (folder / picture).stat().st_size <= 300_000
  table = (folder / "table.txt").read_text()
  assert len(table.splitlines()) < 24
  for text in (printed, table):
    assert "MAP@R" in text
    assert "GSP puts" in text
  # Average pooling weighs every tile alike, and GSP does not.
  measure = "weight on the labelled tile"
  weight = {row["name"]: row["values"] for row in rows if row["metric"] == measure}
  np.testing.assert_allclose(weight["GAP"], 1 / 9, atol=1e-6)
  assert min(weight["GSP"]) > 0.12


def test_foreground_weight():
  weights = np.zeros((2, 4, 4))
  weights[0, :2, :2] = 0.25
  weights[1, 0, 0] = 1
  foreground = np.array([[[True, False], [False, False]], [[False, True], [False] * 2]])
  assert collages.foreground_weight(weights, foreground) == 0.5


def tiles_of(images, side):
  parts = np.asarray(images).reshape(len(images), 3, side, 3, side, -1)
  return parts.swapaxes(2, 3).reshape(-1, side, side, parts.shape[-1])


def test_collages_of_the_parts_share_no_image():
  made = quick.collages(quick.digits(), (60, 36), jax.random.key(0))
  train, test = ({x.tobytes() for x in tiles_of(part.images, 8)} for part in made)
  assert not train & test
  for part in made:
    assert set(np.unique(part.labels)) == set(range(6))


def test_both_poolings_of_features_share_a_quarter_of_their_steps(
  tmp_path, monkeypatch
):
  import jax

  some_steps, taken = training._some_steps, []

  def spied(state, *given, **static):
    taken.append((int(state.step), *np.round(given[-1], 2).tolist()))
    return some_steps(state, *given, **static)

  monkeypatch.setattr(training, "_some_steps", spied)
  maps = np.random.default_rng(0).normal(size=(1797, 2, 2, 5)).astype(np.float32)
  tiles = quick.digits()._replace(inputs=maps)
  config = dataclasses.replace(SMOKE, steps=8, seeds=1, dim=8, prototypes=8, mass=0.25)
  made = [quick.collages(tiles, (60, 36), jax.random.key(0))]
  told = mock.Mock()
  (run,) = quick.compare(config, made, tiles.names[:6], tmp_path, told)
  # The first step of each part, its mass, and no zero-shot prediction.
  later = [(x, mass, 0) for mass in (1, 0.25) for x in (2, 4, 6)]
  assert taken == [(0, 1, 0), *later]
  assert told.call_count == 6  # the shared part is not told
  assert run["GSP"].weights.shape == (36, 6, 6)
  np.testing.assert_allclose(run["GAP"].weights, 1 / 36, rtol=1e-5)
  assert abs(run["GSP"].weights - 1 / 36).max() > 1e-3


def photographs(folder, classes, count):
  flat = {
    f"{label}": [np.full((9, 12, 3), 40 * label + number) for number in range(count)]
    for label in range(classes)
  }
  return entries.write_images(folder, flat)


class Pretrained:
  def features(self, images):
    return (images.astype(np.float32) / 255)[:, ::32, ::32].repeat(30, axis=-1)


def test_collages_of_photographs_show_what_the_network_takes(tmp_path, monkeypatch):
  """Pixels and features are arranged alike; two thirds of the classes are labelled."""
  monkeypatch.setattr(models, "pretrained", lambda name: Pretrained())
  tiles = quick.photographs(photographs(tmp_path / "p", 6, 5))
  assert tiles.split == 4
  assert tiles.inputs.shape == (30, 2, 2, 64)
  key = jax.random.key(0)
  taken = quick.collages(tiles, (12, 8), key).test
  shown = quick.collages(tiles, (12, 8), key, as_pixels=True).test
  np.testing.assert_array_equal(taken.foreground, shown.foreground)
  assert np.asarray(shown.images).shape == (8, 384, 384, 3)
  pairs = zip(tiles_of(shown.images, 128), tiles_of(taken.images, 2), strict=True)
  for pixels, features in pairs:
    (same,) = np.flatnonzero((tiles.pixels == pixels).all((1, 2, 3)))
    np.testing.assert_array_equal(features, tiles.inputs[same])


def test_photographs_that_cannot_be_used_are_told_in_one_line(tmp_path, monkeypatch):
  error = ImportError('pip install "spherejax[pretrained]"')
  with monkeypatch.context() as patch:
    patch.setattr(models, "pretrained", mock.Mock(side_effect=error))
    with pytest.raises(SystemExit, match=r"--images photos: .*spherejax\[pretrained\]"):
      quick.photographs("photos")
  monkeypatch.setattr(models, "pretrained", lambda name: Pretrained())
  with pytest.raises(SystemExit, match="no image folder at"):
    quick.photographs(str(tmp_path / "none"))
  for classes, count in ((3, 5), (4, 3)):
    folder = photographs(tmp_path / f"{classes}", classes, count)
    said = f"at least 4 class folders of 4 photographs, got {classes} folders"
    with pytest.raises(SystemExit, match=said):
      quick.photographs(folder)


def test_features_are_principal_components_of_the_training_images(monkeypatch):
  monkeypatch.setattr(quick, "_CHANNELS", 2)
  maps = 3 + np.random.default_rng(0).normal(size=(9, 2, 2, 4)) * [1, 5, 0.1, 3]
  train = np.array([0, 2, 3, 5, 8])
  components = PCA(2).fit(maps[train].reshape(-1, 4))
  expected = components.transform(maps.reshape(-1, 4)).reshape(9, 2, 2, 2)
  found = quick._reduced(maps, train)
  expected = np.abs(expected) / expected[train].std()
  np.testing.assert_allclose(np.abs(found), expected, rtol=1e-5)


def test_options_change_single_settings_of_a_preset(monkeypatch):
  monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "kept")
  monkeypatch.setenv("XLA_FLAGS", "--xla_of_the_user=1")
  parsed = parse(arguments=["--preset", "smoke", "--seed", "7", "--collages", "9", "8"])
  assert parsed.preset == "smoke"
  assert parsed.config == dataclasses.replace(SMOKE, seed=7, collages=(9, 8))
  assert parsed.output.as_posix() == "runs/quickstart/smoke"
  # Programs that run a few times are compiled quickly; the last of two flags holds.
  assert os.environ["XLA_FLAGS"].startswith("--xla_backend_optimization_level=0 ")
  assert os.environ["XLA_FLAGS"].endswith(" --xla_of_the_user=1")
  for short, level in ((True, "--xla_backend_optimization_level=1 "), (False, "")):
    monkeypatch.setenv("XLA_FLAGS", "--xla_of_the_user=1")
    parse(arguments=[], short=short)
    assert os.environ["XLA_FLAGS"] == f"{level}--xla_of_the_user=1"


def test_what_is_no_number_is_a_dash(tmp_path, capsys):
  content = results.result(
    experiment="quickstart", preset="smoke", config=SMOKE, seconds=1.0,
    rows=[results.row("A", "m", [0.5, np.nan]), results.row("B", "m", [0.5])],
    claims=[results.claim("c", "|a| > |b|", [np.inf, np.nan], paper="p")],
  )  # fmt: skip
  results.write(content, tmp_path)
  text = (tmp_path / "results.json").read_text()
  found = json.loads(text, parse_constant=pytest.fail)  # called for what is no JSON
  assert found["rows"][0]["values"] == [0.5, None]
  assert found["rows"][0]["mean"] is None
  assert (found["rows"][1]["mean"], found["rows"][1]["interval"]) == (0.5, [None] * 2)
  assert "0.500 -" in capsys.readouterr().out
  result = results_page.read(tmp_path / "results.json")
  page = results_page.experiment_page(result, {}, {}, {})
  assert "| A | m | - | - | - |" in page
  assert "| B | m | 0.500 | - | - |" in page  # one seed has no interval
  # A bar within a cell does not end it.
  said = r"\|a\| > \|b\| (undefined: 1 of 2 differences)"
  assert f"| `c` | p | {said} | - | - | 2 |" in page


def test_the_command_says_what_was_changed():
  def command(**changes):
    return results.result(
      experiment="quickstart", preset="smoke", seconds=1.0, rows=[], claims=[],
      config=dataclasses.replace(SMOKE, **changes),
    )["command"]  # fmt: skip

  plain = "python -m experiments.quickstart --preset smoke"
  assert command() == plain
  changed = command(seeds=5, collages=(9, 8))
  assert changed == f"{plain} --seeds 5 --collages 9 8"
  # Which is read as it was.
  parsed = parse(arguments=changed.split()[3:])
  assert (parsed.config.seeds, parsed.config.collages) == (5, (9, 8))


def test_the_newest_version_counts(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  for version in ("1.9.0", "1.10.0", "1.2.11", "notes"):
    (tmp_path / "a" / version).mkdir(parents=True)
    (tmp_path / "a" / version / "tree.csv").write_text("")
  assert images.newest_file("a", "tree.csv").parent.name == "1.10.0"


def test_a_full_disk_leaves_the_earlier_result(tmp_path, monkeypatch):
  file = tmp_path / "results.json"
  results.write_json({"seed": 1}, file)
  error = OSError(28, "No space left on device")
  monkeypatch.setattr("pathlib.Path.write_text", mock.Mock(side_effect=error))
  with pytest.raises(OSError, match="No space"):
    results.write_json({"seed": 2}, file)
  monkeypatch.undo()
  assert json.loads(file.read_text()) == {"seed": 1}


def test_committed_pages_are_those_of_the_committed_results():
  for path, text in results_page.pages().items():
    assert path.read_text(encoding="utf-8") == text, path


def test_what_the_pages_lack_is_named(tmp_path):
  missed = results.claim("c", "A > B", [0.1, -0.1], paper="")
  right = results.claim("d", "A", [1.0, 1.1], paper="")
  content = {"experiment": "x", "preset": "cpu", "claims": [missed, right]}
  results_page.check_tried([content], {"x": {"c*": "twice the steps."}})
  for tried, said in (
    ({"x": {"d": "nothing"}, "c": {"c": "all"}}, "what was tried for x: c"),
    ({"x": {"c": "", "d": ""}}, "no such claim is missed"),
    ({"x": {"c": ""}, "y": {"c": ""}}, "no such claim is missed"),
  ):
    with pytest.raises(SystemExit, match=said):
      results_page.check_tried([content], tried)
  both = [content, content | {"preset": "large"}]
  results_page.check_data(both, {"x-*": "Half of it.", "x*": "All of it."})
  for data, said in (
    ({"x*": "All of it.", "y": "None."}, r"has y, but no such experiment"),
    ({"x": "All of it."}, "must say what x-large ran on"),
  ):
    with pytest.raises(SystemExit, match=said):
      results_page.check_data(both, data)
  with pytest.raises(SystemExit, match="names x: e, but no such claim"):
    results_page.tests_of({"claims": ["x: e"]}, [])
  file = tmp_path / "gsp.json"
  file.write_text('{"command": "python", "machine": "one core", "rows": []}')
  with pytest.raises(SystemExit, match=r"gsp\.json is no result of benchmarks\.gsp"):
    results_page.cost_section(file)


def test_every_statement_has_a_short_objection():
  statements = tomllib.loads(results_page.STATEMENTS.read_text())["statement"]
  assert len(statements) == 12
  for number, statement in enumerate(statements, 1):
    assert 0 < len(statement["objection"].split()) <= 60, number


def test_headers_say_how_long_the_committed_runs_took():
  units, said = {"s": 1, "min": 60, "h": 3600}, {}
  for name, content in COMMITTED.items():
    module = entries.module(content["experiment"])
    whole = content["command"]
    preset = re.match(r"python -m \S+(?: --preset \S+)?", whole)[0]
    named = (
      re.search(f"{re.escape(x)} +(#.*)", module.__doc__) for x in (whole, preset)
    )
    line = next(filter(None, named), None)
    assert line, f"the header has no line {preset}"
    time = re.search(r"(\d+(?:\.\d+)?) (s|min|h)\b", line[1])
    if time and line[0].startswith(whole):  # with the same options
      said[name] = float(time[1]) * units[time[2]] / content["seconds"]
  assert len(said) >= 20
  assert not {name: ratio for name, ratio in said.items() if abs(ratio - 1) > 0.25}


def test_what_was_tried_names_presets_that_exist():
  tried, named = tomllib.loads(results_page.TRIED.read_text()), []
  for title, notes in tried.items():
    module = entries.module(COMMITTED[title]["experiment"])
    for preset in re.findall(r"--preset ([\w.-]+)", " ".join(notes.values())):
      assert preset in module.PRESETS, f"{title}: {preset}"
      named.append(preset)
  assert len(named) >= 4

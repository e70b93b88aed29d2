"""Type checkers and editors understand code that uses the package."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from tests import tutorials

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]

IMPORTS = "import jax\nimport jax.numpy as jnp\nimport spherejax"
WRONG = """\
import jax.numpy as jnp
import spherejax
from spherejax import metrics, models

x, y = jnp.eye(4), jnp.array([0, 0, 1, 1])
spherejax.losses.sup_con(x, y, temprature=0.1)  # error: "temprature"
spherejax.loses.sup_con(x, y)  # error: "loses"
spherejax.losses.supcon(x, y)  # error: "supcon"
metrics.retrieval(x, y, distance="euclid")  # error: "euclid"
models.GSP(3, solver="newtn")  # error: "newtn"
models.GSP(3, sover="newton")  # error: "sover"
from spherejax.pooling import gemm  # error: "gemm"
attack = spherejax.attacks.pgd(lambda x: x, x, y, key=None, epsilon=0.1, norm="l2")
attack.x_avd  # error: "x_avd"
spherejax.losses.sup_con(x, y, temperature=0.1, normalize="l2")
metrics.retrieval(x, y, distance="cosine").precision_at_1.mean()
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
  """Messages of basedpyright on a wrong script and on the pages' programs, by file."""
  folder = tmp_path_factory.mktemp("scripts")
  (folder / "wrong.py").write_text(WRONG)
  for page in PAGES:
    blocks = [IMPORTS, *tutorials.programs(page)]
    (folder / f"{page.stem.lower()}.py").write_text("\n".join(blocks))
  settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
  settings["reportMissingImports"] = False  # torch, on a page that compares with it
  (folder / "pyrightconfig.json").write_text(json.dumps(settings))
  checker = pathlib.Path(sys.executable).with_name("basedpyright")
  options = ("--outputjson", "--pythonpath", sys.executable, "--project", folder)
  ended = subprocess.run(
    [checker, *options], cwd=folder, capture_output=True, text=True, timeout=300
  )
  errors = {path.name: [] for path in folder.glob("*.py")}
  for each in json.loads(ended.stdout)["generalDiagnostics"]:
    if each["severity"] == "error":
      line = each["range"]["start"]["line"] + 1
      errors[pathlib.Path(each["file"]).name].append((line, each["message"]))
  return errors


def test_a_checker_finds_what_is_misspelt(reports):
  said = dict(reports["wrong.py"])
  expected = {
    number: word
    for number, line in enumerate(WRONG.splitlines(), 1)
    for word in re.findall('# error: "(.*)"', line)
  }
  assert said.keys() == expected.keys(), said
  for number, word in expected.items():
    assert word in said[number]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_of_the_pages_are_clean(page, reports):
  assert reports[f"{page.stem.lower()}.py"] == []

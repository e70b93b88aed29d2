"""The toy map as a user runs it, against figures computed once with NumPy alone."""

import json

import pytest

from tests.experiments import entries

# Weight on the foreground, foreground pixels in use, effective number; first noise.
EXPECTED = {
  "mass 0.2, linear program": (1.000, 20, 20.0),
  "mass 0.2, beta 100": (1.000, 27, 24.5),
  "mass 0.2, beta 20": (1.000, 38, 38.1),
  "mass 0.2, beta 5": (0.994, 50, 49.2),
  "mass 0.2, beta 0.5": (0.572, 50, 97.9),
  "mass 0.5, linear program": (1.000, 50, 50.0),
  "mass 0.5, beta 20": (1.000, 50, 50.0),
  "mass 0.5, beta 5": (0.940, 50, 56.35),
  "mass 0.8, linear program": (0.625, 50, 80.0),
  "mass 0.8, beta 20": (0.625, 50, 91.6),
  "mass 0.8, beta 5": (0.623, 50, 94.1),
}


def test_the_table_and_the_claims(tmp_path, capsys):
  entries.main("gsp_map", "--output", tmp_path, "--seeds", 2)
  content = json.loads((tmp_path / "results.json").read_text())
  found = {}
  for row in content["rows"]:
    found.setdefault(row["name"], []).append(row["values"][0])
  assert list(found) == list(EXPECTED)
  for name, (weight, pixels, number) in EXPECTED.items():
    near = pytest.approx(weight, abs=5e-4), pixels, pytest.approx(number, abs=0.051)
    assert tuple(found[name]) == near
  assert [claim["verdict"] for claim in content["claims"]] == ["reproduced"] * 5
  assert content["pictures"] == ["weights.png", "blur.png"]
  for picture in content["pictures"]:
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
  assert "toy-blur" in capsys.readouterr().out

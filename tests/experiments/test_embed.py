"""`embed`: networks that `retrieval` kept, in the explorer's command."""

import csv
import dataclasses
import json

import jax
import numpy as np
import pytest
from PIL import Image

from experiments import embed
from experiments.frame import networks
from spherejax import data, explorer
from spherejax.explorer import _page

SMALL = networks.Architecture(width=8, strides=(2, 2, 1, 1), dim=6, image_size=8)
GSP = dataclasses.replace(SMALL, pooling="gsp", prototypes=4)


def keep_model(folder, architecture):
  variables = networks.initial_variables(jax.random.key(0), architecture)
  # Long enough that some embeddings leave the unit ball.
  model = networks.Model(architecture, jax.tree.map(lambda leaf: 1.4 * leaf, variables))
  networks.keep(folder, model, 0)
  return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
  folder = tmp_path_factory.mktemp("digits")
  digits = data.load_digits()[:40]
  pairs = zip(digits.images, digits.labels, strict=True)
  for number, (pixels, label) in enumerate(pairs):
    path = folder / f"{label}" / f"{number:03}.png"
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels[..., 0]).resize((8 + number % 2, 12)).save(path)
  return folder


def run(model, folder, output, *more):
  given = [str(folder), "--model", str(model), "--output", str(output)]
  explorer.main([*given, "--layout", "pca", *more], load=embed.load)


@pytest.mark.slow
def test_embeddings_are_the_network_of_each_image(pictures, tmp_path, monkeypatch):
  shown, write = {}, _page.write
  monkeypatch.setattr(
    _page, "write", lambda *x, **options: shown.update(options) or write(*x, **options)
  )
  model = keep_model(tmp_path / "model", GSP)
  run(model, pictures, tmp_path / "out", "--queries", str(pictures / "3"))
  with (tmp_path / "out" / "files.csv").open(newline="") as file:
    taken = [
      networks.prepare(np.asarray(Image.open(pictures / row["path"]))[..., None], GSP)
      for row in csv.DictReader(file)
    ]
  loaded = networks.load(model)
  expected = jax.jit(networks.Network(GSP).apply)(loaded.variables, np.stack(taken))
  x = np.asarray(expected.embeddings, np.float64)
  norms = np.linalg.norm(x, axis=1, keepdims=True)
  assert norms.max() > 1
  found = np.load(tmp_path / "out" / "embeddings.npy")
  # Half precision was between.
  np.testing.assert_allclose(found, x / np.maximum(norms, 1), atol=1e-3)
  np.testing.assert_allclose(shown["weights"], expected.weights, atol=1e-3)
  np.testing.assert_allclose(shown["prototypes"], expected.attributes, atol=1e-3)
  assert shown["title"].endswith("by model")
  assert (tmp_path / "out" / "queries.png").is_file()


def test_a_model_folder_that_holds_no_network(pictures, tmp_path, capsys):
  def refused(model):
    with pytest.raises(SystemExit):
      run(model, pictures, tmp_path / "out")
    return capsys.readouterr().err.splitlines()[-1]

  (tmp_path / "empty").mkdir()
  assert "no network.json in" in refused(tmp_path / "empty")
  model = keep_model(tmp_path / "model", SMALL)
  file = model / "network.json"
  content = json.loads(file.read_text())
  file.write_text(json.dumps(content | {"width": 5}))
  assert "the checkpoint" in refused(model)
  file.write_text(json.dumps(content | {"depth": 5}))
  assert "describes no network of this version" in refused(model)
  assert not (tmp_path / "out").exists()

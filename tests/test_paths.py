"""A folder may have any name: no path is taken as a pattern, an option or an address.

Every public function that takes a path has a row that writes and reads there.
"""

import inspect
import os
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from PIL import Image

import spherejax
from spherejax import data, explorer, hierarchy, models, plotting, training
from tests.test_names import EVERY, ROOMS

NAMES = [
  *("margins=[1,2]", "[!a] {a,b}", "*", "a?b;b&c|d", "back\\slash"),
  *("Größe und e\N{COMBINING ACUTE ACCENT} ", "new\nline $HOME 100%25 #hash", "-dash"),
  *("~", "~root", "http:", "gs:", 'it\'s "quoted"' + "x" * 200, "...", "1"),
  "step.orbax-checkpoint-tmp",
]


def checkpoints(folder):
  state = {"step": jnp.int32(3), "w": jnp.arange(4.0)}
  with training.Checkpoints(folder) as saved:
    saved.save(state, {"note": "a"})
    saved.save_best(state)
  with training.Checkpoints(folder) as saved:
    assert saved.restore(state).record == {"note": "a"}
    np.testing.assert_array_equal(saved.restore_best(state).state["w"], state["w"])
  assert (pathlib.Path(folder) / "last" / "3").is_dir()


def figure(folder):
  drawn = plotting.training_curves({"a": [[3.0, 2.0]]}, ylabel="loss")
  path = plotting.save(drawn, pathlib.Path(folder) / "curve [1].png", max_bytes=99_999)
  assert path.read_bytes()[1:4] == b"PNG"


def tree(folder):
  path = pathlib.Path(folder) / "tree [1]*.csv"
  path.write_text("child,parent\nlife,\ncat,life\ndog,life\n")
  assert hierarchy.from_csv(path).class_names == ("cat", "dog")


def stored(folder):
  path = pathlib.Path(folder) / "weights [1]*.safetensors"
  safetensors.numpy.save_file({"a": np.arange(3.0)}, path)
  return path


def weights(folder):
  read = models.read_weights(str(stored(folder)))
  np.testing.assert_array_equal(read["a"], np.arange(3.0))


def trained(folder):
  with pytest.raises(ValueError, match=r"weights \[1\]\*.* does not fit resnet18"):
    models.pretrained("resnet18", path=stored(folder))


def images(folder):
  for name in ("cat [1]*", "dog"):
    (pathlib.Path(folder) / name).mkdir()
    Image.new("RGB", (4, 4)).save(pathlib.Path(folder) / name / "a [1]?.png")
  found = data.load_folder(folder, size=4)
  assert found.label_names == ("cat [1]*", "dog")
  assert found.images.shape == (2, 4, 4, 3)


def shop(folder):
  root = pathlib.Path(folder) / "shop [1]*"
  root.mkdir()
  rows = ("a[1].png id_1 train", "b*.png id_2 query", "c?.png id_2 gallery")
  names = [row.split()[0] for row in rows]
  for name in names:
    Image.new("RGB", (4, 4)).save(root / name)
  (root / "list_eval_partition.txt").write_text("\n".join(rows))
  assert data.load_in_shop(root).labels.tolist() == [0, 1, 1]


def image(folder):
  path = pathlib.Path(folder) / "a [1]*.png"
  Image.new("L", (4, 2), 7).save(path)
  for given in (path, str(path)):
    np.testing.assert_array_equal(data.read_image(given), np.full((2, 4, 3), 7))


def page(folder):
  path = pathlib.Path(folder) / "map [1]*.html"
  explorer.write_page(path, np.eye(3, dtype=np.float32), layout="pca")
  assert path.read_text().startswith("<!DOCTYPE html>")


def features(folder):
  path, digits = pathlib.Path(folder) / "digits [1]*.npy", data.load_digits()[:3]
  for _ in range(2):
    found = training.keep_features(
      path, lambda x: x / 255, digits, made_with={}, progress=False
    )
    np.testing.assert_allclose(found, digits.images / 255, atol=1e-3)


ROWS = {
  "data.load_folder": images,
  "data.load_in_shop": shop,
  "data.read_image": image,
  "explorer.write_page": page,
  "hierarchy.from_csv": tree,
  "models.pretrained": trained,
  "models.read_weights": weights,
  "plotting.save": figure,
  "training.Checkpoints": checkpoints,
  "training.keep_features": features,
}


def test_every_function_that_takes_a_path_has_a_row():
  files = pathlib.Path(spherejax.__file__).parent.glob("*/__init__.py")
  assert {file.parent.name for file in files} == set(ROOMS)
  takers = {
    f"{room}.{name}"
    for room, name in EVERY
    if callable(thing := getattr(getattr(spherejax, room), name))
    and takes_a_path(thing)
  }
  assert takers == {*ROWS, "data.load_tfds"}  # load_tfds is tested below


def takes_a_path(thing):
  try:
    parameters = inspect.signature(thing).parameters.values()
  except ValueError:  # for example a NumPy type
    return False
  kinds = [str(parameter.annotation) for parameter in parameters]
  return any("Path" in kind and "Callable" not in kind for kind in kinds)


@pytest.mark.parametrize(
  "name",
  [pytest.param(x, marks=[pytest.mark.slow] * (k % 2)) for k, x in enumerate(NAMES)],
)
def test_folders_of_any_name(name, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  beside = tmp_path / "a1b"  # some of the names would match it as patterns
  beside.mkdir()
  for number, (row, use) in enumerate(ROWS.items()):
    folder = tmp_path / str(number) / name
    folder.mkdir(parents=True)
    use(folder)
    assert list(folder.iterdir()), row
  assert not list(beside.iterdir())


@pytest.mark.parametrize("row", ROWS)
def test_relative_nested_and_linked_folders(row, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for folder in ("[a]", "-b/", "~/c/[d]/", "./*/../*/e"):
    os.makedirs(folder)
    ROWS[row](folder)
  (tmp_path / "link [1]").symlink_to(tmp_path / "made", target_is_directory=True)
  (tmp_path / "made").mkdir()
  ROWS[row]("link [1]")
  assert list((tmp_path / "made").iterdir())
  assert sorted(os.listdir()) == ["*", "-b", "[a]", "link [1]", "made", "~"]


@pytest.mark.parametrize(
  "name",
  [
    *("margins=[1,2]", "*", "a?b", "back\\slash", "-x y", "a [1]*?", "ü ß", "{a}"),
    *("x" * 200, "a@4", "%4"),
  ],
)
def test_prepared_sets_in_folders_of_any_name(name, tfds_dir, tmp_path):
  (tmp_path / name).symlink_to(tfds_dir, target_is_directory=True)
  found, expected = (
    data.load_tfds("cifar100", "test[:2]", data_dir=folder)
    for folder in (tmp_path / name, tfds_dir)
  )
  np.testing.assert_array_equal(found.images, expected.images)
  assert len(found) == 2


@pytest.mark.parametrize(
  ("wrong", "kind", "message"),
  [
    ("a\0b", ValueError, "without a null character"),
    ("\udcff", ValueError, "must have a name in UTF-8"),
    ("x" * 300, OSError, "cannot be made: File name too long"),
    ("file", OSError, "cannot be made: File exists"),
    ("file/below", OSError, "cannot be made: Not a directory"),
    (".", OSError, "best' cannot be made: File exists"),
  ],
)
def test_what_is_no_folder_is_refused_before_anything_is_saved(
  wrong, kind, message, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  for name in ("file", "best"):
    (tmp_path / name).write_text("")
  with pytest.raises(kind, match=message):
    training.Checkpoints(wrong)
  for name in ("file", "best"):
    assert (tmp_path / name).is_file()

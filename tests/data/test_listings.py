"""In-shop by its list file: what it reads, and which lines it refuses."""

import numpy as np
import pytest
from PIL import Image

from spherejax import data

LISTED = [
  ("img/a.jpg", "id_2", "train"), ("img/b.jpg", "id_9", "gallery"),
  ("img/c.jpg", "id_9", "query"), ("img/d.jpg", "id_1", "train"),
  ("img/e.jpg", "id_2", "train"), ("img/f.jpg", "id_7", "query"),
  ("img/g.jpg", "id_7", "gallery"),
]  # fmt: skip
HEADER = f"{len(LISTED)}\nimage_name item_id evaluation_status\n"


def write_shop(root, header=HEADER, listed=LISTED):
  """Images of unequal heights, and the list file."""
  (root / "img").mkdir(exist_ok=True)
  for number, (file, _, _) in enumerate(listed):
    Image.new("RGB", (8, 9 + number)).save(root / file)
  text = "\n".join(" ".join(row) for row in listed)
  (root / "list_eval_partition.txt").write_text(f"{header}{text}\n")


@pytest.mark.parametrize("header", [HEADER, "", f"\ufeff{HEADER}"])
def test_rows_are_those_of_the_file(tmp_path, header):
  write_shop(tmp_path, header)
  images = data.load_in_shop(str(tmp_path))
  assert images.label_names == ("id_1", "id_2", "id_7", "id_9")
  np.testing.assert_array_equal(images.labels, [1, 3, 3, 0, 1, 2, 2])
  assert images.extras["file"].tolist() == [file for file, _, _ in LISTED]
  assert images.extras["status"].tolist() == [status for _, _, status in LISTED]
  assert [x.shape for x in images.images] == [(9 + i, 8, 3) for i in range(7)]


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    ("img/c.jpg", "img/z.jpg", "line 5.*no image.*z.jpg"),
    ("img/c.jpg", "img/b.jpg", "line 5: img/b.jpg is listed already, in line 4"),
    ("img/c.jpg", "img/./b.jpg", "img/./b.jpg is listed already, in line 4"),
    ("id_1 train", "id_1", r"line 6: expected.*'img/d\.jpg"),
    ("id_1 train", "id_1 test", "line 6: expected"),
    ("7\n", "8\n", "lists 8 images, but lists 7"),
    ("query", "gallery", "no image with the status query"),
    ("id_1", "id_9", "id_9 has training images and test images"),
  ],
)
def test_list_files_that_are_wrong(tmp_path, old, new, message):
  write_shop(tmp_path)
  path = tmp_path / "list_eval_partition.txt"
  path.write_text(path.read_text().replace(old, new, 1 if old == "7\n" else -1))
  with pytest.raises(ValueError, match=message):
    data.load_in_shop(tmp_path)


def test_files_that_are_no_list(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"is no .*list_eval_partition\.txt"):
    data.load_in_shop(tmp_path)
  (tmp_path / "list_eval_partition.txt").write_bytes(b"\xff\xfe")
  with pytest.raises(ValueError, match="must be text in UTF-8"):
    data.load_in_shop(tmp_path)

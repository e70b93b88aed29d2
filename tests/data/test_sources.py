import numpy as np
import pytest
from PIL import Image
from sklearn import datasets

from spherejax import data


def gradient(height, width, channels):
  values = np.arange(height * width * channels) * 7 % 256
  return values.astype(np.uint8).reshape(height, width, channels)


RGB, GREY = gradient(8, 12, 3), gradient(8, 12, 1)


def box_average(image, height, width):
  """The mean of the pixels whose centres lie in each box, by loops."""
  result = np.zeros([height, width, image.shape[2]])
  rows = (np.arange(image.shape[0]) + 0.5) * height / image.shape[0]
  columns = (np.arange(image.shape[1]) + 0.5) * width / image.shape[1]
  for row, column in np.ndindex(height, width):
    # A centre on an edge belongs to the box before it.
    inside = (row < rows) & (rows <= row + 1)
    block = image[inside][:, (column < columns) & (columns <= column + 1)]
    result[row, column] = block.mean((0, 1))
  return result


@pytest.fixture
def folder(tmp_path):
  """Three classes: PNG, grey PNG, JPEG; files that are no images beside them."""
  for name in ("owl", "ant", "bee", ".hidden"):
    (tmp_path / name).mkdir()
  for number in range(2):
    Image.fromarray(RGB + number).save(tmp_path / f"ant/{number}.png")
  Image.fromarray(GREY[..., 0]).save(tmp_path / "bee/grey.PNG")
  Image.fromarray(np.full_like(RGB, 90)).save(tmp_path / "owl/flat.jpg")
  (tmp_path / "owl/notes.txt").write_text("no image")
  (tmp_path / ".hidden/x.png").write_text("no image")
  return tmp_path


@pytest.mark.parametrize("lazy", [False, True])
def test_a_folder_is_read_in_alphabetical_order(folder, lazy):
  images = data.load_folder(folder, lazy=lazy)
  assert images.label_names == ("ant", "bee", "owl")
  np.testing.assert_array_equal(images.labels, [0, 0, 1, 2])
  files = ["ant/0.png", "ant/1.png", "bee/grey.PNG", "owl/flat.jpg"]
  assert list(images.extras["file"]) == files
  np.testing.assert_array_equal(images.images[1], RGB + 1)
  # Grey becomes three equal channels; a flat JPEG is exact up to its rounding.
  np.testing.assert_array_equal(images.images[2], GREY.repeat(3, -1))
  assert np.abs(images.images[3].astype(int) - 90).max() <= 1


def test_lazy_images_are_read_when_asked_for(folder):
  images = data.load_folder(folder, lazy=True)[[3, 1]]
  (folder / "ant/1.png").unlink()
  assert images.images[0].shape == (8, 12, 3)
  assert len(list(images.images[:1])) == 1
  with pytest.raises(ValueError, match=r"cannot read the image .*ant/1\.png"):
    list(images.images)


@pytest.mark.parametrize("size", [(4, 6), (4, 4), (3, 5), (8, 7)])
def test_resizing_averages(folder, size):
  images = data.load_folder(folder, size=size).images
  assert images.shape == (4, *size, 3)
  # Pillow averages rows after columns and rounds twice.
  assert np.abs(images[0] - box_average(RGB, *size)).max() <= 1
  if size == (4, 4):
    np.testing.assert_array_equal(data.load_folder(folder, size=4).images, images)


def test_enlarging_repeats_pixels(folder):
  images = data.load_folder(folder, size=(16, 36)).images
  np.testing.assert_array_equal(images[0], RGB.repeat(2, axis=0).repeat(3, axis=1))


def test_channels(folder):
  grey = data.load_folder(folder, channels=1).images
  assert grey.shape == (4, 8, 12, 1)
  np.testing.assert_array_equal(grey[2], GREY)
  luma = RGB @ np.array([0.299, 0.587, 0.114])
  assert np.abs(grey[0, ..., 0] - luma).max() <= 1
  assert data.load_folder(folder, channels=4).images.shape == (4, 8, 12, 4)
  with pytest.raises(ValueError, match=r"channels must be one of \(1, 3, 4\), got 2"):
    data.load_folder(folder, channels=2)


def test_images_of_several_sizes_come_as_a_list(folder):
  Image.fromarray(gradient(5, 5, 3)).save(folder / "owl/small.png")
  images = data.load_folder(folder).images
  assert [image.shape for image in images[-2:]] == [(8, 12, 3), (5, 5, 3)]


def test_missing_and_empty_folders(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"no image folder at .*nowhere"):
    data.load_folder(tmp_path / "nowhere")
  with pytest.raises(ValueError, match=r"data set is empty: .* has no sub-folder"):
    data.load_folder(tmp_path)
  (tmp_path / "cat").mkdir()
  with pytest.raises(ValueError, match=r"class folder .*cat holds no image"):
    data.load_folder(tmp_path)


def test_sizes_and_images_of_16_bits_are_refused(folder):
  for size, shown in ((0, 0), ((4, -3), -3)):
    with pytest.raises(ValueError, match=f"size must be at least 1, got {shown}"):
      data.load_folder(folder, size=size)
  Image.fromarray(np.full([4, 4], 40_000, np.uint16)).save(folder / "bee/deep.png")
  with pytest.raises(ValueError, match=r"deep\.png: mode I;16 has more than 8 bits"):
    data.load_folder(folder)


def test_digits_keep_the_order_of_their_file():
  images = data.load_digits()
  file = datasets.load_digits()
  assert images.images.shape == (1797, 8, 8, 1)
  np.testing.assert_array_equal(images.labels, file.target)
  # 0 to 16 over 0 to 255: 255/16 is 15.94, so division by 15.9 recovers each level.
  levels = np.round(images.images[..., 0] / (255 / 16))
  np.testing.assert_array_equal(levels, file.images)
  assert images.images.max() == 255
  assert images.label_names == tuple("0123456789")

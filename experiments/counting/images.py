"""Objects to put into grids, and photographs with counted objects."""

import pathlib
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple

import numpy as np
from jax import Array

from experiments.counting.settings import Config
from spherejax import data

AnyArray = np.ndarray | Array
"""An array on the host or on the device."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_DIGITS = 1200  # training digits; those that follow are by other writers
_REDUCED = {"mnist": 14, "cifar10": 16}  # sides of images for a CPU
_FEWEST, _MOST = 2, 9  # objects in a photograph (NCH 4.1)


class Objects(NamedTuple):
  """Images of one object each, pixels in [0, 1]."""

  train: AnyArray
  train_labels: AnyArray
  held: AnyArray  # held-out images, of which grids consist
  held_labels: AnyArray
  mean: AnyArray  # [channels]; becomes 0 at the network's input
  std: AnyArray

  def normalized(self, images: AnyArray) -> Array:
    return data.normalize(images, self.mean, self.std)


class Photographs(NamedTuple):
  """Images of several objects."""

  images: np.ndarray  # [n, side, side, 3], uint8
  counts: np.ndarray
  labels: np.ndarray  # the class of all objects; -1 if there are several classes


def load(name: str, config: Config) -> Objects:
  """Loads the objects of one set; FileNotFoundError if it is not prepared."""
  if name == "digits":
    images = data.load_digits()
    train, held = images[:_DIGITS], images[_DIGITS:]
  elif name == "stl10":  # its networks are already trained
    held = train = data.load_tfds(name, config.stl10_split)
  else:
    side = _REDUCED[name] if config.reduced else None
    train = data.load_tfds(name, "train", size=side)[: config.train_images]
    held = data.load_tfds(name, "test", size=side)
  held = held[: config.held_images]
  mean, std = np.zeros(1), np.ones(1)  # the background of digits is already 0
  pixels, held_pixels = (np.asarray(x.images, np.float32) / 255 for x in (train, held))
  if name == "cifar10":
    mean, std = pixels.mean((0, 1, 2)), pixels.std((0, 1, 2))
  elif name == "stl10":
    mean, std = map(np.array, IMAGENET)
  mean, std = mean.astype(np.float32), std.astype(np.float32)
  return Objects(pixels, train.labels, held_pixels, held.labels, mean, std)


def photographs(config: Config) -> Photographs:
  """Reads photographs with 2 to 9 boxes, difficult ones included; labels them."""
  side = config.photograph_size
  if config.voc_folder:
    images, boxes = _folder(pathlib.Path(config.voc_folder), side)
  else:
    voc = data.load_tfds("voc/2007", config.voc_split, size=side)
    images = np.asarray(voc.images)
    boxes = [np.asarray(row["label"]) for row in voc.extras["objects"]]
  counts = np.array([len(labels) for labels in boxes])
  single = [labels[0] if len(set(labels.tolist())) == 1 else -1 for labels in boxes]
  mask = (counts >= _FEWEST) & (counts <= _MOST)
  return Photographs(images[mask], counts[mask], np.array(single)[mask])


def _folder(root: pathlib.Path, side: int) -> tuple[np.ndarray, list[np.ndarray]]:
  """Reads a folder of Pascal VOC: Annotations/*.xml beside JPEGImages/*.jpg."""
  from PIL import Image, ImageOps

  files = sorted(root.glob("Annotations/*.xml"))
  if not files:
    raise FileNotFoundError(f"no Annotations/*.xml in voc_folder={root}")
  names, boxes, images = {}, [], []
  for file in files:
    tree = ElementTree.parse(file)
    classes = [str(name.text) for name in tree.iterfind("object/name")]
    boxes.append(np.array([names.setdefault(name, len(names)) for name in classes]))
    with Image.open(root / "JPEGImages" / f"{file.stem}.jpg") as picture:
      upright = ImageOps.exif_transpose(picture).convert("RGB")
      images.append(np.asarray(upright.resize((side, side))))
  return np.stack(images), boxes

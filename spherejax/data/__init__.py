"""Data: image sets, splits, batches, collages and augmentations.

Readers turn a tensorflow-datasets set, a folder or arrays into `Images`; samplers
choose the images of each step's batch; augmentations are functions of a key.
"""

from spherejax import _compiled, _names
from spherejax.data._affine import random_affine as random_affine
from spherejax.data._augment import center_crop as center_crop
from spherejax.data._augment import random_crop as random_crop
from spherejax.data._augment import random_flip as random_flip
from spherejax.data._augment import random_resized_crop as random_resized_crop
from spherejax.data._augment import resize as resize
from spherejax.data._canvas import fit_canvas as fit_canvas
from spherejax.data._canvas import map_images as map_images
from spherejax.data._collage import Collages as Collages
from spherejax.data._collage import collages as collages
from spherejax.data._color import normalize as normalize
from spherejax.data._color import random_brightness as random_brightness
from spherejax.data._color import random_contrast as random_contrast
from spherejax.data._color import random_grayscale as random_grayscale
from spherejax.data._color import to_float as to_float
from spherejax.data._color_jitter import color_jitter as color_jitter
from spherejax.data._color_jitter import random_hue as random_hue
from spherejax.data._color_jitter import random_saturation as random_saturation
from spherejax.data._episodes import sample_episode as sample_episode
from spherejax.data._grids import ImageGrid as ImageGrid
from spherejax.data._grids import image_grid as image_grid
from spherejax.data._images import Images as Images
from spherejax.data._images import from_arrays as from_arrays
from spherejax.data._images import take_classes as take_classes
from spherejax.data._listings import load_in_shop as load_in_shop
from spherejax.data._long_tail import long_tail as long_tail
from spherejax.data._long_tail import long_tail_counts as long_tail_counts
from spherejax.data._mixup import Mixed as Mixed
from spherejax.data._mixup import mixup as mixup
from spherejax.data._pipeline import batches as batches
from spherejax.data._pipeline import pipeline as pipeline
from spherejax.data._sampling import ClassTable as ClassTable
from spherejax.data._sampling import class_balanced_indices as class_balanced_indices
from spherejax.data._sampling import class_pools as class_pools
from spherejax.data._sampling import class_table as class_table
from spherejax.data._sampling import ordered_plan as ordered_plan
from spherejax.data._sampling import shuffled_indices as shuffled_indices
from spherejax.data._sources import load_digits as load_digits
from spherejax.data._sources import load_folder as load_folder
from spherejax.data._sources import read_image as read_image
from spherejax.data._splits import split_classes as split_classes
from spherejax.data._splits import split_within_classes as split_within_classes
from spherejax.data._tfds import load_tfds as load_tfds
from spherejax.data._triplets import Triplets as Triplets
from spherejax.data._triplets import sample_triplets as sample_triplets
from spherejax.data._views import ViewStrengths as ViewStrengths
from spherejax.data._views import random_blur as random_blur
from spherejax.data._views import simclr_views as simclr_views
from spherejax.data._views import view_strengths as view_strengths

__all__ = [
  "ClassTable",
  "Collages",
  "ImageGrid",
  "Images",
  "Mixed",
  "Triplets",
  "ViewStrengths",
  "batches",
  "center_crop",
  "class_balanced_indices",
  "class_pools",
  "class_table",
  "collages",
  "color_jitter",
  "fit_canvas",
  "from_arrays",
  "image_grid",
  "load_digits",
  "load_folder",
  "load_in_shop",
  "load_tfds",
  "long_tail",
  "long_tail_counts",
  "map_images",
  "mixup",
  "normalize",
  "ordered_plan",
  "pipeline",
  "random_affine",
  "random_blur",
  "random_brightness",
  "random_contrast",
  "random_crop",
  "random_flip",
  "random_grayscale",
  "random_hue",
  "random_resized_crop",
  "random_saturation",
  "read_image",
  "resize",
  "sample_episode",
  "sample_triplets",
  "shuffled_indices",
  "simclr_views",
  "split_classes",
  "split_within_classes",
  "take_classes",
  "to_float",
  "view_strengths",
]

_compiled.room(__name__, host=("class_table",))
_names.suggest(__name__)

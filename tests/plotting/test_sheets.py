"""Sheets show the right picture in the right place, with the right sign."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from spherejax import plotting

IMAGES = np.linspace(0, 1, 5, dtype=np.float32)[:, None, None] * np.ones((5, 4, 6))
SHEET = {
  "images": IMAGES,
  "queries": np.array([4, 0]),
  "retrieved": np.array([[1, 2, 3], [3, 1, 2]]),
  "correct": np.array([[True, False, True], [False, False, True]]),
}


def shown(axes):
  return float(np.asarray(axes.images[0].get_array()).mean())


def test_each_picture_is_where_it_belongs():
  cells = plotting.retrieval_sheet(**SHEET).axes
  places = np.column_stack([SHEET["queries"], SHEET["retrieved"]]) / 4
  np.testing.assert_allclose([shown(cell) for cell in cells], places.ravel(), rtol=1e-6)


def test_right_and_wrong_differ_in_sign_and_colour():
  cells = np.array(plotting.retrieval_sheet(**SHEET).axes, object).reshape(2, 4)[:, 1:]
  looks = {
    (right, cell.texts[0].get_text(), to_hex(cell.spines["left"].get_edgecolor()))
    for cell, right in zip(cells.ravel(), SHEET["correct"].ravel(), strict=True)
  }
  (*wrong, of_wrong), (*right, of_right) = sorted(looks)
  assert (wrong, right) == ([False, "✗"], [True, "✓"])
  assert of_wrong != of_right


def test_separate_references_names_and_title():
  references = np.stack([IMAGES[4 - i] for i in range(5)])
  options = {"names": ["a class", "another"], "title": "held out"}
  figure = plotting.retrieval_sheet(**SHEET, reference_images=references, **options)
  assert shown(figure.axes[1]) == pytest.approx(1 - 1 / 4)
  assert figure.axes[4].get_ylabel() == "another"
  assert figure.get_suptitle() == "held out"


@pytest.mark.parametrize("title", ["", "one line"])
def test_nothing_overlaps_or_leaves_the_sheet(title):
  names = ["long name of a class"] * 2
  figure = plotting.retrieval_sheet(**SHEET, names=names, title=title)
  FigureCanvasAgg(figure).draw()
  page = figure.bbox
  texts = [axes.yaxis.label for axes in figure.axes]
  texts += [axes.title for axes in figure.axes] + figure.texts + figure.legends
  boxes = [t.get_window_extent() for t in texts if getattr(t, "get_text", str)()]
  boxes += [axes.get_window_extent() for axes in figure.axes]
  for i, box in enumerate(boxes):
    assert min(box.x0, box.y0, page.x1 - box.x1, page.y1 - box.y1) >= 0
    assert not any(box.overlaps(other) for other in boxes[:i])


def test_pixels_as_bytes_and_in_colour():
  images = np.zeros((2, 4, 4, 3), np.uint8)
  images[1, ..., 0] = 255
  first, second, wrong = np.array([0]), np.array([[1]]), np.array([[False]])
  figure = plotting.retrieval_sheet(images, first, second, wrong)
  np.testing.assert_array_equal(figure.axes[1].images[0].get_array()[0, 0], [1, 0, 0])


def test_maps_are_relative_to_average_pooling_on_one_scale():
  coarse, fine = np.full((5, 2, 2), 1 / 4), np.zeros((5, 4, 6))
  fine[:, 1, 2] = 1
  maps = {"GAP": coarse, "GSP": fine}
  figure = plotting.weight_maps(IMAGES, maps, names=list("abcde"), title="weights")
  cells = np.array(figure.axes[:15], object).reshape(3, 5)
  np.testing.assert_allclose(cells[1, 0].images[1].get_array(), 1)
  assert cells[2, 0].images[1].get_array()[1, 2] == 24
  assert {axes.images[1].get_clim() for axes in cells[1:].ravel()} == {(0, 24)}
  assert cells[1, 0].images[1].get_extent() == list(cells[1, 0].images[0].get_extent())
  assert "weight" in figure.axes[15].get_ylabel()
  assert [axes.get_title() for axes in figure.axes[:5]] == list("abcde")


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"images": IMAGES * 2}, r"in \[0, 1\], got values in \[0, 2\]"),
    ({"images": IMAGES * np.nan}, r"images must lie in \[0, 1\]"),
    ({"images": IMAGES[..., None] * np.ones(2)}, "1 or 3 channels"),
    ({"queries": np.array([0, 5])}, r"in \[0, 5\), got values in \[0, 5\]"),
    ({"names": ["a"]}, "names must be 2, one per query, got 1"),
    (
      {name: SHEET[name][:, :0] for name in ("retrieved", "correct")},
      r"at least one, got shape \(2, 0\)",
    ),
  ],
)
def test_sheet_errors(unchecked, change, message):
  with pytest.raises(ValueError, match=message):
    plotting.retrieval_sheet(**(SHEET | change))


@pytest.mark.parametrize(
  ("images", "weights", "names", "message"),
  [
    (IMAGES, {}, None, "at least one pooling"),
    (IMAGES[:0], {"a": np.ones((0, 2, 2))}, None, "at least one image"),
    (IMAGES, {"a": np.ones((4, 2, 2))}, None, r"weights\['a'\] must have shape"),
    (IMAGES, {"a": -np.ones((5, 2, 2))}, None, "non-negative, got -1"),
    (IMAGES, {"a": np.ones((5, 2))}, None, r"weights\['a'\] must have 3 axes"),
    (IMAGES, {"a": np.ones((5, 2, 2))}, ["x"], "one per image, got 1"),
  ],
)
def test_weight_map_errors(unchecked, images, weights, names, message):
  with pytest.raises(ValueError, match=message):
    plotting.weight_maps(images, weights, names=names)

"""The map shows every figure at its place and frames the best."""

import numpy as np

from spherejax import plotting

LABELS = {"row_label": "prototypes", "column_label": "mass", "value_label": "MAP@R"}


def test_cells_numbers_and_the_best():
  values = [[0.1, 0.2, np.nan], [0.3, 0.05, 0.9]]
  figure = plotting.heat_map(
    values, rows=[16, 64], columns=["a", "b", "c"], number_format=".1f", **LABELS
  )
  axes, bar = figure.axes
  shown = {text.get_position(): text.get_text() for text in axes.texts}
  assert shown == {
    (0, 0): "0.1",
    (1, 0): "0.2",
    (0, 1): "0.3",
    (1, 1): "0.1",
    (2, 1): "0.9",
  }
  (image,) = axes.images
  np.testing.assert_array_equal(image.get_array().mask, np.isnan(values))
  (frame,) = axes.patches
  assert frame.get_xy() == (1.5, 0.5)
  assert not frame.get_clip_on()  # the best cell may lie at the edge
  assert [label.get_text() for label in axes.get_yticklabels()] == ["16", "64"]
  assert (axes.get_xlabel(), axes.get_ylabel()) == ("mass", "prototypes")
  assert bar.get_ylabel() == "MAP@R"


def test_what_is_infinite_is_not_the_best():
  figure = plotting.heat_map(
    [[0.5, np.inf], [0.7, -np.inf]], rows=[1, 2], columns=[3, 4], **LABELS
  )
  (frame,) = figure.axes[0].patches
  assert frame.get_xy() == (-0.5, 0.5)
  assert [text.get_text() for text in figure.axes[0].texts] == ["0.500", "0.700"]


def test_numbers_of_a_flat_map_can_be_read():
  figure = plotting.heat_map([[0.5, 0.5]], rows=[1], columns=[3, 4], **LABELS)
  assert {text.get_color() for text in figure.axes[0].texts} == {"white"}

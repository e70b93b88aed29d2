"""Hulls of classes in the plane."""

import numpy as np
import pytest

from spherejax import plotting

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])


def test_hulls_leave_out_what_is_inside_and_classes_keep_their_colour():
  figure = plotting.class_hulls(
    {"GAP": [SQUARE, SQUARE + 2], "GSP": [SQUARE[:2], SQUARE[:0]]},
    dots={"GAP": [SQUARE / 2]},
    others={"GSP": np.array([[0.2, 0.3]])},
    other_label="background",
  )
  first, second = figure.axes
  corners = first.patches[0].get_xy()
  assert len(corners) == 5  # a closed line around four corners
  assert {tuple(corner) for corner in corners} == {tuple(p) for p in SQUARE[:4]}
  assert first.patches[0].get_facecolor() == second.patches[0].get_facecolor()
  assert first.patches[0].get_facecolor() != first.patches[1].get_facecolor()
  assert second.patches[0].get_xy()[:2].tolist() == SQUARE[:2].tolist()
  assert [len(line.get_xdata()) for line in first.lines] == [5, 5, 5]
  np.testing.assert_allclose(second.lines[-1].get_xydata(), [[0.2, 0.3]])
  (legend,) = figure.legends
  assert [text.get_text() for text in legend.get_texts()] == ["background"]


def test_many_classes_have_different_colours():
  (axes,) = plotting.class_hulls({"": [SQUARE] * 16}).axes
  assert len({patch.get_facecolor() for patch in axes.patches}) == 16


def test_dots_of_a_class_that_is_not_there():
  with pytest.raises(ValueError, match=r"dots\['GAP'\] must be of at most 1 classes"):
    plotting.class_hulls({"GAP": [SQUARE]}, dots={"GAP": [SQUARE, SQUARE]})

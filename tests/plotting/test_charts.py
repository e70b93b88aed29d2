"""Charts draw means, ranges and intervals; hulls of classes; maps of figures."""

import numpy as np
import pytest

from spherejax import metrics, plotting

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])
CURVES = {
  "GAP": np.array([[3.0, 2.0, 1.0], [5.0, 2.0, 2.0]]),
  "GSP": np.array([[2.0, 1.0, 0.5], [2.0, 1.0, 0.5]]),
}


def names_in_legend(figure):
  (legend,) = figure.legends
  return [text.get_text() for text in legend.get_texts()]


def test_curves_are_means_with_ranges():
  figure = plotting.training_curves(CURVES, steps=[10, 20, 30], ylabel="loss")
  (axes,) = figure.axes
  line = axes.lines[0]
  np.testing.assert_array_equal(line.get_xdata(), [10, 20, 30])
  np.testing.assert_array_equal(line.get_ydata(), [4, 2, 1.5])
  corners = axes.collections[0].get_paths()[0].vertices
  at_first = corners[corners[:, 0] == 10, 1]
  assert (at_first.min(), at_first.max()) == (3, 5)
  assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss")
  assert names_in_legend(figure) == ["GAP", "GSP"]
  assert "2 seeds" in figure.legends[0].get_title().get_text()
  assert len({line.get_color() for line in axes.lines}) == 2
  assert len({line.get_marker() for line in axes.lines}) == 2


def test_more_names_than_colours_are_told_apart():
  many = {str(number): [[1.0, number]] for number in range(16)}
  (axes,) = plotting.training_curves(many, ylabel="loss").axes
  assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 16
  bars = {"seen": {name: [1.0, 2.0] for name in many}}
  (axes,) = plotting.bars_with_intervals(bars, ylabel="loss").axes
  assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}) == 16
  (axes,) = plotting.class_hulls({"": [SQUARE] * 16}).axes
  assert len({patch.get_facecolor() for patch in axes.patches}) == 16


def test_gaps_are_skipped_and_a_single_seed_has_no_band():
  single, two = [[1.0, np.nan, 3.0]], [[1.0, np.nan], [3.0, 5.0]]
  (axes,) = plotting.training_curves({"a": single}, ylabel="MAP@R").axes
  assert not axes.collections
  np.testing.assert_array_equal(axes.lines[0].get_xdata(), [1, 3])
  (axes,) = plotting.training_curves({"a": two}, ylabel="MAP@R").axes
  np.testing.assert_array_equal(axes.lines[0].get_ydata(), [2, 5])


BARS = {
  "seen": {"GAP": [0.70, 0.72, 0.74], "GSP": [0.80, 0.85, 0.81]},
  "unseen": {"GSP": [0.5, 0.55, 0.6]},
}


def test_bars_are_means_with_intervals():
  figure = plotting.bars_with_intervals(BARS, ylabel="MAP@R", confidence=0.9)
  (axes,) = figure.axes
  heights = [bar.get_height() for bar in axes.patches]
  np.testing.assert_allclose(heights, [0.72, 0.82, 0.55])
  whisker = axes.containers[1].lines[2][0].get_segments()[0]
  interval = metrics.mean_interval(BARS["seen"]["GAP"], confidence=0.9)
  np.testing.assert_allclose(whisker[:, 1], [interval.low, interval.high])
  assert names_in_legend(figure) == ["GAP", "GSP"]
  assert "90% interval" in figure.legends[0].get_title().get_text()
  assert [label.get_text() for label in axes.get_xticklabels()] == ["seen", "unseen"]
  # A method has the same colour and place in each group.
  first, second, third = axes.patches
  assert second.get_facecolor() == third.get_facecolor() != first.get_facecolor()
  assert third.get_x() - second.get_x() == pytest.approx(1)
  # The bar of a single seed has no whisker.
  (axes,) = plotting.bars_with_intervals({"a": {"b": [0.4]}}, ylabel="MAP@R").axes
  assert len(axes.containers) == 1
  np.testing.assert_array_equal(axes.lines[0].get_ydata(), [0.4])


def test_hulls_leave_out_what_is_inside_and_classes_keep_their_colour():
  figure = plotting.class_hulls(
    {"GAP": [SQUARE, SQUARE + 2], "GSP": [SQUARE[:2], SQUARE[:0]]},
    dots={"GAP": [SQUARE / 2]},
    others={"GSP": np.array([[0.2, 0.3]])},
    other_label="background",
  )
  first, second = figure.axes
  hull, other, segment = *first.patches[:2], second.patches[0]
  corners = hull.get_xy()
  assert len(corners) == 5  # a closed line around four corners
  assert {tuple(corner) for corner in corners} == {tuple(p) for p in SQUARE[:4]}
  assert segment.get_facecolor() == hull.get_facecolor() != other.get_facecolor()
  assert segment.get_xy()[:2].tolist() == SQUARE[:2].tolist()
  assert [len(line.get_xdata()) for line in first.lines] == [5, 5, 5]
  np.testing.assert_allclose(second.lines[-1].get_xydata(), [[0.2, 0.3]])
  assert names_in_legend(figure) == ["background"]
  with pytest.raises(ValueError, match=r"dots\['GAP'\] must be of at most 1 classes"):
    plotting.class_hulls({"GAP": [SQUARE]}, dots={"GAP": [SQUARE, SQUARE]})


LABELS = {"row_label": "prototypes", "column_label": "mass", "value_label": "MAP@R"}


def test_cells_numbers_and_the_best():
  values = [[0.1, 0.2, np.nan], [0.3, 0.05, 0.9]]
  figure = plotting.heat_map(
    values, rows=[16, 64], columns=["a", "b", "c"], number_format=".1f", **LABELS
  )
  axes, bar = figure.axes
  shown = {text.get_position(): text.get_text() for text in axes.texts}
  places = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1)]
  assert shown == dict(zip(places, ["0.1", "0.2", "0.3", "0.1", "0.9"], strict=True))
  (image,) = axes.images
  np.testing.assert_array_equal(image.get_array().mask, np.isnan(values))
  (frame,) = axes.patches
  assert frame.get_xy() == (1.5, 0.5)
  assert not frame.get_clip_on()  # the best cell may lie at the edge
  assert [label.get_text() for label in axes.get_yticklabels()] == ["16", "64"]
  assert (axes.get_xlabel(), axes.get_ylabel()) == ("mass", "prototypes")
  assert bar.get_ylabel() == "MAP@R"


def test_what_is_infinite_is_not_the_best():
  values = [[0.5, np.inf], [0.7, -np.inf]]
  figure = plotting.heat_map(values, rows=[1, 2], columns=[3, 4], **LABELS)
  (frame,) = figure.axes[0].patches
  assert frame.get_xy() == (-0.5, 0.5)
  assert [text.get_text() for text in figure.axes[0].texts] == ["0.500", "0.700"]
  # The numbers of a flat map can be read.
  figure = plotting.heat_map([[0.5, 0.5]], rows=[1], columns=[3, 4], **LABELS)
  assert {text.get_color() for text in figure.axes[0].texts} == {"white"}

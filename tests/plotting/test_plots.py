"""Every figure: what is drawn, where and in which colour, and how it is saved."""

import itertools
import subprocess
import sys
from functools import partial as call

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from spherejax import attacks, hierarchy, metrics, plotting
from tests import refusals

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5]])


def names_in_legend(figure):
  (legend,) = figure.legends
  return [text.get_text() for text in legend.get_texts()]


def test_curves_are_means_with_ranges():
  curves = {"GAP": np.array([[3.0, 2, 1], [5, 2, 2]]), "GSP": [[2.0, 1.0, 0.5]] * 2}
  figure = plotting.training_curves(curves, steps=[10, 20, 30], ylabel="loss")
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


def test_bars_are_means_with_intervals():
  first = {"GAP": [0.70, 0.72, 0.74], "GSP": [0.80, 0.85, 0.81]}
  bars = {"seen": first, "unseen": {"GSP": [0.5, 0.55, 0.6]}}
  figure = plotting.bars_with_intervals(bars, ylabel="MAP@R", confidence=0.9)
  (axes,) = figure.axes
  heights = [bar.get_height() for bar in axes.patches]
  np.testing.assert_allclose(heights, [0.72, 0.82, 0.55])
  whisker = axes.containers[1].lines[2][0].get_segments()[0]
  interval = metrics.mean_interval(first["GAP"], confidence=0.9)
  np.testing.assert_allclose(whisker[:, 1], [interval.low, interval.high])
  assert names_in_legend(figure) == ["GAP", "GSP"]
  assert "90% interval" in figure.legends[0].get_title().get_text()
  assert [label.get_text() for label in axes.get_xticklabels()] == ["seen", "unseen"]
  # A method has the same colour and place in each group.
  gap, gsp, later = axes.patches
  assert gsp.get_facecolor() == later.get_facecolor() != gap.get_facecolor()
  assert later.get_x() - gsp.get_x() == pytest.approx(1)
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


def test_heat_maps_show_numbers_and_frame_the_best():
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


def test_heat_maps_frame_no_infinite_value():
  values = [[0.5, np.inf], [0.7, -np.inf]]
  figure = plotting.heat_map(values, rows=[1, 2], columns=[3, 4], **LABELS)
  (frame,) = figure.axes[0].patches
  assert frame.get_xy() == (-0.5, 0.5)
  assert [text.get_text() for text in figure.axes[0].texts] == ["0.500", "0.700"]
  # The numbers of a flat map can be read.
  figure = plotting.heat_map([[0.5, 0.5]], rows=[1], columns=[3, 4], **LABELS)
  assert {text.get_color() for text in figure.axes[0].texts} == {"white"}


TREE = hierarchy.from_paths(["a/b/one", "a/b/two", "a/three", "d/four", "d/five"])


def texts(figure):
  return {text.get_text(): text for text in figure.axes[0].texts}


def edges(figure):
  """Horizontal lines as (start, end, row), and vertical ones as (place, low, high)."""
  lines = [np.array(line.get_data()) for line in figure.axes[0].lines]
  flat = sorted((*x, y[0]) for x, y in lines if y[0] == y[1])
  return flat, sorted((x[0], *y) for x, y in lines if y[0] != y[1])


def test_layout_of_a_class_tree():
  figure = plotting.class_tree(TREE, title="letters")
  flat, upright = edges(figure)
  rows = {"one": 0, "two": 1, "three": 2, "four": 3, "five": 4}
  rows |= {"b": 0.5, "a": 1.25, "d": 3.5}
  start = {"a": 0, "d": 0, "b": 1, "three": 1, "four": 1, "five": 1, "one": 2, "two": 2}
  assert flat == sorted((start[n], start[n] + 1, rows[n]) for n in start)
  assert upright == [(0, 1.25, 3.5), (1, 0.5, 2), (1, 3, 4), (2, 0, 1)]
  found = texts(figure)
  assert set(found) == set(start)
  for name, text in found.items():
    assert text.xy == (start[name] + 1, rows[name])
  top = [found[name].get_color() for name in ("a", "b", "one", "three")]
  assert len(set(top)) == 1
  assert found["d"].get_color() == found["five"].get_color() != top[0]
  assert figure.axes[0].get_title(loc="left") == "letters"


def test_class_trees_show_groups_lengths_and_depth():
  tree = TREE._replace(lengths=np.array([0, 0.5, 0.25, 1, -0.25, 2, 3, 4, 5]))
  figure = plotting.class_tree(tree, groups=np.array([0, 1, 0, 2, 2]))
  # Nodes by depth: root, a, d, b, three, four, five, one, two.
  ends = dict(zip(TREE.names, [0, 0.5, 0.25, 1.5, 0.25, 2.25, 3.25, 5.5, 6.5],
                  strict=True))  # fmt: skip
  for name, text in texts(figure).items():
    np.testing.assert_allclose(text.xy[0], ends[name])
  colour = {name: text.get_color() for name, text in texts(figure).items()}
  assert colour["one"] == colour["three"] != colour["two"]
  assert colour["d"] == colour["four"] == colour["five"]
  assert colour["b"] not in (colour["one"], colour["two"])
  short = plotting.class_tree(TREE, max_depth=1)
  assert list(texts(short)) == ["a (3 classes)", "d (2 classes)"]


def test_names_of_a_long_tree_do_not_touch():
  paths = [f"group {i // 9}/class number {i}" for i in range(70)]
  figure = plotting.class_tree(hierarchy.from_paths(paths))
  width, height = figure.get_size_inches()
  assert width < 8
  assert height > 10
  figure.canvas.draw()
  shown = texts(figure)
  boxes = [shown[name].get_window_extent() for name in shown if name[:5] == "class"]
  boxes.sort(key=lambda box: box.y0)
  assert len(boxes) == 70
  for lower, upper in itertools.pairwise(boxes):
    assert lower.y1 <= upper.y0 + 1
  assert max(box.x1 for box in boxes) <= figure.bbox.x1


BUDGETS = [0.0, 0.1, 0.4]


def result(success, norm):
  """A result of which the successes and norms matter."""
  rows, success = np.zeros(len(success), np.float32), np.array(success)
  return attacks.AttackResult(
    rows[:, None], success, rows, rows, np.float32(norm), rows, rows, rows, success
  )


def test_robust_accuracies_are_lines_with_bands():
  curves = {"plain": [0.9, 0.5, 0.0], "robust": np.array([0.8, 0.7, 0.6])}
  options = {"intervals": {"robust": ([0.7, 0.6, 0.5], [0.9, 0.8, 0.7])}}
  options |= {"xlabel": "l2", "title": "digits"}
  figure = plotting.robust_accuracy(curves, BUDGETS, **options)
  (axes,) = figure.axes
  for line, (name, values) in zip(axes.lines, curves.items(), strict=True):
    assert line.get_label() == name
    np.testing.assert_array_equal(line.get_xdata(), BUDGETS)
    np.testing.assert_array_equal(line.get_ydata(), values)
  (band,) = axes.collections
  corners = band.get_paths()[0].vertices
  at_last = corners[corners[:, 0] == 0.4, 1]
  assert (at_last.min(), at_last.max()) == (0.5, 0.7)
  assert axes.get_ylim()[0] == 0
  assert (axes.get_xlabel(), axes.get_title(loc="left")) == ("l2", "digits")
  assert names_in_legend(figure) == ["plain", "robust"]


def test_attack_results_are_counted_as_the_measures_do():
  """A point that an earlier budget broke stays broken; a failure's norm is no least."""
  success = np.array([[0, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 1]], bool)
  by_budget = [result(row, [0, 0, 0, 0]) for row in success]
  least = result([True, True, False, True], [0.3, 0.1, 0.05, 0.0])
  curves = {"pgd": by_budget, "fab": least, "jax": jax.device_get(least)}
  (axes,) = plotting.robust_accuracy(curves, BUDGETS).axes
  np.testing.assert_allclose(axes.lines[0].get_ydata(), metrics.accuracy_curve(success))
  for line in axes.lines[1:]:
    np.testing.assert_allclose(line.get_ydata(), [0.75, 0.5, 0.25])


IMAGES = np.linspace(0, 1, 5, dtype=np.float32)[:, None, None] * np.ones((5, 4, 6))
SHEET = {
  "images": IMAGES,
  "queries": np.array([4, 0]),
  "retrieved": np.array([[1, 2, 3], [3, 1, 2]]),
  "correct": np.array([[True, False, True], [False, False, True]]),
}


def level(axes):
  return float(np.asarray(axes.images[0].get_array()).mean())


def test_each_picture_is_where_it_belongs():
  cells = plotting.retrieval_sheet(**SHEET).axes
  places = np.column_stack([SHEET["queries"], SHEET["retrieved"]]) / 4
  np.testing.assert_allclose([level(cell) for cell in cells], places.ravel(), rtol=1e-6)


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
  assert level(figure.axes[1]) == pytest.approx(1 - 1 / 4)
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


@pytest.fixture
def noisy_figure():
  noise = np.random.default_rng(0).random((3, 64, 64, 3)).astype(np.float32)
  index = np.arange(3)[:, None]
  return plotting.retrieval_sheet(noise, index[:, 0], index, index >= 0)


def test_the_resolution_falls_until_the_file_fits(noisy_figure, tmp_path):
  sizes = []
  for limit in (2_000_000, 60_000, 30_000):
    path = tmp_path / "new" / f"{limit}.png"
    picture = plotting.save(noisy_figure, path, max_bytes=limit).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) <= limit
    sizes.append(len(picture))
  assert sizes[0] > sizes[1] > sizes[2]


def test_what_cannot_be_saved_writes_nothing(noisy_figure, tmp_path):
  with pytest.raises(ValueError, match="at 40 dots per inch, above 100"):
    plotting.save(noisy_figure, tmp_path / "a.png", max_bytes=100)
  with pytest.raises(ValueError, match=r"end in \.png or \.svg, got .*a\.pdf"):
    plotting.save(noisy_figure, tmp_path / "a.pdf")
  assert not list(tmp_path.iterdir())


def test_import_leaves_matplotlib_alone_and_saving_needs_no_display(tmp_path):
  code = (
    "import sys; from spherejax import plotting\n"
    "print('matplotlib' in sys.modules)\n"
    "f = plotting.training_curves({'a': [[1.0, 2.0]]}, ylabel='loss')\n"
    f"plotting.save(f, {str(tmp_path / 'a.png')!r})\n"
    "print('matplotlib.pyplot' in sys.modules)"
  )
  env = {"PATH": "", "JAX_PLATFORMS": "cpu", "HOME": str(tmp_path)}
  printed = subprocess.check_output([sys.executable, "-c", code], text=True, env=env)
  assert printed.split() == ["False", "False"]


def test_photographs_keep_colours_lines_have_a_palette_or_text(noisy_figure, tmp_path):
  with Image.open(plotting.save(noisy_figure, tmp_path / "noise.png")) as image:
    assert image.mode != "P"
  figure = plotting.training_curves({"a": [[1.0, 2.0]]}, ylabel="loss")
  with Image.open(plotting.save(figure, tmp_path / "a.png")) as image:
    assert image.mode == "P"
  assert b">loss</text>" in plotting.save(figure, tmp_path / "b.svg").read_bytes()
  with pytest.raises(ValueError, match="bytes as SVG, above 100"):
    plotting.save(figure, tmp_path / "c.svg", max_bytes=100)


def test_a_colour_bar_keeps_the_colours_that_its_maps_lack(tmp_path):
  figure = Figure(figsize=(7.2, 3.4))
  panels = figure.subplots(1, 3)
  for axes, low in zip(panels, (0.2, -0.1, -0.3), strict=True):
    values = np.random.default_rng(0).uniform(low, 0.7, (100, 100))
    drawn = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
  figure.colorbar(drawn, ax=panels)
  figure.savefig(tmp_path / "all.png", dpi=160)
  with (
    Image.open(plotting.save(figure, tmp_path / "a.png")) as image,
    Image.open(tmp_path / "all.png") as whole,
  ):
    assert image.mode == "P"
    pixels, expected = (np.asarray(x.convert("RGB"), int) for x in (image, whole))
  assert np.abs(pixels - expected).max() < 20  # 51 under a median cut


sheet = call(plotting.retrieval_sheet, **SHEET)
maps = call(plotting.weight_maps, IMAGES)
robust = call(plotting.robust_accuracy, budgets=BUDGETS)
EACH, GOOD = result([True], [0.1]), [0.9, 0.5, 0.0]
LINE = {"a": GOOD}


@refusals.table(
  [
    (call(sheet, images=IMAGES * 2), r"in \[0, 1\], got values in \[0, 2\]"),
    (call(sheet, images=IMAGES * np.nan), r"images must lie in \[0, 1\]"),
    (call(sheet, images=IMAGES[..., None] * np.ones(2)), "1 or 3 channels"),
    (call(sheet, queries=np.array([0, 5])), r"in \[0, 5\), got values in \[0, 5\]"),
    (call(sheet, names=["a"]), "names must be 2, one per query, got 1"),
    (
      call(sheet, **{name: SHEET[name][:, :0] for name in ("retrieved", "correct")}),
      r"at least one, got shape \(2, 0\)",
    ),
    (call(maps, {}), "at least one pooling"),
    (call(plotting.weight_maps, IMAGES[:0], {"a": IMAGES[:0]}), "at least one image"),
    (call(maps, {"a": np.ones((4, 2, 2))}), r"weights\['a'\] must have shape"),
    (call(maps, {"a": -np.ones((5, 2, 2))}), "non-negative, got -1"),
    (call(maps, {"a": np.ones((5, 2))}), r"weights\['a'\] must have 3 axes"),
    (call(maps, {"a": np.ones((5, 2, 2))}, names=["x"]), "one per image, got 1"),
    (call(robust, GOOD), "TypeError: curves must be a mapping"),
    (call(robust, {}), "curves must name at least one"),
    (call(robust, LINE, budgets=[0.0, 0.4, 0.1]), "budgets must grow, got"),
    (call(robust, LINE, budgets=[0, 1, np.inf]), "budgets must be in .*, got inf"),
    (call(robust, {"a": [EACH, EACH]}), "each of the 3 budgets, got 2"),
    (call(robust, {"a": [EACH, 3, EACH]}), "TypeError: must be a AttackResult, got 3"),
    (call(robust, {"a": [1, 0]}), r"curves\['a'\] must have shape \(3,\)"),
    (call(robust, {"a": [90, 50, 0]}), "must be in .*, got 90"),
    (call(robust, LINE, intervals={"b": (GOOD, GOOD)}), "one of 'a', got 'b'"),
    (call(robust, LINE, intervals={"a": GOOD}), "TypeError: pair, got 3 entries"),
  ]
)
def test_figures_that_are_refused(call, message, unchecked):
  refusals.check(call, message)

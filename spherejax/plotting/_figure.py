"""Shared parts of all figures: palette, canvas, image checks and saving."""

import io
import pathlib
from typing import TYPE_CHECKING, Literal

import numpy as np
from jax.typing import ArrayLike

from spherejax import _checks

if TYPE_CHECKING:
  import matplotlib.axes
  import matplotlib.figure

# Okabe and Ito 2008: distinguishable with any common colour deficiency. Grey in place
# of their black, on which no whisker would show.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
RIGHT, WRONG = PALETTE[0], PALETTE[1]
INK, FAINT = "#222222", "#D9D9D9"
MARKERS = "osD^vPX"
# Line styles of curves that share a colour, for every further turn of the palette.
DASHES, HATCHES = ("-", "--", ":", "-."), ("", "///", "...", "xx")
_UNSEEN = 2.0  # mean difference of colours, of 255


def new_figure(
  width: float, height: float, *, layout: Literal["constrained"] | None = "constrained"
) -> "matplotlib.figure.Figure":
  """Creates an empty figure, with a size in inches, outside pyplot: no display."""
  from matplotlib.figure import Figure

  return Figure(figsize=(width, height), layout=layout, facecolor="white")


def turn(index: int) -> int:
  """Number of times the palette is used up before the index-th colour."""
  return index // len(PALETTE)


def color(index: int) -> str:
  """Colour number `index` of the palette, which repeats."""
  return PALETTE[index % len(PALETTE)]


def pictures(name: str, images: ArrayLike) -> np.ndarray:
  """Images [n, height, width, 1 or 3] as floats in [0, 1], also from bytes."""
  pixels = _checks.host(name, images)
  _checks.expect(name, pixels, rank=(3, 4))
  if pixels.ndim == 3:
    pixels = pixels[..., None]
  if pixels.shape[-1] not in (1, 3):
    raise ValueError(f"{name} must have 1 or 3 channels, got shape {pixels.shape}")
  if pixels.dtype == np.uint8:
    return pixels / np.float32(255)
  pixels = pixels.astype(np.float32)
  low, high = pixels.min(initial=0), pixels.max(initial=0)
  if not (low >= 0 and high <= 1):
    raise ValueError(f"{name} must lie in [0, 1], got values in [{low:g}, {high:g}]")
  return pixels


def show(axes: "matplotlib.axes.Axes", picture: np.ndarray) -> None:
  """Draws an image [height, width, channels] without ticks or interpolation."""
  gray = picture.shape[-1] == 1
  axes.imshow(
    picture[..., 0] if gray else picture,
    cmap="gray" if gray else None,
    vmin=0,
    vmax=1,
    interpolation="nearest",
  )
  axes.set(xticks=[], yticks=[])
  axes.spines[:].set_visible(False)


def soften(axes: "matplotlib.axes.Axes") -> None:
  """Reduces the frame to two axes and faint horizontal lines."""
  axes.spines[["top", "right"]].set_visible(False)
  axes.spines[["left", "bottom"]].set_color(INK)
  axes.grid(axis="y", color=FAINT, linewidth=0.8)
  axes.set_axisbelow(True)


def line(
  axes: "matplotlib.axes.Axes",
  index: int,
  name: str,
  at: np.ndarray,
  values: np.ndarray,
  band: tuple[np.ndarray, np.ndarray] | None = None,
  *,
  pale: bool = False,
) -> None:
  """Draws the index-th curve of a chart, with a band from low to high around it."""
  few = len(at) <= 30
  axes.plot(
    at,
    values,
    color=color(index),
    marker=MARKERS[index % len(MARKERS)] if few else None,
    linestyle=DASHES[turn(index) % len(DASHES)],
    markersize=4,
    linewidth=1.8 if few else 1.2,
    label=name,
  )
  if band is not None:
    alpha = 0.1 if pale else 0.25
    axes.fill_between(at, *band, color=color(index), alpha=alpha, linewidth=0)


def legend(figure: "matplotlib.figure.Figure", note: str = "") -> None:
  """Names the curves or bars beside the chart, under a note."""
  figure.legend(
    loc="outside right upper",
    frameon=False,
    fontsize=9,
    title=note or None,
    title_fontsize=8,
    alignment="left",
  )


def save(
  figure: "matplotlib.figure.Figure",
  path: str | pathlib.Path,
  *,
  max_bytes: int = 300_000,
) -> pathlib.Path:
  """Writes a figure as SVG, or as PNG with as many pixels as fit into `max_bytes`.

  Creates missing folders. A PNG has 256 colours if no difference can be seen; its
  resolution falls from 160 dots per inch until the file fits. SVG suits lines: its text
  stays text.

  Args:
    figure: the result of a function of this module.
    path: file name; its suffix must be `.png` or `.svg`.
    max_bytes: upper limit of the file's size.

  Returns:
    The path.

  Raises:
    TypeError: figure not a figure, path not a path, max_bytes not an integer.
    ValueError: another suffix, or the file does not fit (PNG: at 40 dots per inch);
      then nothing is written.

  Source: none; 300 KB keep a repository of results light.

  Example:
    >>> figure = spherejax.plotting.training_curves(
    ...   {"GAP": [[3.0, 2.0, 1.5]]}, ylabel="loss")
    >>> import tempfile
    >>> path = spherejax.plotting.save(figure, tempfile.mkdtemp() + "/loss.png")
    >>> path.stat().st_size < 300_000
    True
  """
  from matplotlib.figure import Figure

  _checks.instance("figure", figure, Figure)
  _checks.path("path", path)
  path = pathlib.Path(path)
  if path.suffix not in (".png", ".svg"):
    raise ValueError(f"path must end in .png or .svg, got {str(path)!r}")
  _checks.count("max_bytes", max_bytes)
  content = b""
  vector = path.suffix == ".svg"
  for resolution in (160,) if vector else (160, 130, 105, 85, 70, 55, 40):
    content = _svg(figure) if vector else _png(figure, resolution)
    if len(content) <= max_bytes:
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(content)
      return path
  size = "as SVG" if vector else "at 40 dots per inch"
  raise ValueError(f"figure needs {len(content)} bytes {size}, above {max_bytes}")


def _svg(figure: "matplotlib.figure.Figure") -> bytes:
  """Bytes of an SVG without its date and random names."""
  import matplotlib

  buffer = io.BytesIO()
  with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "spherejax"}):
    figure.savefig(buffer, format="svg", metadata={"Date": None})
  return buffer.getvalue()


def _png(figure: "matplotlib.figure.Figure", resolution: int) -> bytes:
  """Bytes of a PNG, with a palette unless it changes colours by more than 2 of 255."""
  from PIL import Image

  buffer = io.BytesIO()
  figure.savefig(buffer, format="png", dpi=resolution)
  full = Image.open(buffer).convert("RGB")
  # Keeps colours of a colour bar that the figure hardly uses; a median cut would not.
  coverage = Image.Quantize.MAXCOVERAGE
  few = full.quantize(256, coverage, dither=Image.Dither.NONE)
  error = np.asarray(few.convert("RGB"), np.float32) - np.asarray(full, np.float32)
  if np.abs(error).mean() > _UNSEEN:
    return buffer.getvalue()
  buffer = io.BytesIO()
  few.save(buffer, format="png", optimize=True)
  return buffer.getvalue()

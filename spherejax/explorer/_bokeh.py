"""Page with Bokeh's map and our scripts, all in one file."""

import pathlib
from collections.abc import Sequence

import numpy as np
from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.events import DocumentReady, DoubleTap, MouseMove, Tap
from bokeh.models import (
  CDSView,
  ColumnDataSource,
  CustomJS,
  IndexFilter,
  PanTool,
  Range1d,
  WheelZoomTool,
)
from bokeh.plotting import figure
from bokeh.resources import INLINE

_HERE = pathlib.Path(__file__).parent


def render(
  points: np.ndarray, styles: Sequence[dict[str, str]], size: int, text: str
) -> str:
  """Renders the page of a map [images, 2]; `text` is the JSON that the scripts read."""
  return file_html(
    _document(points, styles, size),
    INLINE,
    title="Embeddings",
    template=(_HERE / "page.html").read_text(encoding="utf-8"),
    template_variables={
      "explore_data": text,
      "images_script": (_HERE / "images.js").read_text(encoding="utf-8"),
      "map_script": (_HERE / "map.js").read_text(encoding="utf-8"),
    },
    suppress_callback_warning=True,
  )


def _document(
  points: np.ndarray, styles: Sequence[dict[str, str]], size: int
) -> Document:
  columns = {name: [style[name] for style in styles] for name in ("color", "marker")}
  source = ColumnDataSource({"x": points[:, 0], "y": points[:, 1], **columns})
  shown = IndexFilter(indices=None)  # all
  # The frame fills the plot, like the script's drawings.
  plot = figure(
    x_range=Range1d(start=0, end=1),
    y_range=Range1d(start=0, end=1),
    sizing_mode="stretch_both",
    min_border=0,
    tools=[],
    toolbar_location=None,
    outline_line_color=None,
    # Without a GPU, WebGL takes ten times as long; canvas is also fast enough with a
    # GPU.
    output_backend="canvas",
    lod_threshold=None,  # no point disappears while the map moves
  )
  plot.axis.visible = False
  plot.grid.visible = False
  drawn = plot.scatter(
    "x",
    "y",
    source=source,
    view=CDSView(filter=shown),
    size=size,
    marker="marker",
    color="color",
    fill_alpha=0.8,
    line_color=None,
  )
  plot.add_tools(pan := PanTool(), wheel := WheelZoomTool())
  plot.toolbar.active_drag, plot.toolbar.active_scroll = pan, wheel
  move, tap = (
    CustomJS(code=f"window.explorer.{name}(cb_obj)") for name in ("inspect", "tap")
  )
  plot.js_on_event(MouseMove, move)
  plot.js_on_event(Tap, tap)
  # The second of two quick clicks is no tap, even at another place.
  plot.js_on_event(DoubleTap, tap)
  models = {"plot": plot, "source": source, "points": drawn, "filter": shown}
  ready = CustomJS(
    args=models, code="window.explorer.start({ plot, source, points, filter })"
  )
  document = Document()
  document.add_root(plot)
  document.js_on_event(DocumentReady, ready)
  return document

"""Saving: small files, whole files, and no display."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from spherejax import plotting


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
  run = subprocess.run(
    [sys.executable, "-c", code],
    capture_output=True,
    text=True,
    check=True,
    env={"PATH": "", "JAX_PLATFORMS": "cpu", "HOME": str(tmp_path)},
  )
  assert run.stdout.split() == ["False", "False"]


def test_photographs_have_all_colours_and_lines_a_palette_or_text(
  noisy_figure, tmp_path
):
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
    Image.open(tmp_path / "all.png") as every_colour,
  ):
    assert image.mode == "P"
    pixels, expected = (
      np.asarray(x.convert("RGB"), int) for x in (image, every_colour)
    )
  assert np.abs(pixels - expected).max() < 20  # 51 under a median cut

"""Features of a set of images, computed once and stored in a file."""

import json
import os
import pathlib
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import tqdm

from spherejax import _checks, data
from spherejax.training import _manifest

_PART = 16  # batches between two updates of the manifest


def keep_features(
  path: str | os.PathLike[str],
  function: Callable[[np.ndarray], Any],
  images: data.Images,
  *,
  made_with: Mapping[str, Any],
  batch_size: int = 64,
  workers: int = 0,
  progress: bool = True,
) -> np.memmap:
  """Maps a set of images through a network, and stores the features for later calls.

  A manifest beside the file, `NAME.json` of `NAME.npy`, records its inputs and
  progress. A stopped call resumes where the manifest ends. A call that finds a complete
  file computes nothing. A file with other inputs is refused.

  Args:
    path: the file, ending in `.npy`; its folder must exist.
    function: maps uint8 [batch_size, height, width, channels] to floating [batch_size,
      ...]. The last batch is padded, so that one shape is compiled.
    images: in memory or lazy; all of one size. They are read ahead by threads.
    made_with: everything the features depend on, by name: JSON values, and trees of
      arrays (a network's variables), of which a checksum is stored. The number of
      images, their labels, the names of the classes and the pixels of images in memory
      are always compared.
    batch_size: static.
    workers: static. Processes that read, as in `data.pipeline`.
    progress: True shows a progress bar.

  Returns:
    float16 [images, ...], memory-mapped and read-only, in the order of the images.

  Raises:
    TypeError: an argument of another type; made_with has a value that is neither JSON
      nor an array; the features are not floating.
    ValueError: the file was made with something else (the message names what differs
      and both values), is shorter than its manifest states, or has no manifest; path
      does not end in `.npy`; features that float16 does not hold, or of another shape.
    FileNotFoundError: the folder of `path` is missing.

  Cost: one reading of the remaining images. float16 keeps three digits at half the
  size.

  Source: own.

  Example:
    >>> import pathlib, tempfile
    >>> digits = spherejax.data.load_digits()[:100]
    >>> features = spherejax.training.keep_features(
    ...   pathlib.Path(tempfile.mkdtemp()) / "digits.npy",
    ...   lambda pixels: pixels.reshape(len(pixels), -1) / 255,
    ...   digits,
    ...   made_with={"network": "none"},
    ...   progress=False,
    ... )
    >>> features.shape, features.dtype
    ((100, 64), dtype('float16'))
  """
  _checks.path("path", path)
  _checks.function("function", function)
  _checks.instance("images", images, data.Images)
  _checks.mapping("made_with", made_with)
  _checks.count("batch_size", batch_size)
  _checks.count("workers", workers, 0)
  _checks.flag("progress", progress)
  file = pathlib.Path(path)
  if file.suffix != ".npy":
    raise ValueError(f"path must end in .npy, got {os.fspath(path)!r}")
  if not file.parent.is_dir():
    raise FileNotFoundError(
      f"path must be in a folder that exists, got {os.fspath(path)!r}"
    )
  manifest = file.with_suffix(".json")
  described = _described(images, made_with)
  done = _done(file, manifest, described)
  left = len(images) - done
  if left:
    plan = done + data.ordered_plan(left, batch_size=batch_size)
    batches = data.pipeline(images, plan, workers=workers)
    stored = np.lib.format.open_memmap(file, "r+") if done else None
    with tqdm.tqdm(
      total=len(images), initial=done, unit="image", disable=not progress
    ) as bar:
      for step, batch in enumerate(batches, 1):
        rows = _rows(function(batch["image"]), batch_size, done)
        rows = rows[: len(images) - done]
        if stored is None:
          _write(manifest, described | {"done": 0})  # the file is ours from now on
          shape = len(images), *rows.shape[1:]
          stored = np.lib.format.open_memmap(file, "w+", np.float16, shape)
        _checks.shape("features", rows, (len(rows), *stored.shape[1:]), "those before")
        stored[done : done + len(rows)] = rows
        done += len(rows)
        bar.update(len(rows))
        if step % _PART == 0 or done == len(images):
          stored.flush()
          _write(manifest, described | {"done": done})
  return np.lib.format.open_memmap(file, "r")


def _rows(features: Any, batch_size: int, first: int) -> np.ndarray:
  """Checked features of a batch in half precision."""
  rows = _checks.host("features", features)
  _checks.batched("features", rows)
  _checks.expect("features", rows, "floating")
  if len(rows) != batch_size:
    raise ValueError(f"function must give {batch_size} rows, got {len(rows)}")
  with np.errstate(over="ignore"):
    half = rows.astype(np.float16)
  wrong = ~np.isfinite(half).all(axis=tuple(range(1, half.ndim)))
  if wrong.any():
    raise ValueError(
      "function must give features that float16 holds, got others for image"
      f" {first + wrong.argmax()}"
    )
  return half


def _described(images: data.Images, made_with: Mapping[str, Any]) -> dict[str, Any]:
  """Describes everything the features depend on, as JSON holds it."""
  of_images: dict[str, Any] = {
    "number of images": len(images),
    "labels": _manifest.digest(images.labels),
    "names of classes": _manifest.digest(
      # Names of folders may hold bytes that are not UTF-8.
      np.frombuffer(
        "\0".join(images.label_names).encode(errors="surrogatepass"), np.uint8
      )
    ),
  }
  if isinstance(images.images, np.ndarray):
    of_images["pixels"] = _manifest.digest(images.images)
  of_network = {name: _words(name, value) for name, value in made_with.items()}
  return {"images": of_images, "made with": of_network}


def _words(name: str, value: Any) -> Any:
  leaves = jax.tree.leaves(value)
  if any(isinstance(x, jax.Array | np.ndarray) for x in leaves):
    if odd := [x for x in leaves if not hasattr(x, "dtype")]:
      raise TypeError(
        f"made_with must hold JSON or arrays, got {name}: {reprlib.repr(odd[0])}"
        " beside arrays"
      )
    return _manifest.digest(value)
  try:
    return json.loads(json.dumps(value, allow_nan=False))
  except (TypeError, ValueError) as error:
    raise TypeError(
      f"made_with must hold JSON or arrays, got {name}: {error}"
    ) from error


def _done(file: pathlib.Path, manifest: pathlib.Path, now: dict[str, Any]) -> int:
  """Number of stored rows; raises if they were made with other inputs."""
  if not manifest.exists():
    if file.exists():
      raise ValueError(
        f"{file} has no manifest {manifest.name}; path must be new, or delete the file"
      )
    return 0
  try:
    before = json.loads(manifest.read_text())
    done = before.pop("done")
    if done:  # at 0 the file may be incomplete
      stored = np.lib.format.open_memmap(file, "r")
      held = len(stored)
      if stored.dtype != np.float16:
        raise ValueError(f"it holds {stored.dtype}, not float16")
      if not 0 < done <= held == before["images"]["number of images"]:
        raise ValueError(f"{held} rows, {done} of them done")
  except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f"{file} is not what {manifest.name} says ({error}); delete both"
    ) from error
  for kind, current in now.items():
    old = before.get(kind, {})
    for name in sorted(old.keys() | current.keys()):
      was, is_now = (
        {name: side[name]} if name in side else {} for side in (old, current)
      )
      if was != is_now:
        raise ValueError(
          f"{file} was made with {was or 'no ' + name}, not {is_now or 'none'};"
          " choose another path, or delete it"
        )
  return done


def _write(path: pathlib.Path, content: dict[str, Any]) -> None:
  temporary = path.with_name(f"{path.name}.partial")
  temporary.write_text(json.dumps(content, indent=1))
  temporary.replace(path)

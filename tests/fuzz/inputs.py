"""Damaged files, and what every reader owes the one who gives it such a file.

Any input gives an object or one of the documented errors, whose message names it. No
reader runs what a file holds, opens anything for writing, or takes memory for sizes
that a file merely claims. `FUZZ_EXAMPLES=20000 pytest -n 0 tests/fuzz` searches longer.
"""

import datetime
import functools
import io
import json
import os
import re
import struct
import sys
import tracemalloc
import warnings
import zipfile

import hypothesis
import hypothesis.strategies as st
import numpy as np
from hypothesis.extra import numpy as arrays_of

_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
_MEBIBYTE = 1 << 20
# Audit events of programs that are started, code that is fetched and files written.
_OF_OS = "exec", "fork", "posix_spawn", "remove", "rename", "system"
_STARTS = {f"os.{event}" for event in _OF_OS}
_STARTS |= {"pickle.find_class", "socket.connect", "subprocess.Popen"}
JSON = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
  lambda below: st.lists(below, max_size=3)
  | st.dictionaries(st.text(max_size=5), below, max_size=3),
  max_leaves=8,
)  # fmt: skip
ARRAYS = arrays_of.arrays(
  arrays_of.scalar_dtypes() | arrays_of.unicode_string_dtypes(max_len=4),
  arrays_of.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=3),
)
_watching = False
_seen: list[str] = []


def _watch(event, arguments):
  if not _watching:
    return
  writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
  if writes or event in _STARTS:
    _seen.append(f"{event} {arguments}")


sys.addaudithook(_watch)


def search(examples, *drawn, **named):
  """Decorates a test of drawn things: the same ones, unless more are asked for."""
  settings = hypothesis.settings(
    max_examples=_EXAMPLES or examples,
    derandomize=not _EXAMPLES,
    database=None,
    deadline=datetime.timedelta(seconds=10),  # for hangs, on a busy machine too
    suppress_health_check=list(hypothesis.HealthCheck),
  )
  return lambda test: settings(hypothesis.given(*drawn, **named)(test))


def examples(*contents):
  """Decorates a test of one thing that is drawn: with these, whatever is drawn."""

  def decorate(test):
    return functools.reduce(lambda test, x: hypothesis.example(x)(test), contents, test)

  return decorate


def attempt(named, read, *arguments, errors=ValueError, **options):
  """Returns the result, or None after an expected error, which has to match `named`."""
  global _watching
  _seen.clear()
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Pillow, on files that it then refuses
    _watching = True
    try:
      return read(*arguments, **options)
    except errors as error:
      message = str(error)
    finally:
      _watching = False
      assert not _seen
  assert re.search(named, message), message
  return None


def attempt_within(size, named, read, *arguments, **options):
  """Attempts to read; memory has to stay within a multiple of the file's size."""
  tracemalloc.start()
  try:
    return attempt(named, read, *arguments, **options)
  finally:
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 * size + 4 * _MEBIBYTE


@st.composite
def damaged(draw, *files):
  """One of the files with a few places cut out, repeated, replaced or exchanged."""
  content = draw(st.sampled_from(files))
  for _ in range(draw(st.integers(1, 3))):
    start, end = sorted(draw(st.integers(0, len(content))) for _ in range(2))
    change = draw(st.sampled_from(["cut", "end", "bit", "put", "repeat", "splice"]))
    before, middle, after = content[:start], content[start:end], content[end:]
    if change == "cut":
      middle = content[:0]
    elif change == "end":
      after = content[:0]
    elif change == "bit" and isinstance(content, bytes) and middle:
      middle = bytes([middle[0] ^ 1 << draw(st.integers(0, 7))]) + middle[1:]
    elif change in ("bit", "put"):
      middle = draw(st.binary(max_size=9) if isinstance(content, bytes) else st.text())
    elif change == "repeat":
      middle *= draw(st.integers(2, 5))
    else:
      after = draw(st.sampled_from(files))[end:]
    content = before + middle + after
  return content


def places(content, path=()):
  """Ways to everything within what JSON holds."""
  yield path
  if isinstance(content, (dict, list)):
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, below in items:
      yield from places(below, (*path, key))


def exchanged(content, path, value):
  if not path:
    return value
  changed = content.copy()
  changed[path[0]] = exchanged(content[path[0]], path[1:], value)
  return changed


def changed(record):
  """Anything, a damaged JSON file, or one in which something else stands somewhere."""
  content = json.loads(record)
  return (
    st.binary()
    | damaged(record)
    | st.tuples(st.sampled_from([*places(content)]), JSON).map(
      lambda change: json.dumps(exchanged(content, *change)).encode()
    )
  )


class Attack:
  def __reduce__(self):
    return exec, ("import os; os.system('true')",)


def array_bytes(array):
  file = io.BytesIO()
  np.save(file, array, allow_pickle=False)
  return file.getvalue()


def array_file(header, content=b""):
  text = repr(header).encode()
  text += b" " * (-(len(text) + 11) % 64) + b"\n"
  return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def zip_file(entries, stored=zipfile.ZIP_STORED):
  file = io.BytesIO()
  with zipfile.ZipFile(file, "w") as written:
    for name, content in entries.items():
      # With the same date every time.
      written.writestr(zipfile.ZipInfo(name), content, stored)
  return file.getvalue()


def archive(stored=zipfile.ZIP_STORED, **entries):
  return zip_file({f"{name}.npy": content for name, content in entries.items()}, stored)


def header(shape, dtype="<f8"):
  return {"descr": dtype, "fortran_order": False, "shape": shape}

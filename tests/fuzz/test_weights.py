"""Weight files: arrays or a ValueError that names the file, and nothing of it runs."""

import json
import pickle
import struct
import zipfile

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import safetensors.numpy

from spherejax import models
from tests.fuzz import inputs

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("unchecked")]
VALUES = np.arange(12, dtype="<f4")
LENGTHS = st.sampled_from([0, 1, 3, 255, 2**20, 2**31 - 1, 2**32 - 1, 2**62, 2**64 - 1])


def text(value):
  return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def several(*parts):
  return b"(" + b"".join(parts) + b"t"


def found(path):
  return b"c" + path.replace(" ", "\n").encode() + b"\n"


ORDERED = found("collections OrderedDict") + b")R"
STORAGE = several(
  text("storage"), found("torch FloatStorage"), text("0"), text("cpu"), b"K\x0c"
)


def tensor(shape=b"K\x03K\x04\x86", strides=b"K\x04K\x01\x86", more=b"", version=b"2"):
  rebuild = found("torch._utils _rebuild_tensor_v2").replace(b"2", version)
  rest = b"K\x00" + shape + strides + b"\x89" + ORDERED + more
  return rebuild + several(STORAGE + b"Q", rest) + b"R"


NEGATED = tensor(more=b"}" + text("neg") + b"\x88s")
TYPED = tensor(more=found("torch uint16"), version=b"3")
GOOD = ORDERED + b"(" + text("w") + tensor() + text("b") + tensor() + b"u"


def attack(path, *arguments):
  """What the error says, and a call that Python's pickle would make."""
  return f"asks for {path.replace(' ', '.')}", found(path) + several(*arguments) + b"R"


ATTACKS = [
  attack("posix system", text("true")),
  attack("builtins eval", text("__import__('os').system('true')")),
  attack("builtins exec", text("open('canary', 'w')")),
  attack("builtins getattr", ORDERED, text("clear")),
  attack("builtins __import__", text("antigravity")),
  attack("numpy ndarray", b"J\xff\xff\xff\x7f"),
  attack("subprocess Popen", text("true")),
  attack("torch load", text("other.pt")),
  attack("collections OrderedDict.fromkeys", ORDERED),
  attack("numpy.core.multiarray scalar"),
  ("asks for torch.nn.Linear", found("torch.nn Linear") + b")\x81"),
  ("calls FloatStorage", found("torch FloatStorage") + b")R"),
  ("changes _rebuild_parameter", found("torch._utils _rebuild_parameter") + b"}b"),
  ("asks for os.system", text("os") + text("system") + b"\x93"),
  ("asks for posix.system", b"(" + text("true") + b"iposix\nsystem\n"),
  ("asks for posix.system", b"(" + found("posix system") + text("true") + b"o"),
  ("has the opcode EXT1", b"\x82\x01"),
]
HOSTILE = [content for _, content in ATTACKS]


def repeated(depth, start=b")"):
  """A tuple of two tuples of two tuples, which takes 2**depth steps to hash or show."""
  steps = (b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1, 0x30])
           for i in range(depth))  # fmt: skip
  return start + b"q\x000" + b"".join(steps) + b"h" + bytes([depth])


TOWER = repeated(60)
BOMBS = [
  b"}" + TOWER + b"Ns",  # hashed
  TOWER + b"Q",  # shown
  several(text("storage"), found("torch FloatStorage"), TOWER, b"N", b"K\x01") + b"Q",
  several(text("storage"), found("torch FloatStorage"), text("0"), b"N", TOWER) + b"Q",
  tensor(shape=TOWER, strides=TOWER),
  tensor(shape=b"(" + b"J\xff\xff\xff\x7f" * 5000 + b"t", strides=b")"),
  tensor(shape=b"(\x8a\x08" + b"\x7f" * 8 + b"q\x00" + b"h\x00" * 5000 + b"t"),
  tensor(shape=b"J\xff\xff\xff\x7f\x85", strides=b"K\x00\x85"),
  b"}r\xff\xff\xff\x07",  # a place in the memo far beyond the others
  b"}p134217727\n",
  b"\x96" + struct.pack("<Q", 1 << 30),
  b"\x8e" + struct.pack("<Q", 1 << 30),
  b"\x95" + struct.pack("<Q", 1 << 62) + b"}",
  b"\x8b" + struct.pack("<I", (1 << 31) - 1),
  b"(" * 5000,
  b"]" * 5000 + b"a" * 4999,
  b"]q\x00" + b"h\x00a" * 1000,  # within itself
  b"}" + text("x" * 70_000) + b"Ns",
  b"I" + b"9" * 5000 + b"\n",
  found("collections OrderedDict") + b"]q\x00(" + b"K\x01K\x02\x86" * 50 + b"e\x85R",
]


def torch_file(content, entries=None, stored=zipfile.ZIP_STORED):
  entries = {"data.pkl": content, "data/0": VALUES.tobytes()} | (entries or {})
  return inputs.zip_file({f"archive/{name}": x for name, x in entries.items()}, stored)


MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
STARTS = MAGIC + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)


def old_file(content):
  """The format before torch 1.6: addresses of storages have one entry more."""
  listed = pickle.dumps(["0"], 2) + struct.pack("<Q", len(VALUES)) + VALUES.tobytes()
  return STARTS + content.replace(b"tQ", b"NtQ") + listed


FORMATS = pytest.mark.parametrize("written", [torch_file, old_file])


def safe_file(header):
  encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
  encoded += b" " * (-len(encoded) % 8)
  return struct.pack("<Q", len(encoded)) + encoded + VALUES.tobytes()


def entry(dtype="F32", shape=(3, 4), ends=(0, 48)):
  return {"dtype": dtype, "shape": list(shape), "data_offsets": list(ends)}


WHOLE = torch_file(b"\x80\x02" + GOOD + b".")
SAFE = safetensors.numpy.save({"w": VALUES.reshape(3, 4), "b": VALUES})
OLD = old_file(b"\x80\x02" + GOOD + b".")
# The length of its header is how a zip file begins.
_ENTRY = json.dumps({"w": entry()}).encode()
SAFE_AS_ZIP = safe_file(_ENTRY.ljust(int.from_bytes(b"PK", "little")))


def attempt(folder, content, named=r"weights\.bin"):
  """The weights of a file of this content, each of them read wholly."""
  path = folder / "weights.bin"
  path.write_bytes(content)
  weights = inputs.attempt_within(len(content), named, models.read_weights, path)
  if weights is not None:
    assert weights
    for name, array in weights.items():
      assert isinstance(name, str)
      assert array.nbytes <= len(content)
      np.array(array)  # touches all of its memory
  return weights


def test_the_whole_files_are_read(tmp_path):
  assert SAFE_AS_ZIP.startswith(b"PK")
  for content in (WHOLE, SAFE, OLD, SAFE_AS_ZIP):
    weights = attempt(tmp_path, content)
    assert weights is not None
    np.testing.assert_array_equal(weights["w"], VALUES.reshape(3, 4))


@inputs.search(
  200,
  st.binary()
  | st.binary().map(lambda rest: b"PK\x03\x04" + rest)
  | st.binary().map(lambda rest: STARTS + rest)
  | st.binary().map(safe_file)
  | inputs.damaged(WHOLE, SAFE, OLD),
)
@hypothesis.example(torch_file(b"\x80\x02" + GOOD + b".", stored=zipfile.ZIP_DEFLATED))
@hypothesis.example(
  torch_file(b"\x80\x02}.", {"byteorder": b"\0" * 10**7}, zipfile.ZIP_DEFLATED)
)
def test_damaged_files(tmp_path, content):
  attempt(tmp_path, content)


CODES = [bytes([code]) for code in b"()]}.0Q2Nabdehqrstu\x85\x86\x87\x93\x94"]
PIECES = st.binary(max_size=3) | st.sampled_from(
  [*CODES, tensor(), STORAGE, ORDERED, GOOD, text("state_dict"), text("w"), *HOSTILE,
   NEGATED, TYPED, NEGATED.replace(text("neg"), text("conj")), b"}", b"\x88"]
)  # fmt: skip


@FORMATS
@inputs.search(
  300,
  content=st.lists(PIECES, max_size=12).map(b"".join)
  | inputs.damaged(GOOD, b"}" + text("w") + NEGATED + b"s", TYPED, *HOSTILE)
  | st.tuples(st.sampled_from([b"\x96", b"\x8e", b"\x8d", b"\x95"]), LENGTHS).map(
    lambda pair: pair[0] + struct.pack("<Q", pair[1])
  ),
)
def test_pickles(tmp_path, written, content):
  attempt(tmp_path, written(b"\x80\x02" + content + b"."))


@FORMATS
@pytest.mark.parametrize(("said", "content"), ATTACKS, ids=range(len(ATTACKS)))
def test_pickles_that_run_something(tmp_path, said, content, written):
  """Alone, before and within others, and within the address of a storage."""
  for start, end in (
    (b"", b""),
    (GOOD, b"0"),
    (b"}" + text("w"), b"s" + GOOD),
    (b"(" + text("storage"), text("0") + text("cpu") + b"K\x02tQ"),
  ):
    pickled = b"\x80\x02" + start + content + end + b"."
    named = rf"weights\.bin is refused: .*{said}"
    assert attempt(tmp_path, written(pickled), named) is None


@FORMATS
@pytest.mark.parametrize("content", BOMBS, ids=range(len(BOMBS)))
def test_pickles_that_fill_memory_or_never_end(tmp_path, content, written):
  assert attempt(tmp_path, written(b"\x80\x02" + content + b".")) is None
  attempt(tmp_path, written(b"\x80\x02" + content + b"0" + GOOD + b"."))


@inputs.search(100, LENGTHS, st.sampled_from([b"K\x0c", b"J\x0b\0\0\0", b"N", b")"]))
def test_sizes_that_old_files_claim(tmp_path, length, count):
  """Before a storage, and in its address."""
  content = b"\x80\x02" + GOOD.replace(b"K\x0ctQ", count + b"tQ") + b"."
  whole = old_file(content)
  before, _, after = whole.rpartition(struct.pack("<Q", len(VALUES)))
  attempt(tmp_path, before + struct.pack("<Q", length) + after)


@inputs.search(
  100, LENGTHS.filter(lambda length: length < 2**32), st.sampled_from([18, 20, 24, 42])
)
def test_sizes_that_zip_entries_claim(tmp_path, length, place):
  """Compressed and whole size, and the place, as the directory at the end has them."""
  at = WHOLE.rindex(b"PK\x01\x02") + place
  attempt(tmp_path, WHOLE[:at] + struct.pack("<I", length) + WHOLE[at + 4 :])


def test_entries_that_share_their_bytes(tmp_path):
  """One storage listed a hundred times, each time as another one."""
  count, size = 100, 1 << 20
  named = [text(f"w{i}") + tensor().replace(text("0"), text(f"{i:03}"))
           for i in range(count)]  # fmt: skip
  pickled = b"\x80\x02}(" + b"".join(named) + b"u."
  whole = torch_file(pickled, {"data/000": b"\0" * size})
  at = whole.rindex(b"PK\x01\x02")
  end = whole.index(b"PK\x05\x06")
  listed = whole[at:end]
  names = (b"data/%03d" % i for i in range(1, count))
  copies = b"".join(listed.replace(b"data/000", name) for name in names)
  tail = bytearray(whole[end:])
  first = struct.unpack_from("<I", tail, 16)[0]
  struct.pack_into(
    "<HHII", tail, 8, 2 + count, 2 + count, end + len(copies) - first, first
  )
  assert attempt(tmp_path, whole[:end] + copies + bytes(tail)) is None


def test_numbers_are_negated_once_for_all_tensors(tmp_path):
  """Else each of a few bytes would take the memory of its storage."""
  count = 1 << 20
  many = NEGATED.replace(b"K\x0c", b"J" + struct.pack("<I", count))
  pickled = b"".join(text(f"w{i}") + many for i in range(300))
  numbers = np.ones(count, "<f4").tobytes()
  whole = torch_file(b"\x80\x02}(" + pickled + b"u.", {"data/0": numbers})
  path = tmp_path / "weights.bin"
  path.write_bytes(whole)
  size, read = len(whole) // 30, models.read_weights
  weights = inputs.attempt_within(size, "", read, path, errors=())
  assert len(weights) == 300
  np.testing.assert_array_equal(weights["w7"], np.full((3, 4), -1))


DTYPES = ("F32", "BOOL", "F16", "BF16", "I64", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0")
SIZES = st.integers(-1, 12) | st.sampled_from([2**31, 2**62, 2**64, 1.5, "3", None])
ENTRIES = st.builds(
  entry,
  st.sampled_from([*DTYPES, "F4", "C64", "X", 3]),
  st.lists(SIZES, max_size=4),
  st.lists(SIZES, min_size=2, max_size=2) | st.just([0, 48]),
)


@inputs.search(
  200,
  st.dictionaries(st.text(max_size=3) | st.just("__metadata__"), ENTRIES, max_size=3),
)
@inputs.examples({"a": entry("F8_E4M3", [48])}, {"a": entry("F8_E8M0", [48])})
@inputs.examples({"a": entry(shape=[0, 1 << 62], ends=[0, 0])})
@inputs.examples({"a": entry(shape=[1] * 70 + [12])}, {"a": entry(), "b": entry()})
def test_safetensors_headers(tmp_path, header):
  attempt(tmp_path, safe_file(header))


@pytest.mark.parametrize(
  "header",
  [
    b'{"a":' * 5000,
    b"[" * 5000,
    b'{"a":1,"a":2}',
    b'{"\xff":1}',
    b'{"__metadata__":{"a":"' + b"x" * 10**6 + b'"}}',
  ],
)
def test_hostile_safetensors_headers(tmp_path, header):
  assert attempt(tmp_path, safe_file(header)) is None


def test_the_canary_sings(tmp_path):
  """The watch sees its events when a file is read the usual way."""
  for content in (HOSTILE[0], HOSTILE[2].replace(b"canary", b"/dev/null")):
    with pytest.raises(AssertionError):
      inputs.attempt("", pickle.loads, b"\x80\x02" + content + b".", errors=())
  with pytest.raises(AssertionError):
    inputs.attempt_within(1, "", bytes, 10**7, errors=())

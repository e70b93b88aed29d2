"""Readers of weights and class trees: a whole object or one error; no code runs."""

import collections
import csv
import io
import itertools
import json
import pickle
import struct
import zipfile

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import safetensors.numpy

from spherejax import hierarchy, models
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
  [b'{"a":' * 5000, b"[" * 5000, b'{"a":1,"a":2}', b'{"\xff":1}',
   b'{"__metadata__":{"a":"' + b"x" * 10**6 + b'"}}'],
)  # fmt: skip
def test_hostile_safetensors_headers(tmp_path, header):
  assert attempt(tmp_path, safe_file(header)) is None


def test_the_canary_sings(tmp_path):
  """The watch sees its events when a file is read the usual way."""
  for content in (HOSTILE[0], HOSTILE[2].replace(b"canary", b"/dev/null")):
    with pytest.raises(AssertionError):
      inputs.attempt("", pickle.loads, b"\x80\x02" + content + b".", errors=())
  with pytest.raises(AssertionError):
    inputs.attempt_within(1, "", bytes, 10**7, errors=())


NAMED = "newick|tree|leaf|class|node|parent|name|path|below|root"
# Few names, so that they meet; and those that separate, quote and end things.
NAMES = st.text("ab", max_size=2) | st.sampled_from(
  ["", "root", "'", "a b", "(", "x" * 3000, "é\n", "\0", "\x1c", "\x85", "[]", "c,d;:"]
)
SIGNS = st.text("(),:;'[] ab1.e-\n\0", max_size=30)
DEEP = 5000  # more than Python's calls


def check(tree):
  """Checks the promises that every reader makes of its tree."""
  count = len(tree.names)
  assert count == len(tree.parents) == len(tree.lengths) > 0
  assert tree.parents[0] == -1
  assert ((tree.parents[1:] >= 0) & (tree.parents[1:] < np.arange(1, count))).all()
  leaves = set(range(count)) - set(tree.parents.tolist())
  assert leaves <= set(tree.classes.tolist())
  assert len(set(tree.classes.tolist())) == len(tree.classes)
  assert all(tree.names[leaf] for leaf in leaves)
  assert np.isfinite(tree.lengths).all()
  assert hierarchy.depths(tree).max() == hierarchy.heights(tree)[0]
  text = hierarchy.to_newick(tree)
  if len({tree.names[leaf] for leaf in leaves}) < len(leaves):  # told apart by paths
    with pytest.raises(ValueError, match="leaves must have different names"):
      hierarchy.from_newick(text)
    return
  again = hierarchy.from_newick(text)
  assert hierarchy.to_newick(again) == text
  nodes = zip(again.names, again.parents.tolist(), again.lengths.tolist(), strict=True)
  assert list(nodes) == by_parents(tree)


def tree_of(read, *arguments, named=NAMED, **options):
  """The tree, checked, that a reader makes of its arguments; None after an error."""
  tree = inputs.attempt(named, read, *arguments, **options)
  if tree is not None:
    check(tree)
  return tree


def by_parents(tree):
  """Names, parents and lengths of the nodes, those of a depth in their parents' order.

  The format tells the order of siblings, but not that of cousins.
  """
  below = [[] for _ in tree.names]
  for node in range(1, len(tree.names)):
    below[tree.parents[node]].append(node)
  order = [0]
  for node in order:  # which grows
    order += below[node]
  place = {node: number for number, node in enumerate(order)}
  parents, lengths = tree.parents.tolist(), tree.lengths.tolist()
  return [(tree.names[x], place.get(parents[x], -1), lengths[x]) for x in order]


@inputs.search(
  150,
  st.text()
  | SIGNS
  | inputs.damaged("((cat:1,'a''b':2)animal:0.5,car:3e-1)r;", "((a,b)[x,y],(c)d);"),
)
@inputs.examples("((a),(a));", "(a:nan,b:1);", "(a:1e999,b:1);", "(a,b)r:x;")
@inputs.examples("(" * DEEP, "'" * (2 * DEEP + 1), "[" * DEEP, "[a]" * DEEP + "'")
def test_newick(text):
  tree_of(hierarchy.from_newick, text, named="newick|leaves must have different")


@inputs.search(
  100,
  st.sampled_from(["((a,b)c,d)r;", "(a,(a)b);", "((a,b)a,c);"]),
  st.lists(NAMES, max_size=5) | st.permutations(["a", "b", "d", "c"]),
)
def test_classes(text, classes):
  tree = inputs.attempt(NAMED, hierarchy.from_newick, text, classes=classes)
  if tree is not None:
    assert list(tree.class_names) == classes


def cyclic():
  tree = {"a": {"b": None}}
  tree["a"]["c"] = tree
  return tree


def names_in(branch):
  if isinstance(branch, dict):
    return len(branch) + sum(map(names_in, branch.values()))
  return len(branch or ())


ANYTHING = st.recursive(
  st.none() | st.booleans() | st.integers(0, 2) | NAMES | st.lists(NAMES, max_size=3),
  lambda below: (
    st.dictionaries(NAMES | st.integers(0, 1), below, max_size=3)
    | st.lists(below, max_size=3)
  ),
  max_leaves=8,
)
MAPPINGS = st.recursive(
  st.none() | st.lists(NAMES, max_size=3),
  lambda below: st.dictionaries(NAMES, below, max_size=3),
  max_leaves=8,
)


@inputs.search(150, MAPPINGS | ANYTHING)
@inputs.examples({"a": 3}, {"a": False}, {"a": [["x"]]}, {"a": [{"b": None}]})
@inputs.examples({1: None}, {"": None}, {"a": b"bc"}, {"a": {"x", "y"}}, cyclic())
def test_mapping(branch):
  tree = tree_of(hierarchy.from_mapping, branch)
  if tree is not None:
    assert len(tree.names) == 1 + names_in(branch)


@inputs.search(100, st.lists(NAMES | st.lists(NAMES, max_size=4), max_size=5), NAMES)
@hypothesis.example([["a"]], "")
def test_paths(paths, separator):
  read, named = hierarchy.from_paths, f"{NAMED}|separator"
  tree = tree_of(read, paths, separator=separator, named=named)
  parts = [
    tuple(path.split(separator or None) if isinstance(path, str) else path)
    for path in paths
  ]
  good = bool(separator) and len(parts) == len(set(parts)) > 0
  assert (tree is not None) == (good and all(path and all(path) for path in parts))
  if tree is not None:
    assert tree.class_names == tuple(path[-1] for path in parts)


def is_tree(edges):
  """Rows of child and parent: one root, and all below it."""
  children = collections.defaultdict(list)
  for child, parent in edges:
    children[parent].append(child)
  found = list(children[""])
  for node in found:  # which grows
    found += children[node] if len(found) <= len(edges) else []
  return (
    len(children[""]) == 1
    and "" not in found
    and sorted(found) == sorted({child for child, _ in edges})
    and len(found) == len(edges)
  )


NEAR = st.sampled_from([("r", ""), ("a", "r"), ("b", "a"), ("c", "r"), ("a", "b")])
EDGES = st.lists(st.tuples(NAMES, NAMES), max_size=5) | st.lists(NEAR, max_size=5)


@inputs.search(150, EDGES)
def test_edges(edges):
  tree = tree_of(hierarchy.from_edges, edges)
  assert (tree is not None) == is_tree(edges)


@inputs.search(
  100, st.lists(st.integers(-2, 5), max_size=6), st.none() | st.lists(NAMES)
)
@hypothesis.example([-1, 2**70], None)
@hypothesis.example([-1, 0, 3, 0, 1], None)
@hypothesis.example([-1], [""])
def test_parents(parents, names):
  errors = ValueError, TypeError
  tree = tree_of(hierarchy.from_parents, parents, names=names, errors=errors)
  if tree is not None:
    edges = [(f"{node}", f"{up}" if up >= 0 else "") for node, up in enumerate(parents)]
    assert is_tree(edges)


TREE = b'child,parent\nlife,\n"a ""b""",life\r\ndog,life\n'


@inputs.search(150, st.binary() | inputs.damaged(TREE, b"child,parent\na,\nb,a\nc,b\n"))
@inputs.examples(b"child,parent\n\xff,\n", b"child,parent\n" + b"a" * 200_000 + b",\n")
@inputs.examples(b"child,parent\n\0,\n", b"child,parent\n\0,\n\n\na,\0\n")
@inputs.examples(b"\xef\xbb\xbf" + TREE, TREE.decode().encode("utf-16"))
def test_csv(tmp_path, content):
  path = tmp_path / "tree.csv"
  path.write_bytes(content)
  tree = tree_of(hierarchy.from_csv, path, named=r"tree\.csv|parent|node|tree must")
  if tree is not None:
    rows = itertools.islice(csv.reader(io.StringIO(content.decode(), "")), 1, None)
    assert sorted(tree.names) == sorted(row[0] for row in rows if row)


def test_deep_trees():
  nested = None
  for _ in range(DEEP):
    nested = {"a": nested}
  chain = [(f"{i}", f"{i + 1}") for i in range(DEEP)]
  for read in (
    lambda: hierarchy.from_newick("(" * DEEP + "a" + ")" * DEEP + ";"),
    lambda: hierarchy.from_mapping(nested),
    lambda: hierarchy.from_paths(["a/" * (DEEP - 1) + "a"]),
    lambda: hierarchy.from_edges([*chain, (f"{DEEP}", "")]),
    lambda: hierarchy.from_parents([*range(1, DEEP + 1), -1]),
  ):
    tree = inputs.attempt_within(DEEP, "", read, errors=())
    check(tree)
    assert hierarchy.depths(tree)[-1] == DEEP
  ring = [*chain, (f"{DEEP}", "0")]
  assert inputs.attempt("cycle", hierarchy.from_edges, ring) is None

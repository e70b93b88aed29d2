"""Files of weights, torch's written here opcode by opcode: good, damaged, hostile."""

import json
import pickle
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from spherejax import models


def number(value):
  return b"J" + value.to_bytes(4, "little", signed=True)


def text(value):
  return b"X" + len(value).to_bytes(4, "little") + value.encode()


def found(module, name):
  return f"c{module}\n{name}\n".encode()


def several(*parts):
  return b"(" + b"".join(parts) + b"t"


def called(function, *arguments):
  return function + several(*arguments) + b"R"


def mapping(start=b"}", **parts):
  pairs = b"".join(text(name) + value for name, value in parts.items())
  return start + b"(" + pairs + b"u"


TRUE, FALSE = b"\x88", b"\x89"
ORDERED = called(found("collections", "OrderedDict"))
REBUILD = found("torch._utils", "_rebuild_tensor_v2")


def storage(key="0", kind="FloatStorage", count=12, tag="storage"):
  kind = found("torch", kind)
  return several(text(tag), kind, text(key), text("cpu"), number(count)) + b"Q"


def tensor(shape, strides, offset=0, memory=None, dtype=None, **metadata):
  shapes = (several(*map(number, numbers)) for numbers in (shape, strides))
  memory = storage() if memory is None else memory
  rest = [] if dtype is None else [found("torch", dtype)]
  if metadata:
    rest.append(mapping(**metadata))
  rebuild = REBUILD if dtype is None else REBUILD.replace(b"v2", b"v3")
  return called(rebuild, memory, number(offset), *shapes, FALSE, ORDERED, *rest)


def untyped(key, size):
  kind = found("torch.storage", "UntypedStorage")
  return several(text("storage"), kind, text(key), text("cpu"), number(size)) + b"Q"


TWELVE = {"0": np.arange(12, dtype="<f4")}


def write(path, content, entries=TWELVE, compression=zipfile.ZIP_STORED):
  with zipfile.ZipFile(path, "w", compression) as archive:
    archive.writestr("archive/data.pkl", b"\x80\x02" + content + b".")
    for key, data in entries.items():
      place = f"archive/data/{key}" if key.isdigit() else f"archive/{key}"
      archive.writestr(place, data if isinstance(data, bytes) else data.tobytes())
  return path


MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)


def write_old(path, content, entries=TWELVE, keys=None):
  """The format before torch 1.6: addresses of storages have one entry more."""
  pickles = [MAGIC, pickle.dumps(1001, 2), pickle.dumps({"little_endian": True}, 2)]
  pickles.append(b"\x80\x02" + content.replace(b"tQ", b"NtQ") + b".")
  pickles.append(pickle.dumps(list(entries) if keys is None else keys, 2))
  storages = [len(x).to_bytes(8, "little") + x.tobytes() for x in entries.values()]
  path.write_bytes(b"".join(pickles + storages))
  return path


FORMATS = pytest.mark.parametrize("write", [write, write_old])


@pytest.fixture
def file(tmp_path):
  return tmp_path / "weights.pth"


def check(actual, expected):
  """Asserts equal numbers and types."""
  assert set(actual) == set(expected)
  for name, array in expected.items():
    np.testing.assert_array_equal(actual[name], array, strict=True)


@FORMATS
def test_tensors_with_strides_offsets_and_shared_memory(file, write):
  matrix = tensor((3, 4), (4, 1))
  parameter = called(found("torch._utils", "_rebuild_parameter"), matrix, TRUE, ORDERED)
  state = mapping(
    ORDERED,
    matrix=matrix,
    turned=tensor((4, 3), (1, 4)),
    inner=tensor((2, 2), (4, 2), offset=5),
    one=tensor((), (), offset=7),
    none=tensor((0, 3), (3, 1)),
    parameter=parameter,
  )
  # torch hangs its versions on the dictionary.
  write(file, state + mapping(_metadata=ORDERED) + b"b")
  weights = models.read_weights(file)
  base, inner = np.arange(12).reshape(3, 4), [[5, 7], [9, 11]]
  expected = {"matrix": base, "turned": base.T, "inner": inner, "one": 7}
  expected |= {"none": np.zeros((0, 3)), "parameter": base}
  assert list(weights) == list(expected)
  check(weights, {name: np.float32(array) for name, array in expected.items()})
  assert np.shares_memory(weights["matrix"], weights["inner"])
  with pytest.raises(ValueError, match="read-only"):
    weights["matrix"][0] = 0


STORAGES = {
  "DoubleStorage": np.float64,
  "FloatStorage": np.float32,
  "HalfStorage": np.float16,
  "BFloat16Storage": jnp.bfloat16,
  "LongStorage": np.int64,
  "IntStorage": np.int32,
  "BoolStorage": np.bool_,
}
WITHOUT_STORAGE = (
  "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
  "float8_e5m2fnuz",
)  # fmt: skip


@pytest.mark.parametrize("order", ["little", "big"])
def test_types_and_orders_of_bytes(file, order):
  entries, tensors, expected = {"byteorder": order.encode()}, {}, {}
  for place, name in enumerate((*STORAGES, *WITHOUT_STORAGE)):
    key, typed = str(place), name in WITHOUT_STORAGE
    dtype = getattr(jnp, name) if typed else STORAGES[name]
    data = np.array([1, 0, 3, 2]).astype(dtype)
    bits = data.view(f"u{data.itemsize}")
    entries[key] = bits if order == "little" else bits.byteswap()
    memory = untyped(key, data.nbytes) if typed else storage(key, name, 4)
    tensors[name] = tensor((3,), (1,), 1, memory, dtype=name if typed else None)
    expected[name] = data[1:]
  check(models.read_weights(write(file, mapping(**tensors), entries)), expected)


@pytest.mark.parametrize("order", ["little", "big"])
def test_what_torch_put_off_is_done(file, order):
  """Negated and conjugated tensors, whose memory holds the numbers from before."""
  real, counts = np.array([1, -2, 0, 3], np.float32), np.array([1, -2, 2**40])
  whole = np.array([1 + 2j, 3 - 1j], np.complex64)
  swap = (lambda data: data) if order == "little" else np.ndarray.byteswap
  pair = storage("1", "ComplexFloatStorage", 2)
  content = mapping(
    minus=tensor((2,), (2,), 1, storage(count=4), neg=TRUE),
    plus=tensor((4,), (1,), memory=storage(count=4), neg=FALSE, conj=FALSE),
    turned=tensor((2,), (1,), memory=pair, conj=TRUE),
    both=tensor((2,), (1,), memory=pair, conj=TRUE, neg=TRUE),
    plain=tensor((2,), (1,), memory=pair),
    count=tensor((3,), (1,), memory=storage("2", "LongStorage", 3), neg=TRUE),
  )
  entries = {"0": swap(real), "1": swap(whole), "2": swap(counts)}
  entries["byteorder"] = order.encode()
  weights = models.read_weights(write(file, content, entries))
  expected = {"minus": -real[1::2], "plus": real, "plain": whole, "count": -counts}
  check(weights, expected | {"turned": whole.conj(), "both": -whole.conj()})


OTHERS = (
  "_rebuild_qtensor", "_rebuild_sparse_tensor", "_rebuild_sparse_csr_tensor",
  "_rebuild_nested_tensor", "_rebuild_meta_tensor_no_storage",
  "_rebuild_device_tensor_from_numpy", "_rebuild_wrapper_subclass",
  "_rebuild_device_tensor_from_cpu_tensor", "_rebuild_tensor",
)  # fmt: skip


def test_what_is_not_understood_is_refused_by_name(file, unchecked):
  def refused(content, match, entries=TWELVE):
    with pytest.raises(ValueError, match=match):
      models.read_weights(write(file, mapping(weight=content), entries))

  for name in OTHERS:
    content = called(found("torch._utils", name), storage())
    refused(content, rf"asks for torch\._utils\.{name}, which is no plain tensor")
  content = called(found("torch._tensor", "_rebuild_from_type_v2"), REBUILD)
  refused(content, r"asks for torch\._tensor\._rebuild_from_type_v2")
  refused(storage(kind="QInt8Storage"), r"asks for torch\.QInt8Storage")
  refused(tensor((2,), (1,), scale=number(3)), "unknown metadata, {'scale': 3}")
  refused(tensor((2,), (1,), neg=number(1)), "unknown metadata, {'neg': 1}")
  memory = untyped("0", 48)
  refused(tensor((2,), (1,), memory=memory), "tensor without a type")
  refused(tensor((2,), (1,), memory=memory, dtype="complex32"), r"torch\.complex32")
  refused(tensor((2,), (1,), memory=memory, dtype="FloatStorage"), "FloatStorage")
  refused(tensor((7,), (1,), memory=memory, dtype="uint64"), "its storage of 6")
  refused(tensor((2,), (1,), memory=untyped("0", 49)), "has 48 of 49 numbers")
  two = several(
    tensor((2,), (1,)), tensor((2,), (1,), memory=storage(kind="IntStorage"))
  )
  refused(two, "storage 0 has two types, FloatStorage and IntStorage")
  middle = TWELVE | {"byteorder": b"middle"}
  refused(tensor((2,), (1,)), "order of bytes is b'middle'", middle)


def test_attributes_of_a_parameter_change_nothing(file):
  rebuild = found("torch._utils", "_rebuild_parameter_with_state")
  state = mapping(axis=number(3))
  matrix = tensor((3,), (1,), neg=TRUE)
  content = mapping(weight=called(rebuild, matrix, TRUE, ORDERED, state))
  weights = models.read_weights(write(file, content))
  np.testing.assert_array_equal(weights["weight"], [0, -1, -2])


def safe_file(path, dtype, size):
  entry = {"dtype": dtype, "shape": [4], "data_offsets": [0, size]}
  header = json.dumps({"__metadata__": {"format": "pt"}, "weight": entry}).encode()
  path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(range(size)))
  return path


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"])
def test_small_floats_of_safetensors(file, dtype):
  weights = models.read_weights(safe_file(file, dtype, 4))
  bits = np.arange(4, dtype=np.uint8)
  np.testing.assert_array_equal(weights["weight"].view(np.uint8), bits)
  least = 2.0 ** {"F8_E4M3": -9, "F8_E4M3FNUZ": -10, "F8_E5M2": -16}.get(dtype, -17)
  np.testing.assert_array_equal(weights["weight"].astype(float), bits * least)


@pytest.mark.parametrize(("dtype", "size"), [("F4", 2), ("F6_E2M3", 3), ("I4", 2)])
def test_types_of_safetensors_that_numpy_lacks(file, dtype, size):
  with pytest.raises(ValueError, match=dtype):
    models.read_weights(safe_file(file, dtype, size))


@pytest.mark.parametrize("place", ["state_dict", "model", "model_state_dict"])
def test_nested_and_prefixed(file, place):
  inner = mapping(ORDERED, **{"module.fc.bias": tensor((2,), (1,))})
  content = mapping(epoch=number(3), **{place: inner}, optimizer=mapping(lr=number(1)))
  weights = models.read_weights(write(file, content))
  np.testing.assert_array_equal(weights["fc.bias"], [0, 1])
  assert list(weights) == ["fc.bias"]


def test_safetensors(tmp_path):
  weights = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.ones(2, jnp.bfloat16),
    "c": np.array([1, -2], np.int64),
    "d": np.ones(3, np.float16),
  }
  file = tmp_path / "weights.bin"  # what it is called does not matter
  safetensors.numpy.save_file(weights, file)
  check(models.read_weights(file), weights)


def test_without_the_package_safetensors(tmp_path, monkeypatch):
  safetensors.numpy.save_file({"a": np.ones(2)}, tmp_path / "a")
  monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
  with pytest.raises(ImportError, match=r"pip install spherejax\[weights\]"):
    models.read_weights(tmp_path / "a")


@FORMATS
def test_what_is_allowed_cannot_be_misused(file, unchecked, write):
  good = tensor((2, 2), (2, 1))

  def refused(content, match):
    with pytest.raises(ValueError, match=match):
      models.read_weights(write(file, mapping(weight=content)))

  refused(called(found("torch", "FloatStorage"), number(3)), "calls FloatStorage")
  refused(REBUILD + mapping(__defaults__=number(1)) + b"b", "changes _rebuild_tensor")
  refused(tensor((4,), (1,), memory=good), "makes a tensor of a ndarray")
  refused(tensor((13,), (1,)), "exceeds its storage of 12")
  refused(tensor((2,), (1,), offset=11), "exceeds its storage")
  refused(tensor((2, 2), (11, 1)), "exceeds its storage")
  refused(tensor((1 << 30,), (0,)), "exceeds its storage")
  refused(tensor((2,), (-1,), offset=3), r"strides \(-1,\)")
  refused(tensor((2,), (1,), offset=-1), "offset -1")
  refused(tensor((2, 2), (1,)), r"shape \(2, 2\), strides \(1,\)")
  refused(tensor((2,), (1,), memory=storage(count=13)), "has 12 of 13 numbers")
  refused(tensor((2,), (1,), memory=storage("7")), "data/7|lists other storages")
  refused(tensor((2,), (1,), memory=storage(tag="module")), "unknown storage")


def test_damaged_and_other_files(file, tmp_path):
  def fails(match, path=file):
    with pytest.raises(ValueError, match=match):
      models.read_weights(path)

  state = mapping(weight=tensor((2,), (1,)))
  whole = write(file, state).read_bytes()
  for length in (4, len(whole) // 2, len(whole) - 1):
    file.write_bytes(whole[:length])
    fails("weights.pth is truncated or damaged")
  middle = whole.index(TWELVE["0"].tobytes())
  file.write_bytes(whole[: middle + 8] + b"\x07" + whole[middle + 9 :])
  fails("damaged: Bad CRC")
  compressed = write(file, state, TWELVE, zipfile.ZIP_DEFLATED)
  fails("damaged: data.pkl is compressed", compressed)
  fails("damaged", write(file, state[:-20]))
  write(file, state)
  with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Dup"):
    archive.writestr("archive/data/0", np.ones(12, "<f4").tobytes())
  fails("several entries of one name")
  with zipfile.ZipFile(file, "w") as archive:
    archive.writestr("word/document.xml", "text")
  fails("0 entries data.pkl")
  fails(r"must hold arrays by name.*epoch", write(file, mapping(epoch=number(3))))
  fails("must hold weights by name, got int", write(file, number(3)))
  fails("must hold weights by name, got ndarray", write(file, tensor((2,), (1,))))
  fails("has no weights", write(file, ORDERED))
  file.write_bytes(b"name,label\n1,2\n")
  fails("neither a safetensors .* b'name,labe'")
  file.write_bytes(b"")
  fails("neither")
  safe = tmp_path / "weights.safetensors"
  safetensors.numpy.save_file({"a": np.ones(20)}, safe)
  whole = safe.read_bytes()
  for length in (12, 40, len(whole) - 1):
    safe.write_bytes(whole[:length])
    fails("weights.safetensors is truncated or damaged", safe)
  with pytest.raises(FileNotFoundError):
    models.read_weights(tmp_path / "nowhere.pt")


def test_damaged_files_of_the_old_format(file):
  def fails(match):
    with pytest.raises(ValueError, match=f"weights.pth is {match}"):
      models.read_weights(file)

  state = mapping(weight=tensor((12,), (1,)))
  whole = write_old(file, state).read_bytes()
  np.testing.assert_array_equal(models.read_weights(file)["weight"], np.arange(12))
  for length in range(20, len(whole), 7):
    file.write_bytes(whole[:length])
    fails("truncated or damaged")
  file.write_bytes(whole[:-1])
  fails("truncated or damaged: it ends within a storage, 47 of 48 bytes")
  file.write_bytes(whole.replace((12).to_bytes(8, "little"), bytes([11] + 7 * [0])))
  fails("truncated or damaged: storage 0 has 11 of 12 numbers")
  file.write_bytes(MAGIC + pickle.dumps(1000, 2) + whole[25:])
  fails("truncated or damaged: it does not begin as .* protocol 1001")
  for keys in ([], ["0", "1"], ["0", "0"], [["0"]], "0"):
    write_old(file, state, keys=keys)
    fails("truncated or damaged: (it lists|its list of storages)")
  for count in (-1, 1 << 30):
    write_old(file, mapping(weight=tensor((1,), (1,), memory=storage(count=count))))
    fails(f"truncated or damaged: storage 0 has 12 of {count}")
  two = several(tensor((2,), (1,)), tensor((2,), (1,), memory=storage(count=11)))
  write_old(file, mapping(weight=two))
  fails("truncated or damaged: storage 0 has two types or sizes")
  file.write_bytes(whole.replace(b"NtQ", b"Jabcd" + b"tQ"))
  fails("refused: it has views of storages")


@pytest.mark.parametrize(
  "name", ["a [1]*?", "b\\c", "ü ß", "{a}", "x" * 200, "%4", "~"]
)
def test_any_name_of_the_file(tmp_path, name):
  folder = tmp_path / name
  folder.mkdir()
  safetensors.numpy.save_file({"a": np.ones(2)}, folder / name)
  assert list(models.read_weights(folder / name)) == ["a"]
  write(folder / name, mapping(b=tensor((2,), (1,))))
  assert list(models.read_weights(folder / name)) == ["b"]

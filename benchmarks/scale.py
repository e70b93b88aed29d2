"""Retrieval among millions of references in a file, and over several devices.

The first part has 1 and 10 million references of 128 dimensions in a memory-mapped
file. It measures processor time and peak memory of `nearest` and `retrieval`, each in a
fresh process, and counts how often they read the file. The peer, faiss's exact index,
runs only if memory is at least three times the file.

The second part is weak scaling over 1, 2 and 4 simulated devices, with the same number
of references on each. It lists operations, bytes and memory of one device, by XLA's
analysis of the compiled programs, and the bytes that the device receives in
collectives. XLA counts a loop's body once; the loops over blocks and over relevant
references have one step here. The third part estimates the cost of a million queries
against up to a billion references, from the second table.

    python -m benchmarks.scale                 # 5 GB in TMPDIR; 10 minutes on 2 cores
    python -m benchmarks.scale --smoke         # seconds
    python -m benchmarks.scale --json FILE
"""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from spherejax import metrics
from spherejax.distances import _order, _split, _tiles
from spherejax.metrics import _plan, _ranks, _retrieval

DIM = 128
SIZES, SMOKE = (1_000_000, 10_000_000), (20_000,)  # references
TILE, SMOKE_TILE = 2**27, 2**22  # bytes of the file that are read together
QUERIES, NEIGHBOURS, MEMBERS = 256, 10, 8
LIMIT = 2**31  # bytes
PEER = "faiss-cpu"
AGREES = 0.999  # share of equal neighbours: faiss rounds near ties differently

DEVICES, SMOKE_DEVICES = (1, 2, 4), (2, 4)
SHARE, BLOCK = 2**17, 128  # references of a device, queries at once
FLAT = 0.05  # a larger increase over the smallest number of devices is not flat
COUNTS, BOTH = "retrieval, first look", "retrieval, both looks"
_COLLECTIVE = (
  r"= (.*?) (?:all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)"
  r"(?:-start)?\("
)

# The plan: numbers of queries, and rates of an accelerator per second.
PLANNED, ACCELERATORS, ASKED = (10**8, 10**9), (8, 64, 512), 10**6
RATE, BANDWIDTH, NETWORK, MEMORY = 20e12, 1e12, 25e9, 80  # the last in GiB
LOOKS = 2  # the second pass for ranks in doubt takes as long as the first


def write(path: pathlib.Path, count: int) -> None:
  """Writes overlapping clusters of MEMBERS rows, interleaved row by row."""
  classes = count // MEMBERS
  rows = np.lib.format.open_memmap(path, "w+", np.float32, (count, DIM))
  for part, first in enumerate(range(0, classes, 2**14)):
    rng = np.random.default_rng(part)
    size = min(2**14, classes - first)
    centres = rng.standard_normal((size, DIM), np.float32)
    for start in range(first, count, classes):
      rows[start : start + size] = centres
      rows[start : start + size] += rng.standard_normal((size, DIM), np.float32)
  rows.flush()
  np.save(f"{path}.queries.npy", rows[asked(count)[0]])


def asked(count: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows that are the queries, and the labels of all rows."""
  rows = np.random.default_rng(1).choice(count, QUERIES, replace=False)
  return rows, np.arange(count, dtype=np.int32) % (count // MEMBERS)


def nearest(queries: np.ndarray, references: np.memmap) -> np.ndarray:
  rows, _ = asked(len(references))
  neighbours = metrics.nearest(queries, references, k=NEIGHBOURS, exclude=rows)
  return np.asarray(neighbours)


def retrieval(queries: np.ndarray, references: np.memmap) -> np.ndarray:
  """Mask of the queries whose nearest reference is relevant."""
  rows, labels = asked(len(references))
  result = metrics.retrieval(queries, labels[rows], references, labels, exclude=rows)
  return np.asarray(result.precision_at_1)


def watched() -> list[int]:
  """Returns a list that collects the number of rows of each tile read from now on."""
  counts, plain = [], _tiles.read

  def read(references: _tiles.Stored, what: str) -> Iterator[tuple[int, np.ndarray]]:
    for first, tile in plain(references, what):
      counts.append(min(len(tile), references.shape[0] - first))
      yield first, tile

  _tiles.read = read
  return counts


def peer(queries: np.ndarray, references: np.memmap) -> np.ndarray:
  """Finds the nearest references by faiss; only the search is timed."""
  import faiss

  faiss.omp_set_num_threads(os.cpu_count() or 1)
  index = faiss.IndexFlatL2(DIM)
  index.add(references)
  start = time.process_time()
  neighbours = index.search(queries, NEIGHBOURS + 1)[1]
  print(time.process_time() - start)
  rows, _ = asked(len(references))
  others = [
    row[row != itself][:NEIGHBOURS]
    for row, itself in zip(neighbours, rows, strict=True)
  ]
  return np.stack(others)


WAYS: dict[str, Callable[[np.ndarray, np.memmap], np.ndarray]] = {
  "nearest": nearest,
  PEER: peer,
  "retrieval": retrieval,
}


def alone(way: str, path: str, tile: str) -> None:
  """Measures a method in a fresh process; prints seconds, reads of the file, peak."""
  _tiles._BYTES = int(tile)
  references, queries = np.load(path, mmap_mode="r"), np.load(f"{path}.queries.npy")
  if way == PEER:
    result, reads = peer(queries, references), 1.0
  else:
    WAYS[way](queries, references[: _tiles._rows(references) + 1])  # compiles
    counts, start = watched(), time.process_time()
    result = WAYS[way](queries, references)
    print(time.process_time() - start)
    reads = sum(counts) / len(references)
  np.save(f"{path}.{way}.npy", result)
  print(reads)
  _measure.print_peak_memory()


def in_file(
  count: int, tile: int, folder: pathlib.Path, ways: list[str]
) -> Iterator[dict[str, Any]]:
  """Yields a row per method; raises AssertionError if results or reads are wrong."""
  path, size = folder / "references.npy", 4 * count * DIM
  if shutil.disk_usage(folder).free < 1.1 * size:
    raise SystemExit(f"{size} bytes do not fit into {folder}: name another by TMPDIR")
  write(path, count)
  results = {}
  for way in ways:
    command = [
      sys.executable,
      "-m",
      "benchmarks.scale",
      "--alone",
      way,
      path,
      str(tile),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, reads, peak = map(float, ended.stdout.split())
    results[way] = np.load(f"{path}.{way}.npy")
    if reads > (2 if way == "retrieval" else 1):
      raise AssertionError(f"{way} of {count} read the file {reads} times")
    yield {
      "references": count,
      "search": way,
      "processor seconds": seconds,
      "file read": reads,
      "peak MiB": round(peak / 2**20),
      "below 2 GiB": "" if way == PEER else peak < LIMIT,
    }
  path.unlink()
  ours = results["nearest"]
  if PEER in results and (share := np.mean(results[PEER] == ours)) < AGREES:
    raise AssertionError(f"of {count} faiss finds {share:.1%} of our neighbours")
  rows, labels = asked(count)
  np.testing.assert_array_equal(
    results["retrieval"], labels[ours[:, 0]] == labels[rows]
  )


def programs(devices: int) -> dict[str, jax.stages.Compiled]:
  """Programs for a block of queries against references that are split over devices."""
  count, queries = SHARE * devices, np.arange(BLOCK)
  labels, mask = np.arange(count) % (count // MEMBERS), np.ones(count, bool)
  plan = _plan.make_plan(
    labels[queries], mask[queries], labels, mask,
    left_out=queries, block_size=BLOCK, least=_ranks.TILE,
  )  # fmt: skip
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("parts",))
  parts, whole = (jax.NamedSharding(mesh, p) for p in (jax.P("parts"), jax.P()))

  def like(shape: tuple[int, ...], dtype: Any, where: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=where)

  x, y = like((BLOCK, DIM), jnp.float32, whole), like((count, DIM), jnp.float32, parts)
  excluded, by_class = like((count,), bool, parts), like((count,), jnp.int32, parts)
  distance = "squared_euclidean"
  propose = _order.propose.lower(x, y, distance, excluded)
  compiled = {"retrieval, preparation": propose.compile()}
  proposal = jax.tree.map(
    lambda shape, where: like(shape.shape, shape.dtype, where),
    propose.out_info,
    compiled["retrieval, preparation"].output_shardings,
  )
  for name, decide in ((COUNTS, False), (BOTH, True)):
    compiled[name] = _retrieval._score.lower(
      proposal, x, y, plan.blocks, by_class, excluded, plan.position,
      most=plan.most, distance=distance, certain=False, decide=decide,
    ).compile()  # fmt: skip
  compiled["nearest"] = _split.nearest.lower(
    x, y, like((BLOCK,), jnp.int32, whole),
    sharding=parts, k=NEIGHBOURS, distance=distance, block_size=BLOCK,
  ).compile()  # fmt: skip
  return compiled


def received(program: jax.stages.Compiled) -> int:
  """Bytes that a device receives in its collectives."""
  size = 0
  for shapes in re.findall(_COLLECTIVE, program.as_text() or ""):
    for kind, axes in re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shapes):
      bits = int(kind[1:]) if kind[1:].isdigit() else 8
      size += bits // 8 * math.prod(int(axis) for axis in axes.split(",") if axis)
  return size


def weak_scaling(numbers: tuple[int, ...]) -> list[dict[str, Any]]:
  """Costs of one device, for one block of queries."""
  rows = []
  for devices in numbers:
    for name, program in programs(devices).items():
      cost: Any = program.cost_analysis()
      memory: Any = program.memory_analysis()
      rows.append(
        {
          "devices": devices,
          "program": name,
          "operations": cost["flops"],
          "bytes moved": cost["bytes accessed"],
          "MiB": (memory.argument_size_in_bytes + memory.temp_size_in_bytes) / 2**20,
          "bytes received": received(program) if devices > 1 else 0,
        }
      )
  for row in rows:
    single_device = next(other for other in rows if other["program"] == row["program"])
    row["flat"] = all(
      row[key] <= (1 + FLAT) * single_device[key]
      for key in ("operations", "bytes moved", "MiB")
    )
  return rows


def what_it_takes(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
  """Estimates the planned runs from the rows of weak scaling."""
  of = {(row["devices"], row["program"]): row for row in rows}
  few, many = sorted({row["devices"] for row in rows})[-2:]
  look, received = of[many, COUNTS], "bytes received"
  growth = (look[received] - of[few, COUNTS][received]) / (many - few)
  for references in PLANNED:
    for devices in ACCELERATORS:
      blocks, shares = LOOKS * ASKED / BLOCK, references / devices / SHARE
      operations = blocks * shares * look["operations"]
      moved = blocks * shares * look["bytes moved"]
      through = blocks * (look[received] + growth * (devices - many))
      memory = shares * of[many, BOTH]["MiB"] / 2**10
      seconds = operations / RATE + moved / BANDWIDTH + through / NETWORK
      yield {
        "references": references,
        "accelerators": devices,
        "10^15 operations": operations / 1e15,
        "TB moved": moved / 1e12,
        "GB received": through / 1e9,
        "GiB": memory,
        "fits": memory < MEMORY,
        "hours": seconds / 3600,
      }


def elsewhere(numbers: tuple[int, ...]) -> list[dict[str, Any]]:
  """Runs `weak_scaling` in a new process, which simulates the devices."""
  flags = f"--xla_force_host_platform_device_count={max(numbers)}"
  flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
  ended = subprocess.run(
    [sys.executable, "-m", "benchmarks.scale", "--weak", *map(str, numbers)],
    env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    capture_output=True, text=True, check=True,
  )  # fmt: skip
  return json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
  """Runs the command line."""
  if sys.argv[1:2] == ["--alone"]:
    alone(*sys.argv[2:])
    return
  if sys.argv[1:2] == ["--weak"]:
    print(json.dumps(weak_scaling(tuple(map(int, sys.argv[2:])))))
    return
  options = _measure.parse(__doc__, cases=False, timed=False)
  missing = _measure.lacking("faiss")
  memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  rows, tile = [], SMOKE_TILE if options.smoke else TILE
  for count in SMOKE if options.smoke else SIZES:
    fits = not missing and 3 * 4 * count * DIM < memory
    ways = [way for way in WAYS if way != PEER or fits]
    with tempfile.TemporaryDirectory() as folder:
      rows += in_file(count, tile, pathlib.Path(folder), ways)
    _measure.save("scale", rows, missing, options)
  _measure.show(f"{QUERIES} queries of references in a file", rows)
  weak = elsewhere(SMOKE_DEVICES if options.smoke else DEVICES)
  title = f"a block of {BLOCK} queries, {SHARE} references of each device"
  _measure.show(title, weak)
  plan = list(what_it_takes(weak))
  _measure.show(f"{ASKED} queries", plan)
  _measure.save("scale", rows + weak + plan, missing, options)


if __name__ == "__main__":
  main()

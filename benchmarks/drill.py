"""Reliability drill: checks that damaged runs report it, resume, and end the same.

Experiments are killed at random moments in three ways; a disk fills up; checkpoints are
truncated and bits in them flipped; an image is damaged; a loss is NaN; one of two
processes dies. Each run must report what happened, the same command must resume it, and
its results must equal those of an undisturbed run, bit for bit.

    python -m benchmarks.drill            # a quarter of an hour on 2 cores
    python -m benchmarks.drill --smoke    # less than one minute: a damaged checkpoint
    python -m benchmarks.drill --only disk --json FILE

The full disk is a small file system in memory, which needs root; otherwise it is left
out.
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import rich.console
import rich.table
import rich.text

from benchmarks import _measure

EXPERIMENTS = ("few_shot", "plankton", "projector_collapse", "retrieval")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS = 5  # kills of each experiment
FILLED = (0.2, 0.5, 0.9)  # shares of the bytes of a whole run
STEPS = 60
PATIENCE = 300  # seconds that the other of two processes has to end
_BLOCK = 4096  # of a file system in memory
_TOLD = r"\w+Error: |stopped|ended by"
_FIGURES_OF_TIME = ("seconds",)


class Drill(NamedTuple):
  """A row of the table."""

  fault: str
  place: str
  said: str
  clear: bool
  equal: bool


class Ended(NamedTuple):
  """Ended process: its exit code, and its last line.

  A clear end is one line without a traceback; after SIGKILL there is none.
  """

  code: int
  said: str
  clear: bool


class Room:
  """Folder for the runs of one experiment, and their compiled programs."""

  def __init__(self, folder: pathlib.Path):
    folder.mkdir()
    self.folder = folder
    self.environment = os.environ | {
      "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),
      "JAX_PLATFORMS": "cpu",
    }

  def command(self, module: str, *arguments: Any) -> list[str]:
    """Command that runs a module of this project."""
    return [sys.executable, "-m", module, *map(str, arguments)]

  def smoke(self, name: str, output: str) -> list[str]:
    """Command that runs an experiment at its smallest size."""
    where = self.folder / output
    return self.command(f"experiments.{name}", "--preset", "smoke", "--output", where)

  def start(self, command: Sequence[str], log: pathlib.Path) -> subprocess.Popen:
    """Starts a process whose stderr goes to a file."""
    with log.open("w") as file:
      return subprocess.Popen(
        command,
        env=self.environment,
        stdout=subprocess.DEVNULL,
        stderr=file,
        preexec_fn=_heed_interrupts,
      )

  def run(self, command: Sequence[str], kill: tuple[float, int] | None = None) -> Ended:
    """Runs a command to the end, or to a signal after some seconds."""
    log = self.folder / "stderr.txt"
    process = self.start(command, log)
    if kill:
      try:
        process.wait(kill[0])
      except subprocess.TimeoutExpired:
        process.send_signal(kill[1])
    return Ended(process.wait(), *last_line(log))

  def whole(self, command: Sequence[str]) -> Ended:
    """Runs a command that must succeed.

    Raises:
      SystemExit: the command failed; the message has its output.
    """
    ended = self.run(command)
    if ended.code:
      raise SystemExit(f"{' '.join(command)} ended with {ended.code}: {ended.said}")
    return ended


def _heed_interrupts() -> None:
  """Restores Ctrl-C, which background processes and their children ignore."""
  signal.signal(signal.SIGINT, signal.SIG_DFL)


def last_line(log: pathlib.Path) -> tuple[str, bool]:
  """Last message of a program, and True if it came without a traceback.

  Lines after an error, such as jax's own at its end, are ignored.
  """
  text = log.read_text(errors="replace")
  lines = [line.strip() for line in re.split(r"[\n\r]", text)]
  told = [line for line in lines if re.match(_TOLD, line)]
  others = [line for line in lines if line and not re.search(r"\d+%\||it/s", line)]
  warned = [line for line in lines if line.startswith("WARNING:spherejax")]
  said = next(reversed(warned or told or others), "")
  if traced := "Traceback (most recent call last)" in text:
    print(text[-4000:], file=sys.stderr)
  return said, bool(said) and not traced


def results(folder: pathlib.Path) -> dict[str, Any]:
  """Results of a run that must not depend on its history."""
  contents: dict[str, Any] = {}
  for path in sorted(folder.rglob("*")):
    name = str(path.relative_to(folder))
    if path.name == "results.json":
      content = json.loads(path.read_text().replace(str(folder), "."))
      contents[name] = {k: v for k, v in content.items() if k not in _FIGURES_OF_TIME}
    elif path.suffix == ".npy" or path.name.startswith("state-"):
      loaded = np.load(path)
      contents[name] = (
        {key: loaded[key].tobytes() for key in loaded}
        if path.suffix == ".npz"
        else loaded.tobytes()
      )
    elif path.suffix == ".csv":
      contents[name] = path.read_text().replace(str(folder), ".")
  if not contents:
    raise SystemExit(f"{folder} holds no results to compare")
  return contents


def kills(names: Sequence[str], count: int, folder: pathlib.Path) -> Iterator[Drill]:
  """Sends signals at random moments of experiments."""
  for place, name in enumerate(names):
    room = Room(folder / name)
    room.whole(room.smoke(name, "first"))
    start = time.perf_counter()
    room.whole(room.smoke(name, "second"))  # as fast as the runs to be killed
    seconds = time.perf_counter() - start
    expected = results(room.folder / "first")
    if results(room.folder / "second") != expected:
      raise SystemExit(f"{name}: two undisturbed runs differ")
    rng = random.Random(place)
    for number in range(count):
      kind = SIGNALS[(place + number) % len(SIGNALS)]
      output, moment = f"killed-{number}", seconds * rng.random()
      command = room.smoke(name, output)
      ended = room.run(command, (moment, kind))
      # This run was faster, and may have been exiting.
      while ended.code == 0 or (room.folder / output / "results.json").exists():
        shutil.rmtree(room.folder / output)
        moment /= 2
        ended = room.run(command, (moment, kind))
      if kind == signal.SIGKILL:
        ended = Ended(ended.code, "", True)
      room.whole(command)
      equal = results(room.folder / output) == expected
      where = f"{name}, after {moment:.0f} of {seconds:.0f} s"
      yield Drill(signal.Signals(kind).name, where, ended.said, ended.clear, equal)


def full_disks(
  name: str, shares: Sequence[float], folder: pathlib.Path
) -> Iterator[Drill]:
  """Runs on a disk that is too small, then on a larger one."""
  room = Room(folder / "disk")
  disk = room.folder / "small"
  disk.mkdir()
  command = room.smoke(name, "small/run")
  room.whole(room.smoke(name, "whole"))
  expected = results(room.folder / "whole")
  files = [path for path in (room.folder / "whole").rglob("*") if path.is_file()]
  needed = sum(-(-path.stat().st_size // _BLOCK) * _BLOCK for path in files)
  for share in shares:
    size = int(share * needed)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    try:
      ended = room.run(command)
      grow = ["mount", "-o", f"remount,size={10 * needed}", str(disk)]
      subprocess.run(grow, check=True)
      room.whole(command)
      equal = bool(ended.code) and results(disk / "run") == expected
    finally:
      subprocess.run(["umount", str(disk)], check=True)
    where = f"{name}, {share:.0%} of {needed / 2**20:.1f} MiB"
    yield Drill("disk full", where, ended.said, ended.clear, equal)


def cut(file: pathlib.Path) -> None:
  """Truncates a file to its first half."""
  os.truncate(file, file.stat().st_size // 2)


def flip(file: pathlib.Path) -> None:
  """Flips the bit in the middle of a file."""
  content = bytearray(file.read_bytes())
  content[len(content) // 2] ^= 1
  file.write_bytes(bytes(content))


def damages(folder: pathlib.Path, smoke: bool) -> Iterator[Drill]:
  """Damages checkpoints and a loss of a small training."""
  room = Room(folder / "damage")

  def command(output: str, steps: int, *more: Any) -> list[str]:
    where = room.folder / output
    return room.command("benchmarks._drill_training", where, steps, *more)

  room.whole(command("whole", STEPS))
  expected = results(room.folder / "whole")
  harms: dict[str, Callable[[pathlib.Path], None]] = {
    "checkpoint cut": cut,
    "checkpoint, one bit flipped": flip,
  }
  if smoke:
    del harms["checkpoint cut"]  # tests of checkpoints do the same
  room.whole(command("half", STEPS // 2))
  for name, harm in harms.items():
    output = name.replace(" ", "-")
    shutil.copytree(room.folder / "half", room.folder / output)
    newest = room.folder / output / "checkpoints" / "last" / str(STEPS // 2)
    files = [path for path in newest.rglob("*") if path.is_file()]
    harm(max(files, key=lambda path: path.stat().st_size))
    ended = room.whole(command(output, STEPS))
    noticed = (room.folder / output / "checkpoints" / "unreadable").is_dir()
    equal = noticed and results(room.folder / output) == expected
    yield Drill(name, f"step {STEPS // 2}", ended.said, ended.clear, equal)
  poisoned = STEPS * 2 // 3 - 5
  ended = room.run(command("poisoned", STEPS, "--poison", poisoned))
  room.whole(command("poisoned", STEPS))
  equal = bool(ended.code) and results(room.folder / "poisoned") == expected
  yield Drill("loss is NaN", f"step {poisoned}", ended.said, ended.clear, equal)


def picture(folder: pathlib.Path) -> Iterator[Drill]:
  """Damages one of the images to embed."""
  room = Room(folder / "picture")
  model, images = room.folder / "model", room.folder / "images"
  room.whole(room.command("benchmarks._drill_pictures", model, images))

  def command(output: pathlib.Path) -> list[str]:
    arguments = images, "--model", model, "--layout", "pca"
    return room.command("experiments.embed", *arguments, "--output", output)

  room.whole(command(room.folder / "whole"))
  hurt = sorted(images.rglob("*.png"))[77]
  intact = hurt.read_bytes()
  cut(hurt)
  ended = room.run(command(room.folder / "hurt"))
  hurt.write_bytes(intact)
  room.whole(command(room.folder / "hurt"))
  embeddings = [
    np.load(room.folder / name / "embeddings.npy") for name in ("hurt", "whole")
  ]
  place = str(hurt.relative_to(images))
  equal = bool(ended.code) and np.array_equal(*embeddings)
  yield Drill("picture cut", place, ended.said, ended.clear, equal)


def one_of_two(folder: pathlib.Path) -> Iterator[Drill]:
  """Kills one of two processes; the other must end too, then both go on."""
  room = Room(folder / "two")

  def both(output: str) -> list[subprocess.Popen]:
    with socket.socket() as probe:
      probe.bind(("localhost", 0))
      port = str(probe.getsockname()[1])
    module, where = "benchmarks._drill_training", room.folder / output
    return [
      room.start(
        room.command(module, where, STEPS, "--port", port, "--number", number),
        room.folder / f"{output}-{number}.txt",
      )
      for number in range(2)
    ]

  def wait(processes: list[subprocess.Popen], output: str) -> None:
    for number, process in enumerate(processes):
      if process.wait(PATIENCE):
        said, _ = last_line(room.folder / f"{output}-{number}.txt")
        raise SystemExit(f"process {number} of {output} failed: {said}")

  wait(both("whole"), "whole")
  processes = both("halved")
  waiting = room.folder / "halved" / "checkpoints" / "last" / str(STEPS // 2)
  while not waiting.exists() and processes[1].poll() is None:
    time.sleep(0.05)
  processes[1].kill()
  start = time.perf_counter()
  try:
    code = processes[0].wait(PATIENCE)
  finally:
    processes[0].kill()
  seconds = time.perf_counter() - start
  said, clear = last_line(room.folder / "halved-0.txt")
  wait(both("halved"), "halved")
  equal = results(room.folder / "halved") == results(room.folder / "whole")
  place = f"after step {STEPS // 2}; the other one ended within {seconds:.0f} s"
  equal &= bool(code)
  yield Drill("one of two processes killed", place, said, clear, equal)


def drills(smoke: bool, folder: pathlib.Path) -> Iterator[tuple[str, Any]]:
  """Parts of the drill, by the name for --only."""
  yield "damage", damages(folder, smoke)
  if smoke:
    return
  yield "picture", picture(folder)
  yield "two", one_of_two(folder)
  if os.geteuid() == 0:
    yield "disk", full_disks("plankton", FILLED, folder)
  yield "kill", kills(EXPERIMENTS, KILLS, folder)


def main() -> None:
  """Runs the command line."""
  options = _measure.parse(__doc__, timed=False)
  table = rich.table.Table(title="reliability drill")
  for heading in ("what", "where", "said", "clear", "resumed = undisturbed"):
    table.add_column(heading)
  rows: list[dict[str, Any]] = []
  missing = [] if options.smoke or os.geteuid() == 0 else ["a full disk needs root"]
  with tempfile.TemporaryDirectory() as folder:
    for name, outcomes in drills(options.smoke, pathlib.Path(folder)):
      if options.only in name:
        for row in outcomes:
          said = row.said.replace(folder, "…")
          rows.append(row._asdict() | {"said": said})
          verdicts = ["yes" if held else "NO" for held in (row.clear, row.equal)]
          table.add_row(row.fault, row.place, rich.text.Text(said), *verdicts)
          _measure.save("drill", rows, missing, options)
  _measure.require(rows, options)
  if missing:
    rich.print(f"left out: {missing[0]}")
  rich.console.Console(width=140).print(table)
  if not all(row["equal"] for row in rows):
    raise SystemExit("a run did not recover")
  if not all(row["clear"] for row in rows):
    raise SystemExit("a run did not say in one line what happened")


if __name__ == "__main__":
  main()

"""Reports a run that ends early in one line that says what to do next.

Entry points load this module first, so it imports nothing that takes time.
"""

import _thread
import os
import pathlib
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import NoReturn

_SOON = 0.05  # seconds
_OURS = ("spherejax", "experiments")


class _Terminated(KeyboardInterrupt):
  """SIGTERM, which ends a run like Ctrl-C."""


def while_loading() -> None:
  """Reports Ctrl-C and SIGTERM in one line, until `in_one_line` takes over."""
  advice = "nothing is lost; the same command starts again"

  def explain(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
  ) -> None:
    if issubclass(kind, KeyboardInterrupt):
      _say(f"stopped; {advice}")
    else:
      sys.__excepthook__(kind, error, trace)

  def end(number: int, _: FrameType | None) -> NoReturn:
    # An exception might be caught by what is being imported.
    _say(f"ended by {signal.Signals(number).name}; {advice}")
    _leave(number)

  sys.excepthook = explain
  signal.signal(signal.SIGTERM, end)


def in_one_line(output: pathlib.Path) -> None:
  """Reports Ctrl-C, SIGTERM, our own errors and file errors without a traceback.

  `python -X dev -m experiments.…` shows it. All other errors always show theirs.
  """

  def advice() -> str:
    # Files to resume from lie in subfolders; results do not.
    if output.is_dir() and any(path.is_dir() for path in output.iterdir()):
      return f"the same command goes on from what is kept in {output}"
    return "nothing is kept yet; the same command begins anew"

  def explain(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
  ) -> None:
    if issubclass(kind, KeyboardInterrupt):
      number = _signal_of(kind)
      what = "stopped" if number == signal.SIGINT else f"ended by {number.name}"
      _say(f"{what}; {advice()}")
      _leave(number)
    elif sys.flags.dev_mode or not _is_told(error, trace):
      sys.__excepthook__(kind, error, trace)
    elif isinstance(error, OSError):
      _say(f"{kind.__name__}: {one_line(error)}; {advice()}")
    else:
      _say(f"{kind.__name__}: {one_line(error)}")

  def end(number: int, _: FrameType | None) -> NoReturn:
    del number
    raise _Terminated

  sys.excepthook, sys.unraisablehook = explain, _unraised
  signal.signal(signal.SIGTERM, end)


def one_line(error: BaseException) -> str:
  """Message of an error without line breaks; its type if the message is empty."""
  lines = (line.strip() for line in f"{error}".splitlines())
  return " ".join(filter(None, lines)) or type(error).__name__


def _say(message: str) -> None:
  # The line break ends a progress bar that was not closed.
  print(f"\n{message}", file=sys.stderr)


def _signal_of(kind: type[KeyboardInterrupt]) -> signal.Signals:
  return signal.SIGTERM if issubclass(kind, _Terminated) else signal.SIGINT


def _leave(number: int) -> NoReturn:
  """Ends by a signal; at its own end Python waits for threads, which may train on."""
  sys.stderr.flush()
  signal.signal(number, signal.SIG_DFL)
  signal.raise_signal(number)
  os._exit(128 + number)  # the first process of a container does not heed signals


def _unraised(args: "sys.UnraisableHookArgs") -> None:
  """Handles an error that nobody can catch, as `sys.unraisablehook`.

  A Ctrl-C that arrives in a callback from C is raised again outside of it. After one
  part of a checkpoint has failed, threads of the other parts call into a closed event
  loop. These errors are not reported: the one that counts has been raised.
  """
  trace = args.exc_traceback
  late = trace is not None and trace.tb_frame.f_code.co_name == "call_soon_threadsafe"
  if issubclass(args.exc_type, KeyboardInterrupt):
    number = _signal_of(args.exc_type)
    threading.Timer(_SOON, _thread.interrupt_main, (number,)).start()
  elif not (late and str(args.exc_value) == "Event loop is closed"):
    sys.__unraisablehook__(args)


def _is_told(error: BaseException, trace: TracebackType | None) -> bool:
  """True for errors that the user can fix: file problems, and errors that we raise."""
  if isinstance(error, OSError):
    return True
  while trace is not None and trace.tb_next is not None:
    trace = trace.tb_next
  module = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
  return module.partition(".")[0] in (*_OURS, "__main__")

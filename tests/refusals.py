"""Tables of calls that must be refused, and the messages of their errors."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest


def table(rows: Sequence[tuple[functools.partial, str]]) -> Any:
  """Passes each row to a test, as its `call` and `message`."""
  names = [getattr(call.func, "__name__", "call") for call, _ in rows]
  ids = [f"{name}: {message}" for name, (_, message) in zip(names, rows, strict=True)]
  return pytest.mark.parametrize(("call", "message"), rows, ids=ids)


def check(call: Callable[[], Any], message: str) -> None:
  """Messages after `TypeError: ` are those of a TypeError, others of a ValueError."""
  kind = TypeError if message.startswith("TypeError: ") else ValueError
  with pytest.raises(kind, match=message.removeprefix("TypeError: ")):
    call()

"""The explorer's command for networks of your own."""

import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array

if TYPE_CHECKING:
  from spherejax.explorer import _networks

Outputs = tuple[Array, Array | None, Array | None]
Load = Callable[[str, pathlib.Path | None], "_networks.Embedder | None"]


def embedder(
  name: str,
  settings: str,
  variables: Any,
  prepare: Callable[[np.ndarray], np.ndarray],
  apply: Callable[[Array], Outputs],
) -> "_networks.Embedder":
  """A network for `run_command`, built from its variables.

  Args:
    name: of the network, shown on the page.
    settings: text that changes with whatever else changes an embedding.
    variables: arrays of the network, any pytree. Kept embeddings are reused while name,
      settings and variables stay the same.
    prepare: function from an image, uint8 [height, width, channels], to uint8 of one
      shape for all images. It must be picklable.
    apply: function from prepared images [batch, ...] to embeddings [batch, dim],
      pooling weights [batch, height, width] or None, and shares of prototypes [batch,
      prototypes] or None. It is jitted.

  Returns:
    The network for `run_command`.

  Source: none.

  Example:
    >>> network = spherejax.explorer.embedder(
    ...     "means", "", {}, lambda image: image[:8, :8],
    ...     lambda images: (images.mean(axis=(1, 2)), None, None),
    ... )
    >>> network.name
    'means'
  """
  from spherejax.explorer import _networks

  return _networks.embedder(
    name, settings, variables, prepare, lambda images: _networks.Found(*apply(images))
  )


def run_command(load: Load, *, arguments: Sequence[str] | None = None) -> None:
  """Runs the command `spherejax-explore` with networks of your own.

  Args:
    load: function of the options `--model`, as text, and `--weights`, as a path or
      None, to a network of `embedder`. It returns None for the name of a pretrained
      network, which is then read as by `spherejax-explore`.
    arguments: of the command line. None takes those of the process.

  Returns:
    None. The page and its tables lie in the folder `--output`.

  Raises:
    SystemExit: an option, a network or an image that cannot be used; the message says
      why.

  Source: none.

  Example:
    >>> import contextlib, io
    >>> with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    ...     spherejax.explorer.run_command(lambda *_: None, arguments=["--help"])
  """
  from spherejax.explorer import _command

  _command.main(arguments, load=load)

"""Explorer: a page with a map of embeddings, nearest images and pooling weights.

The page opens in a browser without a server or a network. It needs the extra `explore`.
"""

from spherejax import _names
from spherejax.explorer._own import embedder as embedder
from spherejax.explorer._own import run_command as run_command
from spherejax.explorer._page import MOST_IMAGES as MOST_IMAGES
from spherejax.explorer._page import write_page as write_page

__all__ = ["MOST_IMAGES", "embedder", "run_command", "write_page"]

_names.suggest(__name__)

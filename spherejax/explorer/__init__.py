"""Explorer: a page with a map of embeddings, nearest images and pooling weights.

The page opens in a browser without a server or a network. It needs the extra `explore`.
"""

from spherejax import _names
from spherejax.explorer._command import main as main
from spherejax.explorer._networks import Embedder as Embedder
from spherejax.explorer._networks import Outputs as Outputs
from spherejax.explorer._page import MOST_IMAGES as MOST_IMAGES
from spherejax.explorer._page import write_page as write_page

__all__ = ["MOST_IMAGES", "Embedder", "Outputs", "main", "write_page"]

_names.suggest(__name__)

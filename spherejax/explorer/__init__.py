"""A page that shows embeddings: a map, the nearest images, what a pooling weighs.

It opens in a browser without a server and asks nothing of the network. Needs the extra
`explore`.
"""

from spherejax import _names
from spherejax.explorer._page import MOST_IMAGES as MOST_IMAGES
from spherejax.explorer._page import write_page as write_page

__all__ = ["MOST_IMAGES", "write_page"]

_names.suggest(__name__)

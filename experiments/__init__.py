"""Experiments of the papers as entry points: python -m experiments.<name>."""

import sys

from experiments.frame import ending

# Python's name of a module that it looks for; the imports of one take seconds.
if sys.argv[:1] == ["-m"]:
  ending.while_loading()

"""Experiments of the papers as entry points: python -m experiments.<name>."""

import sys

from experiments.frame import ending

# Python puts "-m" here while it looks for the module, whose imports take seconds.
if sys.argv[:1] == ["-m"]:
  ending.while_loading()

"""Experiments of the papers as entry points: python -m experiments.<name>."""

import os
import sys

from experiments.frame import ending

# Python puts "-m" here while it looks for the module, whose imports take seconds.
if sys.argv[:1] == ["-m"]:
  ending.while_loading()
  # Otherwise all its threads wait for each small decomposition in a busy loop: pooling
  # with zero-shot prediction trains half as fast.
  os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

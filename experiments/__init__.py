"""Experiments of the papers as entry points: python -m experiments.<name>."""

import gc
import os
import sys

from experiments.frame import ending

# Python puts "-m" here while it looks for the module, whose imports take seconds.
if sys.argv[:1] == ["-m"]:
  ending.while_loading()
  # Imports create objects that stay: to look for garbage takes a tenth of their time.
  gc.set_threshold(100_000)
  # OpenBLAS's threads wait for each other in busy loops: pooling with zero-shot
  # prediction trains half as fast with several of them.
  os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

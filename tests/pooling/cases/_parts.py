"""Parts of the cases of several families, and calls of the poolings."""

import numpy as np

from spherejax import pooling


def call(name, **static):
  """The pooling `name` with what all of its calls share."""
  return lambda features, params, where: getattr(pooling, name)(
    features, **params, **static, where=where
  )


def mean(values):
  return sum(values) / len(values)


def relu(value):
  return np.maximum(value, 0)


def sigmoid(value):
  return 1 / (1 + np.exp(-value))

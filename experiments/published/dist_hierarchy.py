"""Figures printed in DIST, article IV, beside those of the same protocol.

Rank correlations over its 65 trained models, for MicroS, MicroL, MesoZ, CIFAR-100 and
NABirds; cells that are lost in the text are left out.
"""

SETS = ("micro_s", "micro_l", "meso_z", "cifar100", "nabirds")
PROXIES, PROTOTYPES = "mean correlation, proxies", "mean correlation, prototypes"

# Table 2: mean correlation of prototypes without training.
CONTROLS = {
  "cifar100": {
    "random weights": 0.2841, "pretrained weights": 0.3816,
    "pixels": 0.3414, "normalised pixels": 0.2609,
  },
  "nabirds": {
    "random weights": 0.1088, "pretrained weights": 0.2648,
    "pixels": 0.1740, "normalised pixels": 0.2369,
  },
}  # fmt: skip

# Tables S2, S3 and S4.
SPEARMAN = {
  PROXIES: {
    "top-1": (0.204, 0.226, 0.217, 0.168, 0.311),
    "top-5": (-0.135, -0.372, -0.212, -0.336, -0.567),
    "AHD@1": (-0.342, -0.386, -0.296, -0.182, -0.427),
    "AHD@5": (-0.741, -0.826, -0.903, -0.886, -0.702),
    "HP@5": (0.739, 0.835, 0.900, 0.896, 0.707),
    "HS@50": (0.767, 0.796, 0.563, 0.188, 0.528),
    "HS@250": (0.791, 0.817, 0.886, 0.551, 0.721),
    "AHS@250": (0.795, 0.819, 0.803, 0.334, 0.686),
  },
  "top-1": {
    "top-5": (0.220, 0.037, 0.103, 0.440, -0.104),
    "AHD@5": (-0.191, -0.326, -0.291, -0.288, -0.614),
    "HP@5": (0.226, 0.296, 0.289, 0.244, 0.603),
    "HS@50": (0.433, 0.509, 0.698, 0.897, 0.683),
    "HS@250": (0.137, 0.306, 0.295, 0.554, 0.492),
    "AHS@250": (0.339, 0.423, 0.507, 0.852, 0.573),
    PROXIES: (0.204, 0.226, 0.217, 0.168, 0.311),
    PROTOTYPES: (0.215, 0.206, 0.174, 0.198, 0.266),
  },
  "top-5": {
    "top-1": (0.220, 0.037, 0.103, 0.440, -0.104),
    "AHD@1": (-0.072, 0.003, -0.041, -0.425, 0.120),
    "AHD@5": (0.242, 0.484, 0.273, 0.456, 0.495),
    "HP@5": (-0.277, -0.532, -0.311, -0.490, -0.573),
    "HS@50": (0.012, -0.316, -0.233, 0.252, -0.007),
    "HS@250": (-0.068, -0.434, -0.197, 0.096, -0.319),
    "AHS@250": (0.025, -0.360, -0.145, 0.316, -0.220),
    PROXIES: (-0.135, -0.372, -0.212, -0.336, -0.567),
    PROTOTYPES: (-0.104, -0.478, -0.291, -0.368, -0.546),
  },
}


def spearman(data: str, first: str, second: str) -> float | None:
  """The printed rank correlation of two measures; None where there is none."""
  cells = SPEARMAN.get(first, {}).get(second)
  return None if cells is None or data not in SETS else cells[SETS.index(data)]


def control(data: str, name: str, metric: str) -> float | None:
  """The printed mean correlation of untrained prototypes."""
  return CONTROLS.get(data, {}).get(name) if metric == PROTOTYPES else None

"""Names of our networks' parameters in weight files, in one table for each origin.

A table is a sequence of (pattern, replacement), applied in turn by `re.sub`. It turns a
path of ours such as "stage1_0/norm1/scale" into the file's name. Before that, `LEAVES`
replaces the names of the leaves, which are the same everywhere.
"""

from collections.abc import Iterable

# Our names within a module to torch's; other names stay as they are.
LEAVES = {
  "kernel": "weight",
  "scale": "weight",
  "mean": "running_mean",
  "var": "running_var",
}

# Entries of files besides parameters: counters, and indices that follow from sizes.
BUFFERS = ("num_batches_tracked", "relative_position_index", "attn_mask")

# Prefixes of wrappers: training on several devices, compiled modules, and classes that
# hold the network.
_WRAPPERS = ("module.", "_orig_mod.", "model.", "backbone.", "encoder.")

_RESNET = (
  (r"^stem/", "conv1."),
  (r"^stem_norm/", "bn1."),
  (r"^stage(\d+)_(\d+)/", r"layer\1.\2."),
  (r"convolution(\d)/", r"conv\1."),
  (r"norm(\d)/", r"bn\1."),
)

# Three blocks per stage; the first has a shortcut where it is wider.
_PRE_ACTIVATION = (
  (r"^Convolution_0/", "conv1."),
  (r"^_Normalization_0/", "bn."),
  *((rf"^_PreActivationBlock_{n}/", f"layer{n // 3 + 1}.{n % 3}.") for n in range(9)),
  (r"^(layer[23]\.0\.)Convolution_0/", r"\1shortcut.0."),
  (r"^(layer[23]\.0\.)Convolution_(\d)/", r"\1conv\2."),
  (r"Convolution_0/", "conv1."),
  (r"Convolution_1/", "conv2."),
  (r"_Normalization_0/", "bn1."),
  (r"_Normalization_1/", "bn2."),
  (r"BatchNorm_0/", ""),
)

_SWIN = (
  (r"norm/", "norm."),
  (r"norm(\d)/", r"norm\1."),
  (r"reduction/", "reduction."),
  (r"attention/qkv/", "attn.qkv."),
  (r"attention/out/", "attn.proj."),
  (r"attention/relative_bias", "attn.relative_position_bias_table"),
)

_TIMM_SWIN = (
  (r"^embed/", "patch_embed.proj."),
  (r"^embed_norm/", "patch_embed.norm."),
  *((rf"^stage{n}_(\d+)/", rf"layers.{n - 1}.blocks.\1.") for n in range(1, 5)),
  (r"dense(\d)/", r"mlp.fc\1."),
  *_SWIN,
)


def _efficientnet_lite(blocks: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
  """Table of EfficientNet-Lite, whose blocks are numbered throughout."""
  places = [(s, b) for s, count in enumerate(blocks, 1) for b in range(count)]
  return (
    *((rf"^stage{s}_{b}/", f"_blocks.{n}.") for n, (s, b) in enumerate(places)),
    (r"^stem/", "_conv_stem."),
    (r"^stem_norm/", "_bn0."),
    (r"^head/", "_conv_head."),
    (r"^head_norm/", "_bn1."),
    (r"expand_norm/", "_bn0."),
    (r"depthwise_norm/", "_bn1."),
    (r"project_norm/", "_bn2."),
    (r"(expand|project|depthwise)/", r"_\1_conv."),
  )


TABLES = {
  "ResNet of torchvision and timm": (
    (r"shortcut/", "downsample.0."),
    (r"shortcut_norm/", "downsample.1."),
    *_RESNET,
  ),
  "InceptionV3 of torchvision and timm": (
    (r"^stem_3b/", "Conv2d_3b_1x1/"),
    (r"^stem_(\d\w)/", r"Conv2d_\1_3x3/"),
    (r"^mixed_", "Mixed_"),
    (r"norm/", "bn/"),
    (r"/", "."),
  ),
  "BNInception of Cadene": (
    (r"^(inception_\d\w)/", r"\1_"),
    (r"/conv/", "."),
    (r"/norm/", "_bn."),
  ),
  "EfficientNet-Lite0": _efficientnet_lite((1, 2, 2, 3, 3, 4, 1)),
  "EfficientNet-Lite1 and 2": _efficientnet_lite((1, 3, 3, 4, 4, 5, 1)),
  "EfficientNet-Lite of timm": (
    *((rf"^stage{n}_(\d+)/", rf"blocks.{n - 1}.\1.") for n in range(1, 8)),
    (r"^stem/", "conv_stem."),
    (r"^stem_norm/", "bn1."),
    (r"^head/", "conv_head."),
    (r"^head_norm/", "bn2."),
    (r"^(blocks\.0\.\d+\.)depthwise_norm/", r"\1bn1."),
    (r"^(blocks\.0\.\d+\.)project/", r"\1conv_pw."),
    (r"^(blocks\.0\.\d+\.)project_norm/", r"\1bn2."),
    (r"expand/", "conv_pw."),
    (r"depthwise/", "conv_dw."),
    (r"project/", "conv_pwl."),
    (r"expand_norm/", "bn1."),
    (r"depthwise_norm/", "bn2."),
    (r"project_norm/", "bn3."),
  ),
  # Public ResNets for CIFAR.
  "ResNet with shortcut": (
    (r"shortcut/", "shortcut.0."),
    (r"shortcut_norm/", "shortcut.1."),
    *_RESNET,
  ),
  "ResNet20 of pre-activation blocks": _PRE_ACTIVATION,
  "Swin of torchvision": (
    (r"^embed/", "features.0.0."),
    (r"^embed_norm/", "features.0.2."),
    *((rf"^stage{n}_(\d+)/", rf"features.{2 * n - 1}.\1.") for n in range(1, 5)),
    *((rf"^merge{n}/", rf"features.{2 * n - 2}.") for n in range(2, 5)),
    (r"dense1/", "mlp.0."),
    (r"dense2/", "mlp.3."),
    *_SWIN,
  ),
  "Swin of timm": (
    *((rf"^merge{n}/", rf"layers.{n - 1}.downsample.") for n in range(2, 5)),
    *_TIMM_SWIN,
  ),
  # Also used by timm before 0.9.
  "Swin of its authors": (
    *((rf"^merge{n}/", rf"layers.{n - 2}.downsample.") for n in range(2, 5)),
    *_TIMM_SWIN,
  ),
}


def unwrapped(names: Iterable[str]) -> list[str]:
  """Removes wrapper prefixes that all names share, also nested."""
  names = list(names)
  while names:
    prefix = next((p for p in _WRAPPERS if names[0].startswith(p)), None)
    if prefix is None or not all(
      name.startswith(prefix) and name != prefix for name in names
    ):
      break
    names = [name.removeprefix(prefix) for name in names]
  return names

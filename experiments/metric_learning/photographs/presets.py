"""The tables and figures of the thesis that `retrieval` makes with real backbones."""

from experiments.frame import poolings
from experiments.metric_learning.photographs.methods import FullConfig
from experiments.published import dml

_TABLE_3_1 = tuple(dict.fromkeys(key[0] for key in dml.TABLE_3_1))

PRESETS = {
  "full": FullConfig(),
  "table-3.1": FullConfig(methods=_TABLE_3_1),
  # Its small memories and few proxies have no figures in the text.
  "figure-3.4": FullConfig(
    dataset="sop",  # and inshop
    methods=(
      *(name for name in _TABLE_3_1 if name != "soft_triple"),
      "c1+xbm+s",
      "c2+xbm+s",
      "c1+ccp+s",
      "c2+ccp+s",
      "ms+ccp+s",
      "triplet+ccp+s",
      "soft_triple+s",
      "soft_triple+l",
    ),
  ),
  "figure-3.8": FullConfig(
    methods=tuple(
      f"{name}+b{batch}" for batch in (16, 32, 64, 128) for name in ("c2", "c2+ccp")
    )
  ),
  "table-3.2": FullConfig(
    methods=("c1+ccp", "c2+ccp", "ms+ccp"), protocol="conventional"
  ),
  # Total steps, of products and clothes alone.
  "table-3.3": FullConfig(dataset="sop", methods=tuple(dml.TABLE_3_3)),
  "table-5.2": FullConfig(methods=("c1+xbm", "c1+xbm+gsp"), protocol="conventional534"),
  "table-5.3": FullConfig(methods=tuple(dml.TABLE_5_3), protocol="fair534"),
  "figure-5.12": FullConfig(
    methods=tuple(
      f"{loss}+{name}"
      for loss in ("c2", "proxy_nca")
      for name in (*poolings.TITLES, *poolings.WIDE)
    ),
    protocol="fair534",
    zero_shot=0.0,  # poolings alone are compared
  ),
  "figure-3.5": FullConfig(
    methods=("c2+ccp",),
    protocol="ablation",
    pool=16,
    search=(("weight", 1e-6, 1.0), ("proxies", 1, 16)),
    trials=32,
  ),
  "table-5.1": FullConfig(
    methods=tuple(dict.fromkeys(key[0] for key in dml.TABLE_5_1)),
    protocol="fair534",
  ),
}

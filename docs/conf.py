"""Sphinx settings, and the check that every public symbol has its place."""

import importlib
import re

import sphinx.errors

import spherejax

project = "spherejax"
author = "the spherejax authors"
copyright = author
release = spherejax.__version__

extensions = [
  "myst_parser",
  "sphinx.ext.autodoc",
  "sphinx.ext.mathjax",
  "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "benchmarks/*"]
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

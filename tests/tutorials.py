"""The programs that stand on the pages of tutorials, for tests that run them."""

import doctest
import pathlib
import re

FOLDER = pathlib.Path(__file__).parents[1] / "docs" / "tutorials"


def programs(page: str | pathlib.Path) -> list[str]:
  """The blocks of Python of a tutorial or a file; of examples what follows prompts."""
  text = (FOLDER / page).read_text()
  made = []
  for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
    examples = doctest.DocTestParser().get_examples(block)
    made.append("".join(example.source for example in examples) or block)
  return made

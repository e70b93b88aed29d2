"""The commands of this folder: python -m experiments."""

import ast
import pathlib


def main() -> None:
  """Prints the name and purpose of every experiment, one a line."""
  for path in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py")):
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    print(f"{path.stem:20} {text.partition(chr(10))[0]}")
  print("\npython -m experiments.NAME --help lists the options of one of them.")


if __name__ == "__main__":
  main()

"""The pages are in plain English, as far as a program can tell."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
  ROOT / "README.md",
  *sorted(DOCS.glob("*.md")),
  *sorted(DOCS.glob("tutorials/*.md")),
]
MOST_WORDS = 35
EMPTY_OPENINGS = re.compile(r"(Of|Those|That of|What|All of it|The same)\b(?!.*\?$)")
# What the prose of a page has in place of its other parts.
REPLACED = [
  (r"(?s)<!--.*?-->", ""),
  # A caption is prose; other fenced blocks are code.
  (r"(?ms)^```\{figure\}[^\n]*\n(?::[^\n]*\n)*(.*?)^```$", r"\n\1\n"),
  (r"(?ms)^(```+).*?^\1$", "\n"),
  (r"(?s)\$\$.*?\$\$", " formula "),
  (r"`[^`]*`|\$[^$]*\$", "name"),
  (r"!?\[([^\]]*)\]\([^)]*\)", r"\1"),
  # Tables, headings, and the machines and versions above a benchmark's table.
  (r"(?m)^(\||#|    |\(\S+\)=|name on \d+ cores).*$", ""),
  (r"(?m)^ *(\*|-|\d+\.) ", "\n\n"),
]


def sentences(text: str) -> list[str]:
  """The sentences of a page's paragraphs, lists and captions."""
  for pattern, other in REPLACED:
    text = re.sub(pattern, other, text)
  return [
    sentence
    for paragraph in re.split(r"\n\s*\n", text)
    for sentence in re.split(
      r"(?<=[.?!])[*)]*\s+(?=\W*[A-Z]|name)", " ".join(paragraph.split())
    )
    if sentence
  ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short_and_begin_with_their_subject(page):
  spoken = sentences(page.read_text())
  long = [s for s in spoken if len(re.findall(r"[\w'-]+", s)) > MOST_WORDS]
  empty = [s for s in spoken if EMPTY_OPENINGS.match(s.lstrip("*_( "))]
  assert not long
  assert not empty


def test_sentences_are_told_apart():
  page = "One. Two `a. b` is [a\nlink](x.md).\n\n* three\n\n```sh\nno.\n```\n| no. |\n"
  assert sentences(page) == ["One.", "Two name is a link.", "three"]
  figure = "```{figure} a.png\n:alt: no\n\nA caption.\n```\n"
  assert sentences(figure) == ["A caption."]

"""Reads citations of the five works, for `test_citations.py`.

A citation is the short name of a work and places in it: "DML 5.3.2" (a section), "DML
eq. 5.2.4", "DL2P tables 1 and 3", "DIST II 3.1 and appendix D", where a Roman numeral
is one of the thesis's articles. `papers.toml` lists the places that exist.
"""

import pathlib
import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

_PLAIN = (
  "chapter table figure algorithm proposition corollary lemma claim definition theorem "
  "observation result problem appendix"
)
KINDS = {word: word for word in _PLAIN.split()}
KINDS |= {"eq.": "equation", "eqs.": "equation"}
"""Words for places in docstrings; words that are not abbreviated may have an s."""

_SHORT = (
  "equation=equation eq=equation eqs=equation tab.=table fig.=figure prop.=proposition "
  "cor.=corollary thm.=theorem section=section"
)
SHORTENED = dict(pair.split("=") for pair in _SHORT.split())
"""Further words for places in table labels and running text, in either case."""

_PARTS = r"[1-9]\d*(?:\.\d+)*"
_NUMBER = rf"(?:[A-Z]?{_PARTS}|[A-Z](?:\.\d+)*)(?:[a-z]\b|\([a-z]\))?(?![\w%])"
_WORK = r"\b(?P<work>DML|DIST|NCH|SSL|DL2P)\b(?:['’]s)?"
_ARTICLE = r"(?: (?P<article>IV|I{1,3})\b)?"
_LONG_ARTICLE = r"(?:,? (?:[Aa]rticle )?(?P<article>IV|I{1,3})\b)?"
_CITED_WORK = re.compile(r"\b(1[89]|20)\d\d\b|\"")


class Citation(NamedTuple):
  work: str
  kind: str
  number: str


class Passage(NamedTuple):
  """A mention of a work, with the citations that follow it."""

  work: str
  citations: list[Citation]
  start: int
  end: int


def _words(kinds: dict[str, str]) -> str:
  return "|".join(rf"{re.escape(w)}{'' if w.endswith('.') else 's?'}" for w in kinds)


WORDS = _words(KINDS | SHORTENED)
"""Regular expression of all words that precede a number."""


def _kind(word: str) -> str:
  word = word.lower()
  every = KINDS | SHORTENED
  return every.get(word) or every[word.removesuffix("s")]


def _places(text: str, start: int, words: str) -> tuple[list[tuple[str, str]], int]:
  """Pairs of kind and number from `start` on, and where they end."""
  item = re.compile(
    rf"(?:(?P<kind>{words}) )?(?P<first>{_NUMBER})(?:(?:-| to )(?P<last>{_NUMBER}))?"
  )
  places, kind, end = [], "section", start
  between = re.compile(r",? ")
  while True:
    gap = between.match(text, end)
    found = item.match(text, gap.end()) if gap else None
    if not found:
      return places, end
    kind = _kind(found["kind"]) if found["kind"] else kind
    lettered = found["kind"] or kind in ("appendix", "problem")
    if found["first"][0].isalpha() and not lettered:
      return places, end
    places += [(kind, number) for number in _range(found["first"], found["last"])]
    end = found.end()
    between = re.compile(r",? and |, | & ")


def _range(first: str, last: str | None) -> list[str]:
  """The numbers from the first to the last, without the letters of panels."""
  low, high = (re.sub(r"\(?[a-z]\)?$", "", n) for n in (first, last or first))
  if low == high:
    return [low]
  stem = low.rstrip("0123456789")
  start, end = low.removeprefix(stem), high.removeprefix(stem)
  assert end.isdecimal(), f"{first} to {last} is no range"
  assert int(start) < int(end), f"{first} to {last} is no range"
  return [f"{stem}{number}" for number in range(int(start), int(end) + 1)]


def passages(text: str, *, strict: bool) -> Iterator[Passage]:
  """Finds all mentions of the five works; `strict` accepts only one way of citing."""
  words = _words(KINDS) if strict else f"(?i:{WORDS})"
  mention = re.compile(_WORK + (_ARTICLE if strict else _LONG_ARTICLE))
  for found in mention.finditer(text):
    work = found["work"]
    citations = []
    if found["article"]:
      citations.append(Citation(work, "article", found["article"]))
    places, end = _places(text, found.end(), words)
    part = f"{work} {found['article']}" if found["article"] else work
    citations += [Citation(part, *place) for place in places]
    yield Passage(work, citations, found.start(), end)


def unread(text: str) -> list[str]:
  """Finds text that looks like a place in one of the works but was not read as one.

  Places in other works do not count: those in a part, between semicolons or full stops,
  with a year or a title.
  """
  rest = text
  for p in passages(text, strict=True):
    rest = rest[: p.start] + "#" * (p.end - p.start) + rest[p.end :]
  place = re.compile(
    rf"\b(?i:{WORDS}|article|supplement|appendices)"
    rf"(?: {_NUMBER}| \(\d| (?:IV|I{{1,3}})\b)|##,? \d|\bits (?:\w+ )?article\b"
  )
  return [
    found[0]
    for found in place.finditer(rest)
    if not _CITED_WORK.search(re.split(r"; |\. (?=[A-Z]|$)", rest[: found.start()])[-1])
  ]


def sources(code: str) -> list[str]:
  """The "Source:" paragraphs of a module, each on one line."""
  found = re.findall(r"^ *Source: ((?:.+\n)+?)(?=\s*\n| *\"\"\")", code, re.MULTILINE)
  return [" ".join(paragraph.split()) for paragraph in found]


def running(text: str) -> str:
  """Text without its line breaks and the marks of comments."""
  return re.sub(r"\s*\n\s*(?:#:? )?", " ", text)


def _expanded(ranges: list[str]) -> set[str]:
  ends = (one.partition("-")[::2] for one in ranges)
  return {number for first, last in ends for number in _range(first, last or None)}


def existing() -> dict[str, dict[str, set[str]]]:
  """Reads the existing numbers from `papers.toml`, by work and kind."""
  works = tomllib.loads((pathlib.Path(__file__).parent / "papers.toml").read_text())
  return {
    work: {kind: _expanded(numbers) for kind, numbers in kinds.items()}
    for work, kinds in works.items()
  }

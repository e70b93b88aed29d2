"""Every place in the papers that the package cites exists."""

import pathlib
import re

import pytest

from tests import citations
from tests.citations import Citation

ROOT = pathlib.Path(__file__).parent.parent
PLACES = citations.existing()
MODULES = sorted(ROOT.joinpath("spherejax").rglob("*.py"))
SOURCES = [
  (str(path.relative_to(ROOT)), paragraph)
  for path in MODULES
  for paragraph in citations.sources(path.read_text())
]
TEXTS = [
  path
  for folder in ("spherejax", "experiments", "benchmarks", "tests", "docs")
  for path in ROOT.glob(f"{folder}/**/*")
  if path.suffix in (".py", ".md")
  and path.name not in ("citations.py", "test_citations.py", "results.md")
  and path.parent != ROOT / "docs" / "results"  # generated from results
]
TEXTS.append(ROOT / "README.md")


def exists(citation: Citation) -> bool:
  kinds = ("section", "chapter") if citation.kind == "section" else (citation.kind,)
  return any(citation.number in PLACES[citation.work].get(kind, ()) for kind in kinds)


def cited(text: str, *, strict: bool = True) -> list[Citation]:
  passages = citations.passages(text, strict=strict)
  return [citation for passage in passages for citation in passage.citations]


def test_every_source_names_places_that_exist():
  wrong = [
    f"{file}: {' '.join(citation)}, of {source!r}"
    for file, source in SOURCES
    for citation in cited(source)
    if not exists(citation)
  ]
  assert not wrong, "\n".join(wrong)


def test_every_source_that_names_a_work_names_a_place_of_it():
  wrong = []
  for file, source in SOURCES:
    found = list(citations.passages(source, strict=True))
    placed = {passage.work for passage in found if passage.citations}
    wrong += [f"{file}: {p.work} in {source!r}" for p in found if p.work not in placed]
  assert not wrong, "\n".join(wrong)


def test_there_is_one_way_of_citing():
  wrong = [
    f"{file}: {citations.unread(source)} of {source!r}"
    for file, source in SOURCES
    if cited(source) and citations.unread(source)
  ]
  assert not wrong, "\n".join(wrong)


def test_the_sources_are_found():
  # If the form of docstrings changed, there would be nothing to check.
  text = "".join(path.read_text() for path in MODULES)
  assert len(SOURCES) == len(re.findall(r"^ +Source: ", text, re.MULTILINE)) > 400
  assert sum(bool(cited(source)) for _, source in SOURCES) > 200


def test_citations_of_comments_pages_and_experiments_exist():
  named = [
    (f"{path.relative_to(ROOT)}: {' '.join(citation)}", exists(citation))
    for path in TEXTS
    for citation in cited(citations.running(path.read_text()), strict=False)
  ]
  wrong = [name for name, is_there in named if not is_there]
  assert not wrong, "\n".join(wrong)
  assert len(named) > 600


def test_places_of_the_errata_exist():
  page = (ROOT / "docs" / "errata.md").read_text()
  wrong, count = [], 0
  for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
    work = re.search(r"\((DML|DIST|NCH|SSL|DL2P)(?:,? article (I+V?))?", section)
    if not work:
      continue
    name = " ".join(part for part in work.groups() if part)
    for row in re.findall(r"^\| ((?!place|---).+?) \|", section, re.MULTILINE):
      place = re.sub(r"^(after|article IV,? ?)|^$", "", row).strip()
      article = "DIST IV" if row.startswith("article IV") else name
      place = re.sub(r"\((\d+)\)", r"eq. \1", place)
      found = cited(f"{article} {place}", strict=False)
      count += len(found)
      wrong += [f"{row}: {' '.join(c)}" for c in found if not exists(c)]
  assert not wrong, "\n".join(wrong)
  assert count > 80


def test_no_citation_of_a_comment_or_page_is_passed_over():
  unclear = []
  for path in TEXTS:
    text = citations.running(path.read_text())
    for passage in citations.passages(text, strict=False):
      behind = text[passage.end : passage.end + 20]
      if not passage.citations and re.match(
        rf",? (?:(?i:{citations.WORDS}) ?)?\(?\d", behind
      ):
        unclear.append(f"{path.relative_to(ROOT)}: {passage.work}{behind}")
  assert not unclear, "\n".join(unclear)


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("DML 5.3.2 (grid 2).", "DML section 5.3.2"),
    ("DML 5.3.5, which pools 8", "DML section 5.3.5"),
    ("NCH eqs. 19 to 21.", "NCH equation 19,NCH equation 20,NCH equation 21"),
    ("SSL proposition 3.1, eqs. 3-4;",
     "SSL proposition 3.1,SSL equation 3,SSL equation 4"),
    ("DIST II eq. 2 and appendix D",
     "DIST article II,DIST II equation 2,DIST II appendix D"),
    ("DIST IV; Barz 2019, eq. 1", "DIST article IV"),
    ("DL2P figure 4b", "DL2P figure 4"),
    ("DML figure 5.12(b), GSP", "DML figure 5.12"),
    ("DML 5.2.1, problem P1; see P2", "DML section 5.2.1,DML problem P1"),
    ("SSL tables 1 and 2, strength 0.5", "SSL table 1,SSL table 2"),
    ("DML's retrieval experiments", ""),
    ("DML Fig. 5.4", ""),
  ],
)  # fmt: skip
def test_reading(text, expected):
  assert ",".join(" ".join(citation) for citation in cited(text)) == expected


NOWHERE = (
  "DML 2.1.6 and 2.1.7 | DML eq. 5.2.6 | DL2P 3.3 | DIST 3.4 | DIST II eq. 12 | "
  "SSL proposition 4.4 | DML 4.2.1 and 4.2.5 | NCH table 4 | DIST IV 2.1"
)
OTHER_WAYS = (
  "DML Fig. 5.4 | DIST 5.2 and its article I | DIST, article II, eq. 3 | "
  "SSL eq. 10. Its eq. 9 is wrong. | DML section 5.3 | DML 5.2.3, equation 5.2.4 | "
  "DIST IV, supplement 1 | DML 1.1; Hadsell 2006. Equation 1.1.1 averages."
)


def test_places_that_do_not_exist_and_other_ways_of_citing_are_noticed():
  nowhere, others = NOWHERE.split(" | "), OTHER_WAYS.split(" | ")
  unnoticed = [x for x in nowhere if all(exists(citation) for citation in cited(x))]
  unnoticed += [x for x in others if not citations.unread(x)]
  assert not unnoticed
  # Places of other works are none of ours.
  assert not citations.unread('DML 2.1.3; Kim et al. 2020, "Proxy anchor", eq. 4.')
  assert not citations.unread('Barz and Denzler 2019, "Images", section 3; DIST IV.')

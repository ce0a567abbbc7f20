"""Words and phrases that read as translated, and must not come back: in the documents, the lessons, and the package's
messages and docstrings. (How to write instead is in CONTRIBUTING.md.)
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
INSTEAD = {
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again, from scratch",
    r"(does|did) not hold(?! off)": "this is false",
    r"equally (many|large|long)": "the same number of, of the same size, the same time",
    r"so many(?! \w+ that)": "this many, N",
    r"besides": "also, in addition to",
    r"beside (no|other things|backward|the rest)": "at the same time as, alongside",
    r"(is|are|was|were|be) told(?! apart)": "reports, prints, stops with",
    r"tells? of": "reports",
    r"(to|of|for) who": "to those who",
    r"(ranks|cards|lessons|moments|those|names|ones) that there (is|are)": "available, that exist",
    r"c[ao]mes? to (its|an|their) end": "finishes",
    r"(do|does|did) not come to": "never reaches",
    r"(is|are|was|were) asked for": "was requested",
    r"(it|NCCL|torch|CUDA|which|one|function|op) wants": "needs, expects",
    r"as it were": "(leave it out)",
    r"(torch|PyTorch|kernels|cards) of today": "current",
    r"the running torch": "the installed torch",
    r"illness|cures?": "problem, fix",
    r"fault of ours": "bug",
    r"commonest": "most common",
    r"\w+s of (its|one's|their) own(?= each)": "its own",
    r"is to be (seen|done|made|said)": "can be seen, to do",
    r"not .{0,30} any more": "no longer, not … anymore",
    r"(?<!there )is no (name|number|exercise|tensor|whole number|dtype|gap|power|call|time zone)": "is not a …",
    r"none from [\d.,]+( \w+)? on": "none at 90 ms or more",
    r"(a|the|each|whole) training (that|is|was|holds|takes)": "a training run",
    r"the other way round": "the other way around",
    r"(takes?|taking) turns: (a|one) backward": "alternates",
    r"(of|plans?|during) a training(?! (run|step|loop|program|script))": "a training run",
    r"(can|cannot) go on|goes on (from|with|until|by)": "continues",
    r"half as much again": "1.5 times as much",
    r"would have fitted": "would have fit",
    r"by what it is for": "by category",
    r"(above|below) are met": "pass",
    r"needs? (it|them) no more": "no longer needs",
    r"in every turn|turns? of the loop": "iteration",
    r"for ever": "forever",
    r"loads itself": "reloads itself",
}
SCANNED = (".md", ".py", ".ipynb", ".yaml", ".html", ".ts")
AMERICAN = {
    r"\w*(colour|behaviour|neighbour|favour|honour|labour)\w*": "American spelling: color, behavior, neighbor",
    r"(optim|organ|initial|recogn|real|summar|normal|serial|synchron|minim|maxim|util|parallel|vector|special|"
    r"general|standard|visual|custom|token|emphas|character|stabil|quant|categor)is(e[ds]?|ing|ations?)": "-ize",
    r"analys(e[ds]?|ing)|centre[ds]?|grey|licence|artefacts?|whilst|amongst|learnt": "American spelling",
    r"(label|model|travel|cancel|signal)l(ed|ing)": "labeled, modeled, traveling",
    r"(?<=[a-z,] )catalogues?(?!`)": "catalog",
    r"(?<=\d) %(?=[.,;:)|]| (of|more|less|longer|shorter|faster|slower|and|busy|to|in|is|at)\b|$)": "99%, closed up",
}
PATTERN = re.compile("|".join(rf"\b(?:{words})\b" for words in INSTEAD), re.IGNORECASE)
SPELLING = re.compile("|".join(rf"\b(?:{words})(?!\w)" for words in AMERICAN), re.IGNORECASE)


def _of_python(path: Path, docstrings: bool) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if docstrings or (id(node) not in statements and not node.value.isidentifier()):  # that is a name in the code
            yield node.value


def _texts(path: Path, docstrings: bool) -> Iterator[str]:
    if path.suffix == ".py":
        yield from _of_python(path, docstrings)
    elif path.suffix == ".ipynb":
        yield from ("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
    elif path.suffix == ".ts":  # what JupyterLab's extension says
        yield from re.findall(r"_[_n]\(\s*'([^']*)'", path.read_text(encoding="utf-8"))
    else:
        yield path.read_text(encoding="utf-8")


def _found(paths: list[Path], pattern: re.Pattern[str], docstrings: bool = True) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: …{' '.join(text[max(hit.start() - 40, 0) : hit.end() + 20].split())}…"
        for path in paths
        for text in _texts(path, docstrings)
        for hit in pattern.finditer(text)
    ]


WHERE = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "lessons/source/*/*",
    "fakegpu_lab/**/*.py",
    "fakegpu_lab/**/*.html",
    "labextension/src/**/*.ts",
]


def _scanned(where: str) -> list[Path]:
    return [path for path in sorted(ROOT.glob(where)) if path.suffix in SCANNED]


@pytest.mark.parametrize("where", WHERE)
def test_words_that_read_as_translated_do_not_come_back(where: str) -> None:
    found = _found(_scanned(where), PATTERN)
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("where", [*WHERE, "fakegpu_lab/course/**/*.py"])
def test_what_students_read_has_american_spelling(where: str) -> None:
    """Documents, lessons and messages; of docstrings, those of the tools that lessons and their authors use."""
    found = _found(_scanned(where), SPELLING, docstrings="course" in where)
    assert found == [], "\n".join(found)


def test_such_a_word_is_found() -> None:
    assert PATTERN.search("Mend it, or there are equally many.")
    assert not PATTERN.search("It depends on the recommended setting.")
    for text in ("Neighbouring colours", "are normalised.", "in the catalogue.", "99 % of it"):
        assert SPELLING.search(text)
    assert not SPELLING.search("A supervised exercise: neighbors, analysis, initial, 99% of it; x = 5 % y")

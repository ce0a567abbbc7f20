"""Honest notebooks in styles that differ, for every lesson: classes, helpers, plots, bars of progress, prints, magics.

python -m tests.course.attacks.honest              # grades all of them with `fakegpu-lab grade`: some minutes
python -m tests.course.attacks.honest 01 02        # those of two lessons
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, NamedTuple

import nbformat

from fakegpu_lab.course.authoring.answers import grade_id, handed_in, is_solution, replaced
from fakegpu_lab.course.grade import graded_lesson as lessons
from fakegpu_lab.course.lessons import extras
from fakegpu_lab.course.lessons import lesson as yaml
from fakegpu_lab.course.lessons.release import released

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.course.grade.submissions import Submission

SOURCE = Path(__file__).parents[3] / "lessons" / "source"
LESSONS = sorted(path.parent.name for path in SOURCE.glob("*/lesson.yaml") if "exercises:" in path.read_text())

OWN_CELLS = {
    "a class of one's own": """
from dataclasses import dataclass, field
from collections import namedtuple

@dataclass
class Timing:
    name: str
    milliseconds: float = 0.0
    runs: list = field(default_factory=list)

    def __post_init__(self):
        self._total = sum(self.runs)

    def __repr__(self):
        return f"{self.__class__.__name__}({self.name}, {self._total})"

Point = namedtuple("Point", "x y")
print(Timing("mine", runs=[1.0, 2.0]), Point(1, 2)._asdict())
""",
    "helper functions": """
import math, random, itertools, functools, time, os, sys, gc

def table_of(*rows, width=8, **options):
    for row in rows:
        print(*(f"{str(cell):<{width}}" for cell in row))

def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            print(f"{function.__name__}: {time.perf_counter() - start:.3f} s")
    return wrapper

@timed
def triangle(n):
    return list(itertools.accumulate(range(n)))

table_of(("a", 1), ("b", math.pi), ("here", os.getcwd()[:3]), (sys.version_info[0], sys.getsizeof(3)))
triangle(5); gc.collect(); random.seed(1)
""",
    "a plot": """
import matplotlib.pyplot as plt
import numpy as np
%matplotlib inline
plt.rcParams["figure.figsize"] = (4, 2)
figure, axes = plt.subplots()
axes.plot(np.linspace(0, 1, 5), np.linspace(0, 1, 5) ** 2, label="mine")
axes.set_title("a plot"); axes.legend()
plt.close(figure)
""",
    "a bar of progress": """
from tqdm.auto import tqdm
total = 0
for step_of_mine in tqdm(range(20), file=sys.stdout if "sys" in dir() else None, disable=False):
    total += step_of_mine
print(total)
""",
    "another look at the GPU": """
!nvidia-smi
%time print(torch.cuda.get_device_name(0))
print(torch.cuda.memory_allocated() / 2**20, torch.cuda.max_memory_reserved(0), torch.__version__)
print(lab.snapshot().devices[0].counters.h2d_bytes)
""",
    "recordings of one's own": """
with lab.record() as mine:
    (torch.ones(100, 100).to("cuda") @ torch.ones(100, 100, device="cuda")).sum().item()
print(mine.summary())
print(len(mine.kernels), mine.transfers[0].nbytes, mine.elapsed, [kernel.name for kernel in mine.kernels])
mine.by_line()
""",
    "imports again, and errors": """
import torch, numpy as np
import torch.nn.functional as F
from torch import nn, optim
from typing import Any, Optional
try:
    torch.ones(2, device="cuda") @ torch.ones(3)
except (RuntimeError, ValueError) as error:
    print(type(error).__name__, str(error).splitlines()[0], error.args)
torch.backends.cuda.matmul.allow_tf32 = False
torch.set_printoptions(precision=3)
""",
    "a small model": '''
class Tiny(torch.nn.Module):
    """A model of mine; its __init__ makes two layers."""
    def __init__(self, width=4):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
        for name, value in {"width": width}.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.layers(x)

    def __len__(self):
        return len(self.layers)

tiny = Tiny().to("cuda")
sgd = torch.optim.SGD(tiny.parameters(), lr=0.1)
tiny(torch.ones(2, 4, device="cuda")).sum().backward()
sgd.step(); sgd.zero_grad()
with torch.no_grad():
    for parameter in tiny.parameters():
        parameter.mul_(0.5)
print({name: tuple(one.shape) for name, one in tiny.state_dict().items()}, getattr(tiny, "width", None))
''',
    "files and lambdas": """
from pathlib import Path
import json, csv
with open("notes.json", "w") as file:
    json.dump({"a": [1, 2]}, file)
print(json.loads(Path("notes.json").read_text()), sorted([3, 1], key=lambda one: -one), (lambda *xs: max(xs))(1, 2))
torch.save({"w": torch.ones(2)}, "mine.pt")
print(torch.load("mine.pt", weights_only=True))
if __name__ == "__main__":
    print("ran")
""",
    "magics and half an idea": """
%%time
numbers = [n**2 for n in range(10) if n % 2]
assert numbers == [1, 9, 25, 49, 81]
# TODO: ask about this
""",
}
"""Cells that a student adds, one style each."""


def as_solved(name: str, code: str) -> str:
    return code


def with_prints(name: str, code: str) -> str:
    return code + f'\nprint("done with {name}")'


def with_comment(name: str, code: str) -> str:
    return code.replace("\n", f"\n# my answer to {name}: eval, exec and __class__ are words, too\n", 1)


PDB = """import pdb
DEBUG = False
{code}
if DEBUG:
    pdb.set_trace()
if __debug__ and DEBUG:
    breakpoint()
"""
LOGGED = """import logging
logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("mine")
log.debug("begin")
{code}
log.warning("%s is done", "{name}")
"""
MANAGED = """from contextlib import contextmanager, suppress, nullcontext, redirect_stdout
import io, time

@contextmanager
def phase(name, quiet=True):
    began = time.perf_counter()
    try:
        yield name
    finally:
        if not quiet:
            print(f"{{name}} took {{time.perf_counter() - began:.2f}} s")

with phase("{name}", quiet=False) as _phase, nullcontext():
{indented}
"""
WATCHED = '''class Stopwatch:
    """My own: `with Stopwatch() as watch`."""
    _started: float = 0.0

    def __enter__(self) -> "Stopwatch":
        import time
        self._clock = time.perf_counter
        self._started = self._clock()
        return self

    def __exit__(self, kind, error, traceback) -> bool:
        self.seconds = self._clock() - self._started
        return False

    def __str__(self):
        return f"{{self.seconds:.1f}} s"

with Stopwatch() as watch:
{indented}
print(watch)
'''
TRIED = """try:
{indented}
except (RuntimeError, ValueError) as error:
    print("that went wrong:", error)
    raise
else:
    print("{name}: fine")
finally:
    pass
"""
ONCE = """for _versuch in range(1):
{indented}
"""
CHOSEN = """schritt, art = 1, "plain"
match (schritt, art):
    case (1, "plain" | "fancy"):
{twice}
    case _:
        raise NotImplementedError
"""
PLOTTED = """{code}
import plotly.graph_objects as go
fig = go.Figure([go.Bar(x=["a", "b"], y=[1, 2]), go.Scatter(x=[0, 1, 2], y=[k**2 for k in range(3)], mode="lines")])
fig.update_layout(title="{name}", height=200); fig.show()
"""
FOREIGN = """# 這是我的答案。 Größe und Überprüfung: ça marche? \U0001f600
größe, переменная, 変数 = 3, [1, 2], {{"ключ": "значение"}}
{code}
def überprüfe(wert, *, ε=1e-6):
    '''Prüft, ob ein Wert fast null ist (ошибка < ε).'''
    return abs(wert) < ε
print(überprüfe(0.0), "готово:", größe, *переменная, 変数["ключ"])
"""
TYPED = """from typing import Any, Callable, Final, Literal, NamedTuple, Optional, Protocol, TypeVar, Union, cast
T = TypeVar("T")
LIMIT: Final[int] = 3
class Pair(NamedTuple):
    left: float
    right: "Optional[torch.Tensor]" = None
class Shaped(Protocol):
    def size(self, dim: int) -> int: ...
def first(items: list[T], default: Optional[T] = None) -> Union[T, None]:
    return items[0] if items else default
{code}
kept: dict[str, Any] = {{"{name}": first([1, 2])}}
"""
LAZY = """{code};
shown = [print(f"{{k=}}", end=" ") for k in range(3)]; _ = (lambda: None)()
if (count_of := len(shown)) > 2: print("so viele:", count_of)
assert count_of == 3, "that cannot be"
%time total_of = sum(range(1000))
!nvidia-smi -L
"""
WARNED = """import warnings, sys
warnings.warn("I am not sure about this one")
{code}
print("a note to myself", file=sys.stderr)
"""
SCRIPTED = '''{code}

def main() -> int:
    """As in a script."""
    print("{name}")
    return 0

if __name__ == "__main__":
    main()
'''


class Unusual(NamedTuple):
    """A style that few students have: a text around each answer, and a cell of one's own at the very beginning."""

    answer: str = "{code}"
    early: str = ""
    rerun: bool = False
    spelled: Callable[[str], str] = str


UNUSUAL = {
    "a debugger": Unusual(PDB, "import pdb"),
    "logging": Unusual(LOGGED, "import logging\nlogging.getLogger().setLevel(logging.INFO)\nlogging.info('hello')"),
    "context managers": Unusual(MANAGED),
    "a class with __enter__": Unusual(WATCHED),
    "errors that are caught": Unusual(TRIED),
    "a loop of one": Unusual(ONCE),
    "a match": Unusual(CHOSEN),
    "plots": Unusual(PLOTTED, "%matplotlib inline\nimport matplotlib as mpl\nmpl.rcParams['axes.grid'] = True"),
    "other languages": Unusual(FOREIGN, "π, ñandú = 3.14159, 'pájaro'\nprint(π, ñandú)"),
    "type annotations": Unusual(TYPED),
    "early star imports": Unusual(
        "from math import *\n{code}",
        "from math import *\nfrom torch.nn import *\nfrom torch.nn.functional import *\nfrom typing import *",
    ),
    "lines of all kinds": Unusual(LAZY),
    "warnings and stderr": Unusual(WARNED),
    "a script's main": Unusual(SCRIPTED, "import os, sys\nprint(os.getcwd()[:1], sys.argv[:0])"),
    "cells that were run again": Unusual(rerun=True),
    "tabs": Unusual(ONCE, spelled=lambda text: text.replace("    ", "\t")),
    "line ends of Windows": Unusual(MANAGED, spelled=lambda text: text.replace("\n", "\r\n")),
}


def unusual(style: Unusual, name: str, code: str) -> str:
    """An answer in an unusual style; one with magics of its own stays as it is."""
    head, _, body = code.partition("\n")
    if not head.startswith("%%exercise") or re.search(r"(?m)^\s*[%!]|=\s*[%!]", body):
        return code
    parts = {"name": name, "code": body.strip("\n"), "indented": indent(body, "    "), "twice": indent(body, " " * 8)}
    return style.spelled(f"{head}\n{style.answer.format(**parts).rstrip()}")


STYLES: list[Callable[[str, str], str]] = [as_solved, with_prints, with_comment]


class Material:
    """A lesson, its starter and its solutions."""

    def __init__(self, name: str) -> None:
        self.lesson = lessons.load(SOURCE / name)
        self.yaml = yaml.load(SOURCE / name)
        self.source = nbformat.read(SOURCE / name / f"{name}.ipynb", as_version=4)
        self.starter: Any = released(self.source)
        self.solutions = {grade_id(cell): cell.source for cell in self.source.cells if is_solution(cell)}

    def notebook(self, style: int) -> Submission:
        """The submission of one student: answers, and cells of the student's own after the first."""
        answers = {}
        for number, (name, code) in enumerate(self.solutions.items()):
            wrong = next((one.wrong for one in self.yaml.exercises if one.id == name and one.wrong), ())
            if style % 3 == 1 and number % 2:
                answers[name] = next(cell.source for cell in self.starter.cells if grade_id(cell) == name)
            elif style % 3 == 2 and wrong:
                answers[name] = replaced(code, wrong[style % len(wrong)].code)
            else:
                answers[name] = STYLES[(style + number) % 3](name, code)
        made = handed_in(self.source, self.starter, answers, f"student-{style}")
        return self.with_cells(made, [list(OWN_CELLS.values())[style]])

    def mixed(self) -> Submission:
        """A right answer to everything, in all styles, with all of those cells."""
        answers = {name: STYLES[number % 3](name, code) for number, (name, code) in enumerate(self.solutions.items())}
        made = handed_in(self.source, self.starter, answers, "ada")
        return self.with_cells(made, list(OWN_CELLS.values()))

    def expected(self, student: str) -> tuple[float, float]:
        """The fewest and the most points that a student's answers earn: later exercises may need earlier ones."""
        style = int(student.rpartition("-")[2]) if "-" in student else 0
        if style % 3 == 0:
            return self.yaml.points, self.yaml.points
        if style % 3 == 1:
            return 0, sum(one.points for number, one in enumerate(self.yaml.exercises) if not number % 2)
        wrong = [
            (one.points, one.wrong[style % len(one.wrong)].score if one.wrong else None) for one in self.yaml.exercises
        ]
        return 0, sum(points if score is None else score for points, score in wrong)

    def unusual(self, name: str) -> Submission:
        """A right answer to everything, in one unusual style."""
        style = UNUSUAL[name]
        if any("as dist" in cell.source for cell in self.source.cells):  # math has a `dist`, too: the lesson's is lost
            answer, early = (text.replace("from math", "from cmath") for text in (style.answer, style.early))
            style = style._replace(answer=answer, early=early)
        answers = {exercise: unusual(style, exercise, code) for exercise, code in self.solutions.items()}
        made = handed_in(self.source, self.starter, answers, f"u{list(UNUSUAL).index(name):02}")
        notebook = json.loads(made.notebook)
        if style.early:
            notebook["cells"].insert(0, _code(style.early))
        for position in reversed(range(len(notebook["cells"]) if style.rerun else 0)):
            cell = notebook["cells"][position]  # answers were copied above themselves, and counts are in disorder
            if cell["cell_type"] == "code":
                cell["execution_count"] = 100 - position
                if cell["metadata"].get("nbgrader", {}).get("solution"):
                    notebook["cells"].insert(position, json.loads(json.dumps(cell)))
        return made.model_copy(update={"notebook": json.dumps(notebook).encode()})

    def with_cells(self, submission: Submission, cells: list[str]) -> Submission:
        """A submission with cells of the student's own after the first code cell and at the end."""
        notebook = json.loads(submission.notebook)
        at = next(i for i, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code") + 1
        notebook["cells"][at:at] = map(_code, cells)
        return submission.model_copy(update={"notebook": json.dumps(notebook).encode()})


def _code(text: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": text.strip(), "metadata": {}, "outputs": []}


def unusual_for(lesson: str) -> list[str]:
    """The unusual styles that a lesson is handed in with: each style comes with two lessons or more."""
    at = LESSONS.index(lesson)
    return [name for number, name in enumerate(UNUSUAL) if (number - at) % len(LESSONS) in (0, 4)]


LIMITS = ("--cell-seconds", "120", "--total-seconds", "600", "--memory", "4GiB")


def graded(lesson: str, submissions: list[Submission], folder: Path, jobs: int = 1) -> list[dict[str, str]]:
    """The rows of ``grades.csv`` after ``fakegpu-lab grade``."""
    for one in submissions:
        path = folder / "submitted" / one.student / lesson / f"{lesson}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(one.notebook)
    options = ["--lesson", str(SOURCE / lesson), "submitted", "--out", "grades.csv", "--jobs", str(jobs), *LIMITS]
    command = [sys.executable, "-m", "fakegpu_lab", "grade", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with (folder / "grades.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main(names: list[str]) -> int:
    """Grade the honest notebooks of lessons, and print a row for each; return how many are flagged, or earn less."""
    count = rare = flagged = other = 0
    for name in [one for one in LESSONS if not names or one[:2] in names]:
        material, began = Material(name), time.perf_counter()
        absent = extras.missing(material.yaml.all_needs)
        if absent:
            print(f"{name} is skipped: {extras.sentence(absent)}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            submissions = [material.mixed(), *map(material.notebook, range(len(OWN_CELLS)))]
            submissions += map(material.unusual, unusual_for(name))
            rare += len(unusual_for(name))
            rows = graded(name, submissions, Path(folder), jobs=2)
        scores = ", ".join(f"{float(row['score']):g}" for row in rows)
        took = time.perf_counter() - began
        print(f"{name}: {len(rows)} notebooks in {took:.0f} s, of {float(rows[0]['max_score']):g} points: {scores}")
        for row in rows:
            count, flagged = count + 1, flagged + bool(row["flags"])
            least, most = material.expected(row["student_id"])
            if not least - 1e-6 <= float(row["score"]) <= most + 1e-6:
                other += 1
                print(f"  {row['student_id']}: {row['score']} points instead of {least:g} to {most:g}")
            if row["flags"] or row["status"] != "graded":
                print(f"  {row['student_id']}: {row['status']} {row['reason']} {row['flags']}")
        sys.stdout.flush()
    print(f"{count} notebooks, {rare} in unusual styles, {flagged} flagged, {other} with other points than expected")
    return flagged + other


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)

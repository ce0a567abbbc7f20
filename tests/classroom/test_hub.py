"""docs/hub.md from beginning to end: released, worked on in a browser, collected, graded, given back."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from tests.classroom.recipe import ROOT, commands, run_as, shell
from tests.serving import wait_until_it_answers

if TYPE_CHECKING:
    from collections.abc import Iterator

LESSON = "01-device-placement"
USERS = ("teacher", "ada", "ben", "cy")
WAIT = 120_000
ADDRESS = "http://127.0.0.1:8000"
MADE = ("/opt/gpus", "/srv/fakegpu_lab", "/srv/hub", "/srv/nbgrader", "/srv/class", "/etc/profile.d/gpus.sh")
"""What the recipe makes, in the places that it prints."""

pytestmark = pytest.mark.skipif(
    os.environ.get("FAKEGPU_LAB_CLASSROOM") != "1", reason="it makes users of this system: make classroom"
)


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Everything that the recipe's commands need; the users are gone afterwards."""
    assert os.geteuid() == 0, "only root can make users, and start servers for them"
    taken = [name for name in USERS if any(one.pw_name == name for one in pwd.getpwall())]
    assert not taken, f"this system has users of the recipe's names: {taken}"
    there = [path for path in MADE if os.path.lexists(path)]
    assert not there, f"this system has what the recipe makes: {there}"
    nobody = ["runuser", "--user", "nobody", "--", sys.executable, "-c", "import fakegpu_lab"]
    able = subprocess.run(
        nobody, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert able.returncode == 0, f"other users of this system cannot run {sys.executable}:\n{able.stderr}"
    Path("/opt/gpus").symlink_to(sys.prefix)
    for folder in ("docs/hub", "lessons"):  # what the recipe needs of a clone
        shutil.copytree(ROOT / folder, Path("/srv/fakegpu_lab", folder), ignore=shutil.ignore_patterns("versions"))
    yield {
        "PYTHONPATH": str(ROOT),
        "JUPYTER_CONFIG_PATH": "/srv/hub/jupyter",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name in USERS:
        subprocess.run(["pkill", "-KILL", "-u", name], check=False)
        subprocess.run(["userdel", "--remove", name], check=False, capture_output=True)
    for name in ("students", "instructors"):
        subprocess.run(["groupdel", name], check=False, capture_output=True)
    for path in map(Path, MADE):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def hub(environment: dict[str, str]) -> Iterator[str]:
    """The hub's address, with the users of the recipe."""
    for name in ("names for the places", "the configuration, the exchange, the users", "passwords"):
        assert commands()[name][0] == "root"
        do(environment, name)
    folder = Path("/srv/hub")
    (folder / "jupyter" / "jupyter_lab_config.py").write_text("c.LabApp.expose_app_in_browser = True\n")
    assert shutil.which("configurable-http-proxy"), "the hub's proxy: npm install --global configurable-http-proxy"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            shell(*commands()["the hub"], {"PYTHONPATH": str(ROOT)}), stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_until_it_answers(f"{ADDRESS}/hub/login", process, folder / "log")
        yield ADDRESS
    finally:
        process.terminate()
        process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the proxy, which outlives the hub if a script started it


def do(environment: dict[str, str], what: str) -> str:
    user, script = commands()[what]
    return run_as(user, script, environment)


class Person:
    """Somebody at the hub, in a browser of their own."""

    def __init__(self, browser: Any, hub: str, name: str) -> None:
        self.name = name
        self.page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        self.page.set_default_timeout(WAIT)
        self.page.goto(f"{hub}/hub/login")
        self.page.fill("#username_input", name)
        passwords = dict(line.split(":", 1) for line in Path("/srv/hub/passwords").read_text().splitlines())
        self.page.fill("#password_input", passwords[name])
        self.page.click("#login_submit")
        self.page.wait_for_function("window.jupyterapp && window.jupyterapp.restored", timeout=WAIT)
        self.page.evaluate("window.jupyterapp.restored.then(() => true)")

    def command(self, name: str, /, **arguments: object) -> None:
        self.page.evaluate(f"void window.jupyterapp.commands.execute('{name}', {json.dumps(arguments)})")

    def open(self, path: str) -> None:
        self.command("docmanager:open", path=path)
        self.page.wait_for_function(
            """path => {
              const shown = window.jupyterapp.shell.currentWidget;
              return shown?.context?.path === path && shown.sessionContext.session?.kernel?.status === 'idle';
            }""",
            arg=path,
            timeout=WAIT,
        )

    def answer(self, answers: dict[str, str]) -> None:
        """Write answers into exercises' cells, run all of it, save."""
        self.page.evaluate(
            """answers => {
              for (const cell of window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells) {
                const id = cell.getMetadata('nbgrader')?.grade_id;
                if (id in answers) cell.setSource(answers[id]);
              }
            }""",
            answers,
        )
        self.command("docmanager:save")
        self.page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")

    def assignments(self) -> None:
        self.command("nbgrader:open-assignment-list")
        self.page.wait_for_selector("#released_assignments_list .list_item, #fetched_assignments_list .list_item")

    def has(self, command: str) -> bool:
        return bool(self.page.evaluate(f"window.jupyterapp.commands.hasCommand('{command}')"))

    def picture(self, what: str) -> None:
        folder = os.environ.get("FAKEGPU_LAB_PICTURES")
        if folder:
            self.page.screenshot(path=Path(folder) / f"hub-{self.name}-{what}.png")

    def close(self) -> None:
        self.page.context.close()


def solution(upto: int) -> dict[str, str]:
    """The answers to the first exercises of the lesson, from its source."""
    notebook = nbformat.read(ROOT / "lessons" / "source" / LESSON / f"{LESSON}.ipynb", 4)
    cells = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return {cell.metadata["nbgrader"]["grade_id"]: cell.source for cell in cells[:upto]}


@pytest.fixture(scope="module")
def points(hub: str, environment: dict[str, str], browser: Any) -> dict[str, float]:
    """What each student earned, after they worked on the lesson in a browser and handed it in."""
    do(environment, "the course")
    do(environment, "release")
    for name, upto in (("ada", 99), ("ben", 3), ("cy", 0)):
        student = Person(browser, hub, name)
        if name == "cy":
            student.command("fakegpu-lab:open-lesson", name=LESSON)  # the sidebar's button Begin
            student.page.wait_for_function("window.jupyterapp.shell.currentWidget?.context?.path.endsWith('.ipynb')")
        else:
            student.assignments()
            student.page.click("#released_assignments_list button:has-text('Fetch')")
            student.page.wait_for_selector("#fetched_assignments_list button:has-text('Submit')")
        student.open(f"{LESSON}/{LESSON}.ipynb")
        student.answer(solution(upto))
        student.assignments()
        student.page.click("#fetched_assignments_list button:has-text('Submit')")
        student.page.wait_for_selector("#submitted_assignments_list .list_item")
        student.picture("submitted")
        student.close()
    do(environment, "collect and grade")
    return grades(environment)


def grades(environment: dict[str, str]) -> dict[str, float]:
    table = run_as("teacher", "cat ~/gpus/grades.csv", environment)
    return {row["student_id"]: float(row["score"]) for row in csv.DictReader(io.StringIO(table))}


def test_everyone_has_the_points_that_they_earned(points: dict[str, float], environment: dict[str, str]) -> None:
    source = nbformat.read(ROOT / "lessons" / "source" / LESSON / f"{LESSON}.ipynb", 4)
    most = [cell.metadata.get("nbgrader", {}).get("points", 0) for cell in source.cells]
    told = run_as("teacher", "cut -c-600 ~/gpus/grades.csv", environment)
    assert points == {"ada": sum(most), "ben": sum([p for p in most if p][:3]), "cy": 0}, told
    run_as("teacher", "cd ~/gpus && nbgrader export --to exported.csv", environment)
    exported = run_as("teacher", "cat ~/gpus/exported.csv", environment)
    book = {row["student_id"]: float(row["score"]) for row in csv.DictReader(io.StringIO(exported))}
    assert book == points


@pytest.mark.usefixtures("points")
def test_the_formgrader_is_the_instructor_s_only(hub: str, browser: Any) -> None:
    teacher = Person(browser, hub, "teacher")
    assert teacher.has("nbgrader:open-formgrader")
    teacher.page.goto(f"{hub}/user/teacher/formgrader/manage_students/ada")
    teacher.page.wait_for_function("document.body.innerText.includes('01-device-placement')")
    teacher.picture("formgrader")
    teacher.page.goto(f"{hub}/user/teacher/formgrader/manage_submissions/{LESSON}")
    teacher.page.wait_for_selector(".label-success:text('graded')")
    assert teacher.page.locator("text=needs autograding").count() == 0
    teacher.page.goto(f"{hub}/user/teacher/formgrader/gradebook/{LESSON}/{LESSON}")
    teacher.page.click("a:has-text('Submission #1')")
    teacher.page.wait_for_url("**/formgrader/submissions/**")
    teacher.picture("submission")
    teacher.page.wait_for_selector("#notebook-container #find-the-gpu-check")  # where its points are entered
    teacher.close()
    student = Person(browser, hub, "ben")
    assert not student.has("nbgrader:open-formgrader")
    refused = student.page.goto(f"{hub}/user/teacher/formgrader/manage_students")
    assert refused.status in (403, 404)
    student.close()


def test_feedback_reaches_its_student_and_no_one_else(
    points: dict[str, float], hub: str, environment: dict[str, str], browser: Any
) -> None:
    do(environment, "feedback")
    for name in ("ada", "ben"):
        student = Person(browser, hub, name)
        student.assignments()
        student.page.click("#submitted_assignments_list button:has-text('Fetch Feedback')")
        student.page.wait_for_selector("#submitted_assignments_list :text('view feedback')")
        student.picture("feedback")
        student.close()
        page = run_as(name, f"cat ~/{LESSON}/feedback/*/{LESSON}.html", environment)
        assert f'class="score">{points[name]:g}</span> of' in page
        other = {"ada": "ben", "ben": "ada"}[name]
        assert other not in page
    for attempt in PRYING:
        with pytest.raises(AssertionError, match="Permission denied"):
            run_as("ben", attempt, environment)


PRYING = (
    "ls ~ada",
    f"cat ~ada/{LESSON}/{LESSON}.ipynb",
    "ls $EXCHANGE/gpus/feedback",
    "ls $EXCHANGE/gpus/inbound",
    "ls ~teacher/gpus/source",
    "ls ~teacher/gpus/autograded/ada",
    f"cat ~teacher/gpus/feedback/ada/{LESSON}/{LESSON}.html",
    "cat ~teacher/gpus/gradebook.db",
    "ls $SOURCE/lessons/source",
    "cat $HUB/passwords",
)
"""What a student must not be able to read."""


def test_a_student_who_shares_is_on_the_instructor_s_page(
    points: dict[str, float], environment: dict[str, str]
) -> None:
    do(environment, "a folder that everyone may write to, and only the teacher may list")
    for name in ("ada", "ben"):
        run_as(name, f"cd ~/{LESSON} && ipython -c '{SHARE}'", environment)
    told = do(environment, "the class")
    assert "ben" in told
    assert "raise RuntimeError" not in run_as("teacher", "cat $CLASS/*", environment)
    with pytest.raises(AssertionError, match="Permission denied"):
        run_as("ben", "ls $CLASS", environment)


SHARE = """
get_ipython().run_line_magic("load_ext", "fakegpu_lab")
get_ipython().run_line_magic("lesson", "01-device-placement")
get_ipython().run_line_magic("share", __import__("os").environ["CLASS"])
get_ipython().run_cell_magic("exercise", "find-the-gpu", "answer = 1  # raise RuntimeError")
get_ipython().run_cell_magic("check", "find-the-gpu", "expect.equal(1, 2)")
"""


def test_a_submission_that_was_collected_is_collected_again_only_if_it_is_newer(
    points: dict[str, float], environment: dict[str, str]
) -> None:
    again = run_as("teacher", f"cd ~/gpus && nbgrader collect {LESSON}", environment)
    assert "Submission already exists" in again
    run_as("ben", f"cd ~ && nbgrader submit {LESSON}", environment)
    newer = run_as("teacher", f"cd ~/gpus && nbgrader collect --update {LESSON}", environment)
    assert "Updating submission: ben" in newer
    run_as("teacher", commands()["collect and grade"][1].replace("nbgrader collect", ": nbgrader collect"), environment)
    assert grades(environment) == points


def test_a_wrong_password_lets_nobody_in(hub: str, browser: Any) -> None:
    page = browser.new_context().new_page()
    page.goto(f"{hub}/hub/login")
    page.fill("#username_input", "ada")
    page.fill("#password_input", "class")
    page.click("#login_submit")
    page.wait_for_selector("text=Invalid username or password")
    page.context.close()


def test_somebody_who_is_not_in_the_course_is_told(hub: str, environment: dict[str, str]) -> None:
    from jupyterhub.auth import PAMAuthenticator
    from traitlets.config import PyFileConfigLoader

    config = PyFileConfigLoader("jupyterhub_config.py", str(ROOT / "docs" / "hub")).load_config()
    door = PAMAuthenticator(config=config)
    assert [bool(door.check_allowed_groups(name)) for name in ("ada", "teacher", "nobody")] == [True, True, False]
    with pytest.raises(AssertionError, match="Assignment not found at"):
        run_as("ben", f"cd ~ && nbgrader fetch_assignment {LESSON} --course algebra", environment)


def test_an_exchange_that_cannot_be_written_to_is_named(points: dict[str, float], environment: dict[str, str]) -> None:
    inbound = Path("/srv/nbgrader/exchange/gpus/inbound")
    mode = inbound.stat().st_mode
    inbound.chmod(0o700)
    try:
        with pytest.raises(AssertionError, match=re.escape(str(inbound))):
            run_as("ben", f"cd ~ && nbgrader submit {LESSON}", environment)
    finally:
        inbound.chmod(mode)


def test_a_gradebook_that_someone_holds_loses_no_grades(points: dict[str, float], environment: dict[str, str]) -> None:
    command = ["runuser", "--user", "teacher", "--", sys.executable, "-c", HOLD]
    with subprocess.Popen(
        command, cwd=pwd.getpwnam("teacher").pw_dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        with pytest.raises(AssertionError, match="is locked") as told:
            run_as("teacher", GRADE_AGAIN, environment)
        holder.terminate()
    assert "Traceback" not in str(told.value)
    assert grades(environment) == points
    run_as("teacher", GRADE_AGAIN, environment)


HOLD = """
import sqlite3, sys
sqlite3.connect("gpus/gradebook.db").execute("begin exclusive")
print(flush=True)
sys.stdin.read()
"""
GRADE_AGAIN = "cd ~/gpus && fakegpu-lab grade --lesson 01 submitted/ --gradebook gradebook.db --resume"

"""The repository as a whole: what its documents promise is there, and what must not be in it is not."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import fakegpu_lab
from fakegpu_lab.cli.commands import cli
from fakegpu_lab.hardware.catalogue.lookup import catalogue
from fakegpu_lab.notebook.gpu_magics import WORDS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(f"docs/{page.name}" for page in ROOT.glob("docs/*.md")),
]

FORBIDDEN = {
    # No machine's own paths, and no package host but PyTorch's, which alone has the CPU builds for Linux.
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:root|work|home/(?!jovyan)\w+|Users/\w+)/"),
    "a package index": re.compile(r"--(?:extra-)?index-url[ =]+(?!https://download\.pytorch\.org/|\$\(TORCH_CPU\))\S"),
    "a package host": re.compile(r"https?://[\w.-]*\b(?:registry|packages|pythonhosted|simple)\b[\w.-]*/"),
    "a wheel folder": re.compile(r"--find-links"),
}


def tracked() -> list[Path]:
    """Every text file that is, or could be, committed."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in found.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in tracked():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {what}" for what, pattern in FORBIDDEN.items() if pattern.search(text)]
    assert found == []


def test_the_version_is_the_same_everywhere() -> None:
    version = fakegpu_lab.__version__
    assert metadata.version("fakegpu-lab") == version
    assert f'\nversion = "{version}"\n' in (ROOT / "pyproject.toml").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_the_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", text, re.MULTILINE)) <= targets
    assert isinstance(cli, click.Group)
    for name, rest in re.findall(r"(?:`|^)fakegpu-lab ([a-z]+)(?![\w:])([^`\n]*)", text, re.MULTILINE):
        assert name in cli.commands
        command: click.Command = cli.commands[name]
        if isinstance(command, click.Group) and rest.split() and rest.split()[0] != "[OPTIONS]":
            command = command.commands[rest.split()[0]]
        options = {option for param in command.params for option in param.opts}
        before_script = rest.split(".py")[0].split(" torchrun ")[0]
        assert set(re.findall(r"(?<!\S)--?[a-z]+", before_script)) <= options | {"--help"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_gpus_in_the_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)  # kernel[grid](x) is no link
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", prose):
        assert ((ROOT / document).parent / link).exists(), link
    known = {*catalogue("gpus"), *catalogue("nodes"), *WORDS}
    for spec in re.findall(r"(?:`|^)%fakegpu ([a-z][\w.-]*)", text, re.MULTILINE):
        assert spec in known


def test_the_readme_s_example_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    """It ends in the error that it shows, and prints what it shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ((example, shown),) = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", text, re.DOTALL)
    printed, _, error = shown.partition("RuntimeError: ")
    try:
        with pytest.raises(RuntimeError) as caught:
            exec(compile(example, "README.md", "exec"), {})
    finally:
        fakegpu_lab.disable()
    assert capsys.readouterr().out == printed
    assert str(caught.value) == " ".join(error.split())


def test_the_guide_s_timeline_overlaps() -> None:
    pytest.importorskip("plotly")
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    (example,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "lab.record()" in code and "Stream" in code
    ]
    names: dict[str, Any] = {}
    try:
        exec(compile(example, "guide.md", "exec"), names)
        trace = names["trace"]
        assert trace.races == []
        assert len(trace.transfers) == 6
        kernels = [kernel for kernel in trace.kernels if kernel.name == "aten::linear"]
        assert [before.end for before in kernels[:-1]] == [after.start for after in kernels[1:]], "it never idles"
        assert trace.transfers[-1].start < kernels[2].end
        assert len(trace.figure().data) > 3
    finally:
        fakegpu_lab.disable()


@pytest.mark.long
def test_the_pictures_of_the_documents_can_be_made_again() -> None:
    pytest.importorskip("plotly")
    docs: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "timeline.py"))
    fakegpu_lab.enable("a100")
    try:
        docs["copies"](pinned=False)
        slow, fast = docs["copies"](pinned=False), docs["copies"](pinned=True)
        assert fast.elapsed < slow.elapsed / 2
        step = docs["gpt_step"]()
        assert {"GPT.head", "GPT.blocks.3.qkv"} <= {kernel.module for kernel in step.kernels}
        assert step.waits[-1].name == "the copy to the host"
        assert slow.races == fast.races == step.races == []
    finally:
        fakegpu_lab.disable()
    for picture in (ROOT / "docs" / "images").glob("*.png"):
        assert picture.stat().st_size < 300_000


def test_the_guide_counts_the_tour_s_cells() -> None:
    tour = json.loads((ROOT / "lessons" / "release" / "00-tour" / "00-tour.ipynb").read_text(encoding="utf-8"))
    assert sum(cell["cell_type"] == "code" for cell in tour["cells"]) == 14
    assert "shows you around in fourteen cells" in (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")


def test_what_binder_sets_is_there_to_be_set() -> None:
    """JupyterLab says nothing of names that it does not know."""
    binder, extension = ROOT / "binder", ROOT / "labextension"
    if not binder.is_dir():
        pytest.skip("an sdist has no binder/")
    layout = json.loads((binder / "workspace.json").read_text())["data"]["layout-restorer:data"]
    assert f"'{layout['right']['current']}'" in (extension / "src" / "index.ts").read_text(encoding="utf-8")
    for name, settings in json.loads((binder / "overrides.json").read_text()).items():
        package, plugin = name.split(":")
        schema = json.loads((extension / "built" / "schemas" / package / f"{plugin}.json").read_text(encoding="utf-8"))
        assert settings.keys() <= schema["properties"].keys()
        assert (ROOT / settings["lessonsFolder"] / "00-tour" / "00-tour.ipynb").is_file()


def test_constraints_cover_what_make_installs() -> None:
    pinned = {re.split(r"[=;]", line)[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    wanted = {
        re.split(r"[\[>=; ]", requirement)[0].lower()
        for requirement in metadata.requires("fakegpu-lab") or []
        if not requirement.startswith("fakegpu-lab")
    }
    assert wanted <= pinned


@pytest.mark.parametrize("address", ["https://github.com/someone/fakegpu_lab", ""])
def test_the_readme_s_links_work_on_a_page_elsewhere(address: str) -> None:
    """A package index shows it, and has none of the repository's files."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    standalone = runpy.run_path(str(ROOT / "docs" / "website" / "address.py"))["standalone"](text, address)
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", standalone)
    assert [link for _, link in links if not link.startswith("https://")] == []
    assert "for students" in standalone
    own = [(mark, link.removeprefix(address)) for mark, link in links if address and link.startswith(address)]
    assert all((ROOT / link.split("/HEAD/")[1].partition("#")[0]).exists() for _, link in own)
    assert {link.split("/")[1] for mark, link in own if mark} == ({"raw"} if address else set())


def test_what_a_hosted_repository_needs_is_there_and_true() -> None:
    """Workflows run what the Makefile has, updates look where files are, and ruff is the same one everywhere."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflows = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    assert workflows.keys() >= {"ci", "docs", "release"}
    steps = [step for flow in workflows.values() for job in flow["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    made = {target for command in commands for target in re.findall(r"\bmake ([a-z]+)", command)}
    assert {"kernels", "docs", "test", "release"} <= made <= targets
    assert all((ROOT / command).is_file() for command in commands if command.startswith(".ci/"))
    for update in yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]:
        folder = ROOT / update["directory"].strip("/")
        assert {"pip": "constraints.txt", "npm": "package.json"}.get(update["package-ecosystem"], "README.md") in {
            path.name for path in folder.iterdir()
        }
    hooks = {
        repo["repo"]: repo.get("rev")
        for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    }
    pinned = re.search(r"(?m)^ruff==(.+)$", (ROOT / "constraints.txt").read_text())
    assert pinned is not None
    assert hooks["https://github.com/astral-sh/ruff-pre-commit"] == f"v{pinned[1]}"
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        asked = yaml.safe_load(form.read_text())
        assert form.stem == "config" or {"name", "description", "body"} <= asked.keys()

"""What Binder makes of `binder/`, according to repo2docker's own build packs; skipped where it is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def buildpack(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The first build pack that takes the repository, as `repo2docker` chooses it."""
    application = pytest.importorskip("repo2docker.app", reason="jupyter-repo2docker is not installed").Repo2Docker()
    if not (ROOT / "binder").is_dir():
        pytest.skip("an sdist has no binder/")
    monkeypatch.chdir(ROOT)
    made = (kind(application.base_image) for kind in application.buildpacks)
    return next(one for one in made if one.detect())


def test_it_is_a_python_repository_with_the_version_of_runtime_txt(buildpack: Any) -> None:
    assert type(buildpack).__name__ == "PythonBuildPack"
    assert buildpack.binder_dir == "binder"
    assert f"python-{buildpack.python_version}" == (ROOT / "binder/runtime.txt").read_text().strip()


def test_the_package_is_installed_once_the_whole_repository_is_there(buildpack: Any) -> None:
    """requirements.txt names it by the folder, and constraints.txt lies outside `binder/`."""
    assert buildpack.get_preassemble_scripts() == []
    (installing,) = [script for _, script in buildpack.get_assemble_scripts() if "pip install" in script]
    assert installing.endswith('-r "binder/requirements.txt"')
    assert buildpack.get_post_build_scripts() == ["binder/postBuild"]
    assert (ROOT / "binder/postBuild").stat().st_mode & 0o100

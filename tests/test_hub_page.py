"""docs/hub.md and its files, as far as they can be tested without users of the system."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.classroom.recipe import ROOT, commands, printed

HUB = ROOT / "docs" / "hub"
VALUES = yaml.safe_load((HUB / "kubernetes" / "values.yaml").read_text("utf-8"))


def test_every_block_of_commands_is_run_or_says_that_it_is_not() -> None:
    test = (ROOT / "tests" / "classroom" / "test_hub.py").read_text("utf-8")
    run = commands()
    for line in printed():
        assert line.startswith("# not run") or re.fullmatch(r"# as \w+: .+", line), line
    assert len(run) == sum(not line.startswith("# not run") for line in printed())
    assert [name for name in run if f'"{name}"' not in test] == []


def test_the_places_are_those_of_every_file() -> None:
    places = dict(re.findall(r"export (\w+)=(\S+)", (HUB / "gpus.sh").read_text("utf-8")))
    for file in ("jupyter/nbgrader_config.py", "hub.service", "tljh/gpus.py", "kubernetes/values.yaml"):
        assert places["EXCHANGE"] in (HUB / file).read_text("utf-8"), file
    for file in ("hub.service", "tljh/gpus.py"):
        assert places["HUB"] in (HUB / file).read_text("utf-8"), file


class Recorded(SimpleNamespace):
    """Takes what a configuration sets."""

    def __getattr__(self, name: str) -> Any:
        setattr(self, name, Recorded())
        return getattr(self, name)


def configured(text: str) -> Any:
    c = Recorded()
    exec(compile(text, "<config>", "exec"), {"get_config": lambda: c, "c": c})
    return c


def spawner(*, admin: bool, number: int = 7) -> Any:
    return SimpleNamespace(user=SimpleNamespace(admin=admin, name="ada", id=number), environment={"A": "b"})


@pytest.mark.parametrize("where", ["tljh", "kubernetes"])
def test_only_instructors_have_the_formgrader(where: str) -> None:
    if where == "tljh":
        hook = configured((HUB / "tljh" / "gpus.py").read_text("utf-8")).Spawner.pre_spawn_hook
    else:
        hook = configured(VALUES["hub"]["extraConfig"]["formgrader"]).KubeSpawner.pre_spawn_hook
    for admin in (True, False):
        one = spawner(admin=admin)
        hook(one)
        folders = one.environment["JUPYTER_CONFIG_PATH"].split(":")
        assert one.environment["A"] == "b"
        assert any("students" in folder for folder in folders) is not admin
        assert "students" not in folders[-1]
    assert (HUB / "students" / "labconfig" / "page_config.json").is_file()


def test_each_user_has_an_id_of_their_own_on_kubernetes() -> None:
    c = configured(VALUES["hub"]["extraConfig"]["ids"])
    ids = [c.KubeSpawner.uid(spawner(admin=False, number=number)) for number in (1, 2, 3)]
    assert len(set(ids)) == 3
    assert min(ids) > 1000, "no user of the image's"


def test_the_values_for_kubernetes_fit_together() -> None:
    assert set(VALUES) == {"hub", "singleuser"}
    single = VALUES["singleuser"]
    assert set(single) <= {"image", "defaultUrl", "cpu", "memory", "extraEnv", "storage", "initContainers"}
    assert set(single["image"]) == {"name", "tag"}
    assert all(isinstance(value, str) for value in [*single["image"].values(), *single["extraEnv"].values()])
    volumes = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in single["storage"]["extraVolumes"]}
    claim = yaml.safe_load((HUB / "kubernetes" / "exchange.yaml").read_text("utf-8"))
    assert (claim["kind"], claim["metadata"]["name"]) == ("PersistentVolumeClaim", volumes["exchange"])
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    mounts = single["storage"]["extraVolumeMounts"] + single["initContainers"][0]["volumeMounts"]
    assert {(one["name"], one["mountPath"]) for one in mounts} == {("exchange", single["extraEnv"]["EXCHANGE"])}
    image = single["image"]
    assert single["initContainers"][0]["image"] == f"{image['name']}:{image['tag']}"
    assert VALUES["hub"]["config"]["JupyterHub"]["authenticator_class"].endswith("NativeAuthenticator")
    page = (ROOT / "docs" / "hub.md").read_text("utf-8")
    assert f"{image['name']}:{image['tag']}" in page


def test_the_image_copies_what_there_is() -> None:
    text = (HUB / "kubernetes" / "Dockerfile").read_text("utf-8")
    copied = re.findall(r"(?m)^COPY (\S+) (\S+)$", text)
    assert [source for source, _ in copied if not source.startswith("dist/") and not Path(ROOT, source).exists()] == []
    assert "/etc/jupyter-students" in [target for _, target in copied]

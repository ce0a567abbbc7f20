"""The Sphinx extension: pages of lessons, the catalogue, recordings, links to the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.util import logging

from website import address, figures, lessons
from website.catalogue import Catalogue
from website.recordings import Recording

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

STATIC = Path(__file__).with_name("static")
_LOG = logging.getLogger(__name__)
_BESIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)\s]*)\)")
"""A link from a page in docs/ to a file that is not in docs/."""
_FACTS = re.compile(r"\]\(\.\./lessons/source/([\w-]+)/facts\.md\)")
"""A link to a lesson's facts, which have a page."""


def _make_lessons(app: Sphinx) -> None:
    lessons.write(execute=app.config.fakegpu_lab_execute, says=_LOG.info)


def _link_to_the_repository(app: Sphinx, page: str, source: list[str]) -> None:
    """A file that is not in docs/ has no page: link to it in the repository, if that has an address."""
    if not page.startswith("lessons/"):
        where = address.repository()
        source[0] = _FACTS.sub(r"](lessons/\1-facts.md)", source[0])
        source[0] = _BESIDE.sub(rf"[\1]({where}/blob/HEAD/\2)" if where else r"\1", source[0])


def _add_plotly(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    if "fg-figure" in context.get("body", ""):
        app.add_js_file("plotly.min.js")
        app.add_js_file("figures.js")


def _keep_a_sentence(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon for a type: not if an empty comment comes first."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls first."""
    app.add_config_value("fakegpu_lab_execute", default=True, rebuild="env", types=bool)
    app.add_directive("catalogue", Catalogue)
    app.add_directive("recording", Recording)
    app.connect("builder-inited", _make_lessons)
    app.connect("source-read", _link_to_the_repository)
    app.connect("html-page-context", _add_plotly)
    app.connect("autodoc-process-docstring", _keep_a_sentence, priority=400)  # before napoleon, at 500
    app.config.html_static_path += [str(STATIC), str(figures.library())]
    app.add_css_file("site.css")
    app.add_js_file("page.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}

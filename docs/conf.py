"""How Sphinx builds these pages: ``make docs``. What is made while it builds is in website/."""

from __future__ import annotations

import sys
from pathlib import Path

import fakegpu_lab

sys.path.insert(0, str(Path(__file__).resolve().parent))

from website import address

project = "fakegpu_lab"
author = "The fakegpu_lab developers"
release = version = fakegpu_lab.__version__
html_title = project

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "website.extension"]
exclude_patterns = ["_build", "images", "website", ".executed", "jupyter_execute"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

nb_execution_mode = "off"  # website/executed.py does it
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
suppress_warnings = ["misc.highlighting_failure"]  # lessons leave things out: f(…)
default_role = "code"  # `name` in a docstring

html_theme = "furo"
html_static_path: list[str] = []
html_copy_source = False
html_show_copyright = False
html_theme_options = {}
if address.repository():  # furo's link to a page's source
    html_theme_options = {
        "source_repository": address.repository(),
        "source_branch": "HEAD",
        "source_directory": "docs/",
    }

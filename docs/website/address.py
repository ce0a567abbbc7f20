"""Where the repository is. ``[project.urls]`` in pyproject.toml is the only place that says so.

``python docs/website/address.py https://github.com/someone/fakegpu_lab`` (or ``make address REPOSITORY=…``) writes it
there, together with what follows from it: the badge and the clone in README.md, the entry in CITATION.cff, and where
docs/examples/test-cuda.yml installs the package from. Without an address, these are left out, the website shows no
link to the repository, and the workflow reads the address from a variable of the repository that it runs in.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[2]
TOUR = "lab/tree/lessons/release/00-tour/00-tour.ipynb"
"""What Binder opens."""

_TABLE = re.compile(r"(?m)^\[project\.urls\]\n(?:.+\n)*\n")
_BADGE = re.compile(r"(?m)^\[!\[Binder\].*\n\n")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
_CLONE = re.compile(r"(?m)^git clone .*\n")
_INSTALLED = re.compile(r"(?m)^  FAKEGPU_LAB: .*\n")
_CITED = re.compile(r"(?m)^repository-code: .*\n")


def repository(root: Path = ROOT) -> str:
    """The repository's address, without a slash at its end; empty if pyproject.toml has none."""
    found = re.search(r'(?m)^Repository = "(.+?)/?"$', (root / "pyproject.toml").read_text(encoding="utf-8"))
    return found[1] if found else ""


def binder(address: str, urlpath: str = TOUR) -> str:
    """The link that opens a path on Binder; empty if the repository is not on GitHub."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", address)
    return f"https://mybinder.org/v2/gh/{found[1]}/HEAD?urlpath={quote(urlpath, safe='/')}" if found else ""


def standalone(text: str, address: str) -> str:
    """Markdown of the repository's folder, for a page elsewhere: its links lead into the repository.

    Without an address, pictures are left out, and links are only their words.
    """

    def absolute(found: re.Match[str]) -> str:
        mark, words, path = found.groups()
        if address:
            return f"{mark}[{words}]({address}/{'raw' if mark else 'blob'}/HEAD/{path})"
        return "" if mark else words

    return _LINK.sub(absolute, text)


def write(address: str, root: Path = ROOT) -> None:
    """Write an address, or with an empty one remove it, wherever something is shown that needs it."""
    address = address.rstrip("/").removesuffix(".git")
    urls = {"Repository": "", "Issues": "/issues", "Changelog": "/blob/HEAD/CHANGELOG.md"}
    table = "[project.urls]\n" + "".join(f'{name} = "{address}{rest}"\n' for name, rest in urls.items()) + "\n"
    badge = f"[![Binder](https://mybinder.org/badge_logo.svg)]({binder(address)})\n\n" if binder(address) else ""
    _replace(root / "pyproject.toml", _TABLE, "[project.scripts]\n", table if address else "")
    _replace(root / "README.md", _BADGE, "fakegpu_lab simulates CUDA", badge)
    clone = f"git clone {address} && cd {address.rpartition('/')[2]}\n"
    _replace(root / "README.md", _CLONE, "make lab\n", clone if address else "")
    _replace(root / "CITATION.cff", _CITED, "license: ", f'repository-code: "{address}"\n' if address else "")
    source = address or "${{ vars.FAKEGPU_LAB_REPOSITORY }}"
    _replace(root / "docs/examples/test-cuda.yml", _INSTALLED, "\njobs:\n", f"  FAKEGPU_LAB: git+{source}\n")


def _replace(path: Path, old: re.Pattern[str], before: str, new: str) -> None:
    """Replace what a pattern finds, or if it finds nothing, insert it in front of a text."""
    text = old.sub("", path.read_text(encoding="utf-8"))
    start, found, end = text.partition(before)
    if not found:
        raise SystemExit(f"{path.name} has no {before.strip()!r}, in front of which the address belongs.")
    path.write_text(start + new + found + end, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not re.fullmatch(r"(https://\S+)?", sys.argv[1]):
        raise SystemExit("Give the address of the repository, such as https://github.com/someone/fakegpu_lab.")
    write(sys.argv[1])
    print(f"The repository is at {repository()}." if repository() else "The repository has no address.")

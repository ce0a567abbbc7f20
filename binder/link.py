"""Print the links that open a repository of lessons: ``python binder/link.py https://github.com/someone/course``.

On Binder, the environment is this package's, and the repository must be a copy of this one. On a hub whose users have
nbgitpuller, each visitor gets a copy of the repository, and with each further visit what is new in it.
"""

from __future__ import annotations

import argparse
import re
from urllib.parse import quote, urlencode

LESSON = "lessons/release/00-tour/00-tour.ipynb"


def binder(repository: str, path: str, branch: str = "HEAD") -> str:
    """The link that opens a file of a repository on GitHub in JupyterLab on Binder."""
    owner, name = _parts(repository)
    query = urlencode({"urlpath": f"lab/tree/{path}"})
    return f"https://mybinder.org/v2/gh/{owner}/{name}/{quote(branch, safe='')}?{query}"


def pull(hub: str, repository: str, path: str, branch: str = "") -> str:
    """The link that copies a repository to a user of a hub, and opens a file of it, as nbgitpuller documents it."""
    query = {"repo": repository, "urlpath": f"lab/tree/{_parts(repository)[1]}/{path}"}
    return f"{hub.rstrip('/')}/hub/user-redirect/git-pull?{urlencode(query | ({'branch': branch} if branch else {}))}"


def _parts(repository: str) -> tuple[str, str]:
    found = re.fullmatch(r"https://[\w.-]+/(?:[\w.-]+/)*?([\w.-]+)/([\w.-]+?)(?:\.git)?/?", repository)
    if found is None:
        raise SystemExit(
            f"{repository!r} is not the address of a repository, such as https://github.com/someone/course."
        )
    return found[1], found[2]


def main() -> None:
    """Print the links."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", help="its address, such as https://github.com/someone/course")
    parser.add_argument("--path", default=LESSON, help=f"the file to open (default: {LESSON})")
    parser.add_argument("--hub", help="the address of a hub with nbgitpuller")
    parser.add_argument("--branch", default="", help="a branch, if it is not the usual one")
    asked = parser.parse_args()
    if asked.repository.startswith("https://github.com/"):
        print("Binder:", binder(asked.repository, asked.path, asked.branch or "HEAD"))
    if asked.hub:
        print("Hub:   ", pull(asked.hub, asked.repository, asked.path, asked.branch))


if __name__ == "__main__":
    main()

"""``fakegpu-lab profiles``: lists the GPUs and nodes of the catalogue."""

from __future__ import annotations

import json
import sys

from fakegpu_lab.report import gpu_list


def show(word: str, *, as_json: bool) -> None:
    """Print the profiles with `word` in their names, as tables or as one JSON object."""
    if as_json:
        gpus, nodes = gpu_list.matching(word)
        found = {
            "gpus": [card.model_dump(mode="json") for card in gpus],
            "nodes": [node.model_dump(mode="json") for node in nodes],
        }
        print(json.dumps(found, indent=2))
    elif sys.stdout.isatty():
        from rich.console import Console

        for table in gpu_list.tables(word):
            Console().print(table, "")
    else:
        print("\n\n".join(str(table) for table in gpu_list.tables(word)))

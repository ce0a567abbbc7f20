"""``fakegpu-lab``, the command line. Start with `commands`, which declares every command and its options.

The module that does a command's work has the command's name, and is imported when the command runs, so that
``fakegpu-lab --help`` imports neither torch nor pydantic. `program` runs the user's script.

May import every other part of the package.
"""

from fakegpu_lab.cli.commands import main

__all__ = ["main"]

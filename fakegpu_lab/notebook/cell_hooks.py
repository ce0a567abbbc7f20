"""Hooks before and after each cell: they update the panel, print the footer, and show a post-mortem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.display import display

from fakegpu_lab import session
from fakegpu_lab.notebook import footer, panel
from fakegpu_lab.notebook.out_of_memory import postmortem
from fakegpu_lab.notebook.telemetry.publisher import existing, publisher

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def register(shell: InteractiveShell) -> None:
    """Let IPython call `begin` and `end` before and after each cell."""
    unregister(shell)
    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", end)
    session.on_change.append(postmortem.watch)
    if session.enabled():
        postmortem.watch(session.machine())


def unregister(shell: InteractiveShell) -> None:
    """Undo `register`."""
    for event, function in (("pre_run_cell", begin), ("post_run_cell", end)):
        if function in shell.events.callbacks[event]:
            shell.events.unregister(event, function)
    if postmortem.watch in session.on_change:
        session.on_change.remove(postmortem.watch)


def begin(info: Any = None) -> None:
    """Act before a cell runs."""
    postmortem.take()
    footer.begin()
    if session.enabled() and session.machine().spec.measured:
        from fakegpu_lab.driver.environment import own_code  # imports torch

        own_code.restart()  # what the kernel did between two cells is not the program's work
    publisher().source.begin()  # even without readers: one may come before the cell ends


def end(result: Any = None) -> None:
    """Act after a cell has run."""
    error = getattr(result, "error_in_exec", None)
    publisher().source.end(error)
    running = existing()
    if running is not None:
        live_panel = panel.opened()
        if live_panel is not None:
            live_panel.keep()
        running.kick()
    found = postmortem.take()
    if found is not None and postmortem.caused(error):
        display(found)
    footer.end()

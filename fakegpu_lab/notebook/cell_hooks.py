"""What happens before and after each cell: the panel is told, the footer printed, a post-mortem shown."""

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
    """Have IPython call us before and after each cell."""
    unregister(shell)
    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", end)
    session.on_change.append(postmortem.watch)
    if session.enabled():
        postmortem.watch(session.machine())


def unregister(shell: InteractiveShell) -> None:
    """Have it call us no more."""
    for event, function in (("pre_run_cell", begin), ("post_run_cell", end)):
        if function in shell.events.callbacks[event]:
            shell.events.unregister(event, function)
    if postmortem.watch in session.on_change:
        session.on_change.remove(postmortem.watch)


def begin(info: Any = None) -> None:
    """A cell begins."""
    postmortem.take()
    footer.begin()
    publisher().source.begin()  # also where nobody reads yet: somebody may, before it ends


def end(result: Any = None) -> None:
    """A cell has ended."""
    error = getattr(result, "error_in_exec", None)
    publisher().source.end(error)
    telling = existing()
    if telling is not None:
        shown = panel.opened()
        if shown is not None:
            shown.keep()
        telling.kick()
    found = postmortem.take()
    if found is not None and postmortem.caused(error):
        display(found)
    footer.end()

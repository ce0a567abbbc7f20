"""``%%kernel``: what the kernels that a cell launches do to the card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class, output_can_be_silenced
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from fakegpu_lab import session, trace
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.recording_views.kernel_card.card import KernelCard
from fakegpu_lab.user_code import cell_code, magic_line

if TYPE_CHECKING:
    from fakegpu_lab.trace import Trace


@magics_class
class KernelMagics(Magics):
    """The ``%%kernel`` magic."""

    @magic_arguments()
    @argument("name", nargs="?", help="show only the kernel of this name")
    @argument("--text", action="store_true", help="text instead of drawings")
    @output_can_be_silenced
    @cell_magic
    def kernel(self, line: str, cell: str) -> Any:
        """Run this cell and show what its own kernels (numba, Triton) did to the card.

        %%kernel            a card for each kernel: traffic, conflicts, occupancy, time, and drawings
        %%kernel matmul     only for the kernel matmul
        %%kernel --text     as text
        """
        __tracebackhide__ = True
        args = magic_line.parse(self.kernel, line)
        try:
            recording = trace.Trace(session.machine())
        except FakeGpuError as error:
            raise UsageError(str(error)) from None
        parsed = cell_code.parse(self.shell, cell)
        names: dict[str, Any] = getattr(self.shell, "user_ns")  # noqa: B009 - the shell is never None here
        try:
            with recording:
                return cell_code.run(self.shell, parsed, names)
        finally:
            for card in _cards(recording, args.name):
                if args.text or getattr(self.shell, "kernel", None) is None:
                    print(card)
                else:
                    display(card)


def _cards(recording: Trace, name: str | None) -> list[KernelCard | str]:
    """A card for each kernel that the user wrote, in the order of their last launches."""
    launches: dict[str, list[Any]] = {}
    for kernel in recording.kernels:
        if kernel.access is not None:
            launches.setdefault(kernel.name, []).append(kernel)
    if name is not None and name not in launches:
        ran = ", ".join(launches) or "none"
        return [f"No kernel {name} was launched in this cell; its own kernels: {ran}."]
    if not launches:
        return ["This cell launched no kernel of its own: %%gpuprofile shows what torch's kernels did."]
    return [
        KernelCard(
            found,
            same[-1].access,
            recording.machine.devices[same[-1].device].profile,
            same[-1].end_ns - same[-1].start_ns,
            len(same),
        )
        for found, same in launches.items()
        if name in (None, found)
    ]

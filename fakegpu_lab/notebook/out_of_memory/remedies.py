"""Remedies for an out-of-memory error, each with its arithmetic: figures in, sentences out.

Estimates say "about": the memory of a whole step is extrapolated from the part of the model that had run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.formatting.units import capacity, size
from fakegpu_lab.hardware.catalogue import lookup
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code.environment import shell

if TYPE_CHECKING:
    from fakegpu_lab.driver.memory_report.out_of_memory import Facts

MOST = 3
"""The most remedies that are shown."""

CARDS = ("t4", "a10", "a100-40gb", "a100", "h200", "b200")
"""Cards to suggest, from the least memory to the most."""

SPARE = 0.97
"""The share of the room that blocks of different sizes can fill."""

SPARE_WITH_CASTS = 0.9
"""The same where autocast keeps the float32 inputs of its casts for a while."""


class Remedy(NamedTuple):
    """What to do, why it fits, and the bytes that it needs."""

    what: str
    why: str
    needs: int


class _Step(NamedTuple):
    """The memory of a training step, in bytes.

    `fixed` is allocated already and `moving` grows with the batch; `state` comes with the first step and stays;
    `gradients` are allocated while activations are freed.
    """

    fixed: int
    moving: int
    gradients: int
    state: int

    def peak(self, share: float) -> int:
        """The peak with a share of the batch: when backward begins, or when the optimizer steps."""
        temporary = max(self.state, self.gradients) // 2  # the optimizer's lists of tensors
        return self.fixed + self.state + max(round(share * self.moving), self.gradients + temporary)


def remedies(facts: Facts) -> list[Remedy]:
    """The first few remedies that fit, the easiest first."""
    kinds = (_variables, _no_grad, _expandable, _fused, _batch, _checkpoint, _autocast, _card)
    found: list[Remedy] = []
    for kind in kinds:
        remedy = kind(facts)
        if remedy is not None:
            found.append(remedy)
    return found[:MOST]


def _step(facts: Facts) -> _Step:
    c = facts.categories
    passing = facts.phase in ("forward", "backward")
    moving = c.activations + c.inputs + (facts.asked if passing else 0)
    if facts.phase == "forward":  # backward begins with two gradients of the largest activation's size
        moving = round(moving / facts.progress) + 2 * max(
            (each.nbytes for each in facts.largest if each.grown), default=0
        )
    training = facts.grad_enabled and facts.training
    return _Step(
        c.parameters + c.gradients + c.optimizer_state + c.workspace + c.other,
        moving,
        facts.wanting_gradients if training else 0,
        facts.wanting_state if training else 0,
    )


def _if_it_fits(facts: Facts, what: str, why: str, needs: int, spare: float = SPARE) -> Remedy | None:
    """A remedy, unless it needs more than the room; its reason ends with the bytes that it needs."""
    if needs > spare * facts.room:
        return None
    return Remedy(what, f"{why} {size(needs)} of the {capacity(facts.room)} available to tensors", needs)


def _stays(step: _Step) -> str:
    state = f" + {size(step.state)} of optimizer state to come" if step.state else ""
    return f"{size(step.fixed)} that stay{state}"


def _about(facts: Facts) -> str:
    return "about " if facts.phase == "forward" and facts.progress < 1 else ""


def _variables(facts: Facts) -> Remedy | None:
    """Delete variables."""
    if facts.phase != "other":
        return None
    names: list[str] = []
    freed = 0
    for name, nbytes in sorted(facts.variables.items(), key=lambda item: -item[1])[:4]:
        names.append(name)
        freed += nbytes
        remedy = _if_it_fits(
            facts,
            f"del {', '.join(names)}, if the program no longer needs {'it' if len(names) == 1 else 'them'}",
            f"{size(facts.allocated)} − {size(freed)} + the {size(facts.asked)} requested =",
            facts.allocated - freed + facts.asked,
        )
        if remedy is not None:
            return remedy
    return None


def _no_grad(facts: Facts) -> Remedy | None:
    """Keep no activations in eval mode, which has no backward."""
    c = facts.categories
    if facts.training or not facts.grad_enabled or facts.phase != "forward" or not c.activations:
        return None
    return _if_it_fits(
        facts,
        "with torch.no_grad(): around it: the model is in eval mode, but keeps activations for a backward pass",
        f"{size(facts.allocated)} − {size(c.activations)} of activations + {size(2 * facts.asked)} for this op's input "
        "and result =",
        facts.allocated - c.activations + 2 * facts.asked,
    )


def _expandable(facts: Facts) -> Remedy | None:
    """Join the free memory at the ends of segments; holes between tensors stay holes."""
    needs = facts.allocated + facts.asked
    if facts.phase == "forward":
        needs = max(needs, _step(facts).peak(1))
    if facts.expandable or facts.edges + facts.free < facts.asked:
        return None
    return _if_it_fits(
        facts,
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment, before the kernel starts",
        f"the memory is there, but in pieces: {size(facts.edges)} free at the ends of segments, the largest piece "
        f"{size(facts.largest_piece)}, and {size(facts.free)} outside; all in all it needs",
        needs,
    )


def _fused(facts: Facts) -> Remedy | None:
    """Avoid the optimizer's lists of temporaries."""
    c = facts.categories
    if facts.phase != "optimizer" or not facts.op.startswith("aten::_foreach"):
        return None
    return _if_it_fits(
        facts,
        "fused=True for the optimizer: its default takes lists of temporaries as large as the parameters",
        f"{size(facts.allocated)} − {size(c.other)} of temporaries + {size(facts.wanting_state)} of state to come =",
        facts.allocated - c.other + facts.wanting_state,
    )


def _batch(facts: Facts) -> Remedy | None:
    """Halve the batch until it fits."""
    if facts.batch < 2 or facts.phase not in ("forward", "backward"):
        return None
    step = _step(facts)
    batch = facts.batch // 2
    while batch >= 1:
        remedy = _if_it_fits(
            facts,
            f"batch {batch} instead of {facts.batch}",
            f"{_stays(step)} + {batch}/{facts.batch} × {_about(facts)}{size(step.moving)} of inputs, activations and "
            "their gradients =",
            step.peak(batch / facts.batch),
        )
        if remedy is not None:
            return remedy
        batch //= 2
    return None


def _checkpoint(facts: Facts) -> Remedy | None:
    """Compute activations again in backward."""
    if facts.blocks < 2 or not facts.boundary or not facts.grad_enabled or not facts.training:
        return None
    step = _step(facts)
    kept = facts.blocks * facts.boundary + step.moving // facts.blocks
    if kept >= step.moving:
        return None
    return _if_it_fits(
        facts,
        f"torch.utils.checkpoint around each of the {facts.blocks} blocks ({facts.block_name}), for a third more time",
        f"{_stays(step)} + {facts.blocks} × {size(facts.boundary)} from block to block + one block's "
        f"activations, {_about(facts)}{size(step.moving // facts.blocks)} =",
        step._replace(moving=kept).peak(1),
    )


def _autocast(facts: Facts) -> Remedy | None:
    """Halve the bytes of float32 activations."""
    c = facts.categories
    if facts.autocast or facts.phase not in ("forward", "backward") or not c.activations:
        return None
    step = _step(facts)
    part = facts.float32_activations / max(c.activations, 1)
    saved = round(step.moving * part / 2) - c.parameters // 2  # autocast also keeps the weights in bfloat16
    if saved <= 0:
        return None
    return _if_it_fits(
        facts,
        'torch.autocast("cuda", dtype=torch.bfloat16) around forward and loss',
        f"half of {_about(facts)}{size(round(step.moving * part))} of float32 activations, with the weights once more "
        f"in bfloat16, {size(c.parameters // 2)}: about",
        step._replace(moving=step.moving - saved).peak(1),
        SPARE_WITH_CASTS,
    )


def _card(facts: Facts) -> Remedy | None:
    """Take all of the card's memory, if ``--memory`` took a part; else a larger card."""
    step = _step(facts)
    needs = max(step.peak(1), facts.allocated + facts.asked)
    overhead = facts.total - facts.room
    command = "fakegpu-lab run -d" if shell() is None else "%fakegpu"
    own = _own_memory(facts)

    def remedy(what: str, total: int) -> Remedy | None:
        why = f"{_about(facts)}{size(needs)} of its {capacity(total - overhead)} available to tensors"
        return Remedy(what, why, needs) if SPARE * (total - overhead) >= needs else None

    if own > facts.total:
        found = remedy(f"all of this GPU's {capacity(own)}: {command} {facts.spec}, without --memory", own)
        if found is not None:
            return found
    for card in map(lookup.gpu, CARDS):
        found = remedy(f"a GPU with more memory: {command} {card.id}", card.total_memory_bytes)
        if found is not None and card.total_memory_bytes > own:
            return found
    return None


def _own_memory(facts: Facts) -> int:
    """The memory that the card has without ``--memory``."""
    try:
        return lookup.gpu(facts.card).total_memory_bytes
    except FakeGpuError:  # a file of the user's own
        return facts.total

"""What would have fitted where a device was out of memory, each with its arithmetic. Pure figures in, sentences out.

An estimate is called one: what a step takes in all is reckoned from the part of the model that had run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.catalogue import lookup
from fakegpu_lab.user_code.environment import shell

if TYPE_CHECKING:
    from fakegpu_lab.driver.memory_report.facts import Facts

MOST = 3
"""Remedies that are told."""

CARDS = ("t4", "a10", "a100-40gb", "a100", "h200", "b200")
"""Cards that are offered, by their memory."""

SPARE = 0.97
"""The part of the room that blocks of odd sizes really fill."""


class Remedy(NamedTuple):
    """What to do, why it fits, and the bytes that it needs."""

    what: str
    why: str
    needs: int


class _Step(NamedTuple):
    """A step of training in bytes: what stays whatever the batch, and what grows with it.

    `fixed` is there already, `state` comes with the first step and stays, `gradients` come as activations go.
    """

    fixed: int
    moving: int
    gradients: int
    state: int

    def peak(self, share: float) -> int:
        """The most that it takes with a share of the batch: when backward begins, or when the optimizer steps."""
        temporary = max(self.state, self.gradients) // 2  # the optimizer's lists
        return self.fixed + self.state + max(round(share * self.moving), self.gradients + temporary)


def remedies(facts: Facts) -> list[Remedy]:
    """The first few that fit, the least trouble first."""
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
    if facts.phase == "forward":  # and backward begins with two gradients as large as activations are
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


def _fits(facts: Facts, nbytes: int) -> bool:
    return nbytes <= SPARE * facts.room


def _of(facts: Facts) -> str:
    return f"of the {size(facts.room)} that there are for tensors"


def _stays(step: _Step) -> str:
    state = f" + {size(step.state)} of optimizer state to come" if step.state else ""
    return f"{size(step.fixed)} that stay{state}"


def _about(facts: Facts) -> str:
    return "about " if facts.phase == "forward" and facts.progress < 1 else ""


def _variables(facts: Facts) -> Remedy | None:
    """Let go of variables."""
    large = sorted(facts.variables.items(), key=lambda item: -item[1])
    names, freed = [], 0
    for name, nbytes in large[:4]:
        names.append(name)
        freed += nbytes
        needs = facts.allocated - freed + facts.asked
        if _fits(facts, needs) and facts.phase == "other":
            return Remedy(
                f"del {', '.join(names)}, if the program needs {'it' if len(names) == 1 else 'them'} no more",
                f"{size(facts.allocated)} − {size(freed)} + the {size(facts.asked)} asked for = {size(needs)} "
                f"{_of(facts)}",
                needs,
            )
    return None


def _no_grad(facts: Facts) -> Remedy | None:
    """In eval mode nobody goes back."""
    c = facts.categories
    needs = facts.allocated - c.activations + 2 * facts.asked
    if facts.training or not facts.grad_enabled or facts.phase != "forward" or not c.activations:
        return None
    if not _fits(facts, needs):
        return None
    return Remedy(
        "with torch.no_grad(): around it, for the model is in eval mode and yet keeps activations for a backward",
        f"{size(facts.allocated)} − {size(c.activations)} of activations + {size(2 * facts.asked)} for this op's input "
        f"and result = {size(needs)} {_of(facts)}",
        needs,
    )


def _expandable(facts: Facts) -> Remedy | None:
    """There is enough, at the ends of segments; holes between tensors stay holes."""
    needs = facts.allocated + facts.asked
    if facts.phase == "forward":
        needs = max(needs, _step(facts).peak(1))
    if facts.expandable or facts.edges + facts.free < facts.asked or not _fits(facts, needs):
        return None
    return Remedy(
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment before the kernel starts",
        f"the memory is there, but in pieces: {size(facts.edges)} free at the ends of segments, the largest piece "
        f"{size(facts.largest_piece)}, and {size(facts.free)} outside; all in all it needs {size(needs)} {_of(facts)}",
        needs,
    )


def _fused(facts: Facts) -> Remedy | None:
    """Lists of temporaries."""
    c = facts.categories
    needs = facts.allocated - c.other + facts.wanting_state
    if facts.phase != "optimizer" or not facts.op.startswith("aten::_foreach") or not _fits(facts, needs):
        return None
    return Remedy(
        "fused=True for the optimizer: its default takes lists of temporaries as large as the parameters",
        f"{size(facts.allocated)} − {size(c.other)} of temporaries + {size(facts.wanting_state)} of state to come "
        f"= {size(needs)} {_of(facts)}",
        needs,
    )


def _batch(facts: Facts) -> Remedy | None:
    """A smaller batch."""
    step = _step(facts)
    if facts.batch < 2 or facts.phase not in ("forward", "backward"):
        return None
    batch = facts.batch // 2
    while batch >= 1:
        share = batch / facts.batch
        needs = step.peak(share)
        if _fits(facts, needs):
            scaled = (
                f"{batch}/{facts.batch} × {_about(facts)}{size(step.moving)} of inputs, activations and their gradients"
            )
            state = f"{size(step.state)} of optimizer state to come + " if step.state else ""
            return Remedy(
                f"batch {batch} instead of {facts.batch}",
                f"{size(step.fixed)} that stay + {state}{scaled} = {size(needs)} {_of(facts)}",
                needs,
            )
        batch //= 2
    return None


def _checkpoint(facts: Facts) -> Remedy | None:
    """Compute activations again in backward."""
    step = _step(facts)
    if facts.blocks < 2 or not facts.boundary or not facts.grad_enabled or not facts.training:
        return None
    kept = facts.blocks * facts.boundary + step.moving // facts.blocks
    needs = _Step(step.fixed, kept, step.gradients, step.state).peak(1)
    if kept >= step.moving or not _fits(facts, needs):
        return None
    return Remedy(
        f"torch.utils.checkpoint around each of the {facts.blocks} blocks ({facts.block_name}), for a third more time",
        f"{_stays(step)} + {facts.blocks} × {size(facts.boundary)} from block to block + one block's "
        f"activations, {_about(facts)}{size(step.moving // facts.blocks)} = {size(needs)} {_of(facts)}",
        needs,
    )


def _autocast(facts: Facts) -> Remedy | None:
    """Half the bytes for activations."""
    step = _step(facts)
    c = facts.categories
    if facts.autocast or facts.phase not in ("forward", "backward") or not c.activations:
        return None
    part = facts.float32_activations / max(c.activations, 1)
    saved = round(step.moving * part / 2) - c.parameters // 2  # the weights are there in bfloat16, too
    needs = _Step(step.fixed, step.moving - saved, step.gradients, step.state).peak(1)
    if saved <= 0 or not _fits(facts, needs):
        return None
    return Remedy(
        'torch.autocast("cuda", dtype=torch.bfloat16) around forward and loss',
        f"half of {_about(facts)}{size(round(step.moving * part))} of float32 activations, with the weights once more "
        f"in bfloat16, {size(c.parameters // 2)}: at most {size(needs)} {_of(facts)}",
        needs,
    )


def _card(facts: Facts) -> Remedy | None:
    """A larger card."""
    step = _step(facts)
    needs = max(step.peak(1), facts.allocated + facts.asked)
    besides = facts.total - facts.room
    wanted = [card for card in map(lookup.gpu, CARDS) if SPARE * (card.total_memory_bytes - besides) >= needs]
    if not wanted:
        return None
    card = wanted[0]
    return Remedy(
        f"a card with more memory: {'fakegpu-lab run -d' if shell() is None else '%fakegpu'} {card.id}",
        f"{_about(facts)}{size(needs)} of its {size(card.total_memory_bytes - besides)}",
        needs,
    )

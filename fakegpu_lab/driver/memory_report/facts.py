"""The facts of an out-of-memory error, as texts and numbers.

Facts that held tensors would hold the memory that ran out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fakegpu_lab.hardware.memory_categories import ACTIVATIONS, Categories


@dataclass(frozen=True)
class Holder:
    """A block of memory, described by a tensor in it.

    Attributes
    ----------
    what
        What the tensor is: a parameter's path, whose gradient or state, which op's result, or a variable's name.
    line
        Where it was made, ``file:number``; empty without a recording.
    """

    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    category: str
    what: str
    line: str

    @property
    def grown(self) -> bool:
        """Whether it grows with the batch."""
        return self.category == ACTIVATIONS


@dataclass
class Facts:
    """What is known of an out-of-memory error. All sizes are in bytes.

    Attributes
    ----------
    card
        The id of the card's profile in the catalogue; `spec` is the whole machine's.
    asked
        The size of the request; `room` is the most that PyTorch can have of the device, `allocated` what tensors held.
    pieces, largest_piece, edges
        Number and largest of the free blocks in reserved memory; the bytes of those at a segment's end.
    phase
        ``"forward"``, ``"backward"``, ``"optimizer"``, ``"move"`` (of a module to the device) or ``"other"``.
    module, progress
        The path of the module whose forward ran; the part of the model's leaf modules that had run by then.
    blocks, boundary
        The number of consecutive blocks of one class in the model, and the bytes passed from one to the next.
    batch
        The first dimension of the model's input; 0 if that is unknown.
    wanting_gradients, wanting_state
        Gradients and optimizer state that a step needs and that are not allocated yet.
    float32_activations
        The part of the activations that is in float32.
    variables
        By name, the bytes of tensors that only a variable of the program holds.
    """

    device: int
    name: str
    card: str
    spec: str
    asked: int
    total: int
    free: int
    room: int
    allocated: int
    reserved: int
    pieces: int
    largest_piece: int
    edges: int
    categories: Categories
    largest: list[Holder] = field(default_factory=list)
    phase: str = "other"
    op: str = ""
    line: str = ""
    module: str = ""
    progress: float = 1.0
    training: bool = True
    grad_enabled: bool = True
    autocast: bool = False
    blocks: int = 0
    block_name: str = ""
    boundary: int = 0
    batch: int = 0
    wanting_gradients: int = 0
    wanting_state: int = 0
    float32_activations: int = 0
    variables: dict[str, int] = field(default_factory=dict)
    expandable: bool = False
    recorded: bool = False

    @property
    def too_large(self) -> bool:
        """Whether the one request is larger than all the memory that PyTorch can have: nothing to free helps."""
        return self.asked > self.room

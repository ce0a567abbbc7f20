"""The categories of device memory that snapshots, the panel and post-mortems show: parameters, gradients, ..."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

PARAMETERS: Final = "parameters"
OPTIMIZER_STATE: Final = "optimizer_state"
WORKSPACE: Final = "workspace"
GRADIENTS: Final = "gradients"
ACTIVATIONS: Final = "activations"
INPUTS: Final = "inputs"
OTHER: Final = "other"


class Categories(BaseModel):
    """Allocated bytes of a device, by what they are for. They add up to ``memory_allocated``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: int = Field(default=0, description="parameters and buffers of modules, and other trainable leaves")
    optimizer_state: int = Field(default=0, description="what optimizers keep for each parameter, such as Adam's means")
    workspace: int = Field(default=0, description="held by libraries: cuBLAS")
    gradients: int = Field(default=0, description="the .grad of tensors, and gradients on their way through backward")
    activations: int = Field(default=0, description="results that autograd can go back through, and what it saved")
    inputs: int = Field(default=0, description="copied from the host: batches, labels")
    other: int = Field(default=0, description="all the rest")

    @property
    def total(self) -> int:
        """The sum of all categories, in bytes."""
        return sum(self.model_dump().values())


NAMES: Final = tuple(Categories.model_fields)
"""In the order in which everything shows them: first what stays allocated, so that the bottom of a figure is calm."""

COLOURS: Final = dict(
    zip(NAMES, ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#9a9a9a"), strict=True)
)
"""Okabe and Ito's colours, as in panel.css."""


def spoken(name: str) -> str:
    """A category's name in a sentence.

    >>> spoken("optimizer_state")
    'optimizer state'
    """
    return name.replace("_", " ")

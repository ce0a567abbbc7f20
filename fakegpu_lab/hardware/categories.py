"""What device memory is for: the categories that a snapshot, a panel and a post-mortem tell it by."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

PARAMETERS: Final = "parameters"
GRADIENTS: Final = "gradients"
OPTIMIZER_STATE: Final = "optimizer_state"
ACTIVATIONS: Final = "activations"
INPUTS: Final = "inputs"
WORKSPACE: Final = "workspace"
OTHER: Final = "other"


class Categories(BaseModel):
    """Allocated bytes of a device, by what they are for. They add up to ``memory_allocated``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: int = Field(default=0, description="parameters and buffers of modules, and other trainable leaves")
    gradients: int = Field(default=0, description="the .grad of tensors, and gradients on their way through backward")
    optimizer_state: int = Field(default=0, description="what optimizers keep for each parameter, such as Adam's means")
    activations: int = Field(default=0, description="results that autograd can go back through, and what it saved")
    inputs: int = Field(default=0, description="copied from the host: batches, labels")
    workspace: int = Field(default=0, description="held by libraries: cuBLAS")
    other: int = Field(default=0, description="all the rest")

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.model_dump().values())


NAMES: Final = tuple(Categories.model_fields)
"""In the order in which they are shown, from the lasting to the passing."""


def spoken(name: str) -> str:
    """How people call a category.

    >>> spoken("optimizer_state")
    'optimizer state'
    """
    return name.replace("_", " ")

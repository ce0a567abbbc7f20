"""Small drawings for lessons, made from data: ``lab.draw.ring(4)``. Start with `memory`.

The canvas is `formatting.drawing`: SVG in JupyterLab's colors, with a text alternative. `memory` draws an allocator's
segments, and memory by category; `timelines` streams with events, and a pipeline's schedule; `ranks` a ring all-reduce,
and a tensor's shards; `roofline` kernels under the roof of a card.
"""

from fakegpu_lab.course.draw.memory import allocator, memory_bar
from fakegpu_lab.course.draw.ranks import ring, shards
from fakegpu_lab.course.draw.roofline import roofline
from fakegpu_lab.course.draw.timelines import pipeline, streams
from fakegpu_lab.formatting.drawing import Drawing

__all__ = ["Drawing", "allocator", "memory_bar", "pipeline", "ring", "roofline", "shards", "streams"]

"""A folder that stands first in the PYTHONPATH of programs that a process with simulated GPUs starts."""

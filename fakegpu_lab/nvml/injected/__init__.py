"""The folder that `program_path` puts first in the PYTHONPATH of child processes."""

"""Several ranks in one process: a scheduler, process groups, the data of collectives, and what is said of a hang."""

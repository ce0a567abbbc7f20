"""A record of what the simulation does, to the nanosecond and the byte, and what differs between two commits.

    python -m tests.behavior record FILE [--tree DIR] [--only TEXT] [--parts cases,operators,lessons,programs]
    python -m tests.behavior compare OLD NEW [--only TEXT] [--parts …]
    python -m tests.behavior renew     # recorded.json, which the test suite compares with

OLD and NEW are recordings, or folders with a checkout, which are recorded first. Another checkout is recorded with the
cases of this one. The parts: `cases` are written by hand, `operators` are torch's operator database in four dtypes,
`lessons` the lessons' notebooks with their solutions, `programs` our own of tests/programs. The first takes half a
minute on one core, the second two minutes, the others ten.
"""

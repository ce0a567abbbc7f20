"""What is asked of a student: exercises, checks on what the simulated hardware did, hints, progress.

An exercise is three cells of a notebook. The student's, which nbgrader calls a solution cell (``grade_id``: the
exercise's id)::

    %%exercise forgotten-model
    model = nn.Linear(4, 2)
    ### BEGIN SOLUTION
    model.to("cuda")
    ### END SOLUTION

its check, a locked grade cell (``grade_id``: the id and ``-check``; ``points``: as many as its parts have together)::

    %%check forgotten-model
    expect.on_device(model, "cuda:0", hint="A module is moved in place: model.to(...) is enough.")
    expect.transfers(h2d_at_most=2, points=2)
    ### BEGIN HIDDEN TESTS
    expect.equal(model(x.cuda()).shape, (3, 2))
    ### END HIDDEN TESTS

and, where it has hints, a line that the student uncovers: ``# %hint forgotten-model``.

``%%exercise`` records what the cell does (`fakegpu_lab.record`), so that the check can ask about it, and says kindly
that nothing was written yet. ``%%check`` runs each of its statements, also after one failed. **Every top-level
statement that calls** ``expect`` **is a part**, worth 1 point or what ``points=`` says (a number, not an expression);
other statements prepare. Between nbgrader's markers for hidden tests, parts are hidden ones. The value of the cell is a
`Result`: a card in a notebook, the points as a float for nbgrader, and everything as JSON beside it (`record.MIME`).

`lesson` has the schema of ``lesson.yaml``, `expect` all that can be expected, `progress` what a student has done.
"""

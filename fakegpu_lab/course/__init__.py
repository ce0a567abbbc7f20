"""Lessons: exercises, checks on what the simulated hardware did, hints, progress, grading. Start with `magics`.

An exercise is three cells of a notebook: the student's, which nbgrader calls a solution cell (``grade_id``: the
exercise's id)::

    %%exercise forgotten-model
    model = nn.Linear(4, 2)
    ### BEGIN SOLUTION
    model.to("cuda")
    ### END SOLUTION

its check, a locked grade cell (``grade_id``: the id and ``-check``; ``points``: the sum of its parts)::

    %%check forgotten-model
    expect.on_device(model, "cuda:0", hint="A module is moved in place: model.to(...) is enough.")
    expect.transfers(h2d_at_most=2, points=2)
    ### BEGIN HIDDEN TESTS
    expect.equal(model(x.cuda()).shape, (3, 2))
    ### END HIDDEN TESTS

and, if it has hints, a line for the student to uncomment: ``# %hint forgotten-model``.

``%%exercise`` records what the cell does (`fakegpu_lab.record`), so that the check can examine it, and shows a friendly
note while nothing is written yet. ``%%check`` runs each of its statements, even after one failed. **Every top-level
statement that calls** ``expect`` **is a part**, worth 1 point or what ``points=`` says (a number, not an expression);
other statements prepare. Parts between nbgrader's markers for hidden tests are hidden. The cell's value is a
`checks.result.Result`: a card in a notebook, the points as a float for nbgrader, and JSON (`checks.record.MIME`).

Rooms and files, from the bottom: `expect`, `checks`, `lessons`, `magics` and `pictures`, `grade`, `authoring`.
May import everything except `notebook`, `frontend` and `cli`.
"""

"""A recording as plotly figures. Start with `timeline`; `allocations` draws the allocations.

`theme` has their colours, `shown` says how a notebook shows them, `words` says in words what they show.

May import `recording_views` and what is below it.
"""

"""What the website (``make docs``) has beyond the pages in docs/: a Sphinx extension.

Start with `extension`: it makes the pages of the lessons (`lessons`, `executed`), and provides the directives of the
catalogue (`catalogue`) and of recordings (`recordings`, drawn by `programs`). `figures` puts a plotly figure on a page,
`address` knows where the repository is.
"""

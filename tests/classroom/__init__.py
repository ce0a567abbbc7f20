"""A class on one server, as docs/hub.md describes it: ``make classroom``. It takes root, and minutes."""

"""nbgrader's settings in everyone's server: the course, and where assignments are exchanged."""

import os

c = get_config()  # noqa: F821 - nbgrader defines it

c.CourseDirectory.course_id = "gpus"
c.Exchange.root = os.environ.get("EXCHANGE", "/srv/nbgrader/exchange")
c.HTMLExporter.sanitize_html = True  # the formgrader shows HTML in a submission as text

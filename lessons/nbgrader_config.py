"""A course of nbgrader: `nbgrader generate_assignment 01-device-placement`, `nbgrader autograde …`."""

c = get_config()  # noqa: F821 - nbgrader defines it

c.CourseDirectory.course_id = "fakegpu-lab"
c.GenerateAssignment.post_convert_hook = (
    "fakegpu_lab.course.lessons.release.after_nbgrader"  # wrong solutions stay here
)
c.GenerateFeedback.post_convert_hook = "fakegpu_lab.course.lessons.release.after_feedback"
c.Execute.timeout = 120
c.HTMLExporter.sanitize_html = True  # what a submission has of HTML is shown as text, in the formgrader, too

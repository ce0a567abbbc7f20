"""Grading a class: each submission repaired, run in a process and folder of its own, and told what it is worth.

``submissions`` finds them, ``repair`` puts locked cells back, ``sandbox`` starts ``confine`` (which takes away what a
submission has no business with) and in it ``runner`` (which runs the cells); ``one`` grades one submission and ``many``
a class; ``tables``, ``gradebook`` and ``pages`` tell the outcome. Nothing here is imported by a lesson.
"""

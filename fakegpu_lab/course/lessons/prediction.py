"""``%predict``: a place to write down what you expect, before the next cell shows what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakegpu_lab.course.lessons.classroom import Classroom

_REQUEST = "Think first: write down what you expect, and then run the next cell."


class Prediction:
    """A text field with a button in a notebook, a sentence elsewhere. What is saved is kept with the progress."""

    def __init__(self, room: Classroom, name: str) -> None:
        self._room, self._name = room, name

    def __repr__(self) -> str:
        return _REQUEST

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        try:
            widget = self._widget()
        except ImportError:  # the notebook extra is not installed
            return {"text/plain": repr(self)}
        bundle = widget._repr_mimebundle_(include=include, exclude=exclude)
        return {**(bundle[0] if isinstance(bundle, tuple) else bundle), "text/plain": repr(self)}

    def _widget(self) -> Any:
        import ipywidgets

        layout = ipywidgets.Layout(width="auto", max_width="860px", flex="1 1 320px")
        text = ipywidgets.Textarea(
            value=self._room.prediction(self._name), placeholder="What do you expect?", rows=2, layout=layout
        )
        button = ipywidgets.Button(description="Save", tooltip="Keep this prediction with your progress")
        said = ipywidgets.Label()

        def save(_: Any) -> None:
            empty = not text.value.strip()
            said.value = "Write what you expect first." if empty else self._room.predict(self._name, text.value)

        button.on_click(save)
        row = ipywidgets.Layout(flex_flow="row wrap", align_items="center")
        return ipywidgets.HBox([text, button, said], layout=row)

"""The form of a lab's parameters, made from the same declaration as the flags of the command line."""

from __future__ import annotations

import re
import textwrap

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.message import Message
from textual.widgets import Input, Select, Static

from labs.params import Field, LabSpec, fields_of
from workbench import palette
from workbench.options import AppOptions
from workbench.screens.typed import TypedInput

COMMON_DEVICES = ("auto", "cpu", "cuda")


def common_fields(spec: LabSpec, options: AppOptions) -> tuple[Field, ...]:
    """Return the options that every run has: ranks, device, seed, as the person's settings begin them."""
    return (
        Field(
            name="nproc",
            flag="--nproc",
            kind="int",
            default=options.nproc or spec.default_ranks,
            description="number of ranks",
            ge=spec.min_ranks,
            le=spec.max_ranks,
        ),
        Field(
            name="device",
            flag="--device",
            kind="choice",
            default=options.device,
            description="auto: CUDA where there is one GPU a rank",
            choices=COMMON_DEVICES,
        ),
        Field(
            name="seed",
            flag="--seed",
            kind="int",
            default=options.seed,
            description="seed of all ranks",
            ge=0,
        ),
    )


class ParameterForm(VerticalScroll, can_focus=False):
    """One row a parameter; says `Changed` when a value did."""

    class Changed(Message):
        """A value was edited."""

    class Focused(Message):
        """The cursor is in this field."""

        def __init__(self, field: Field) -> None:
            super().__init__()
            self.field = field

    def __init__(self, spec: LabSpec, options: AppOptions) -> None:
        super().__init__(id="form")
        self.common = common_fields(spec, options)
        self.own = fields_of(spec.params)
        self._ellipsis = palette.glyphs(options.ascii).ellipsis

    def compose(self) -> ComposeResult:
        """A row: flag, control, what it means and what is allowed."""
        for field in (*self.common, *self.own):
            with Horizontal(classes="field", id=f"field-{field.name}"):
                yield Static(field.flag, classes="flag", markup=False)
                yield control(field)
                yield Hint(field, self._ellipsis)

    def values(self, fields: tuple[Field, ...]) -> dict[str, str | bool]:
        """Return what stands in the controls of `fields`, as text, by parameter name."""
        return {field.name: self._value(field) for field in fields}

    def fill(self, values: dict[str, str | bool]) -> None:
        """Set every control: to the value given for its parameter, else to its default."""
        for field in (*self.common, *self.own):
            value = values.get(field.name, field.default)
            if field.kind == "bool":
                value = "on" if value in (True, "on", "true") else "off"
            widget = self.query_one(f"#value-{field.name}")
            assert isinstance(widget, Select | Input)
            widget.value = str(value)

    def _value(self, field: Field) -> str | bool:
        widget = self.query_one(f"#value-{field.name}")
        if isinstance(widget, Select):
            return str(widget.value)
        assert isinstance(widget, Input)
        return widget.value.strip()

    def mark(self, flag: str) -> None:
        """Mark the field that was refused; an empty flag unmarks all."""
        for field in (*self.common, *self.own):
            self.query_one(f"#field-{field.name}").set_class(field.flag == flag, "-refused")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the screen."""
        event.stop()
        self.post_message(self.Changed())

    def on_select_changed(self, event: Select.Changed) -> None:
        """Tell the screen."""
        event.stop()
        self.post_message(self.Changed())

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Tell in full what the focused parameter means and allows."""
        name = (event.widget.id or "").removeprefix("value-")
        for field in (*self.common, *self.own):
            if field.name == name:
                self.post_message(self.Focused(field))


def control(field: Field) -> Input | Select[str]:
    """Return the widget that edits one parameter."""
    widget_id = f"value-{field.name}"
    if field.kind == "bool":
        return _select(("on", "off"), "on" if field.default else "off", widget_id)
    if field.kind == "choice":
        return _select(field.choices, str(field.default), widget_id)
    return TypedInput(str(field.default), compact=True, id=widget_id)


def _select(choices: tuple[str, ...], value: str, widget_id: str) -> Select[str]:
    options = [(choice, choice) for choice in choices]
    return Select(options, value=value, allow_blank=False, compact=True, id=widget_id)


def meaning(field: Field) -> str:
    """Return what a parameter means and what may be given, in one sentence."""
    unit = f" ({field.unit})" if field.unit else ""
    allowed = "on, off" if field.kind == "bool" else field.allowed
    return f"{field.flag}: {field.description}{unit}. Allowed: {allowed}."


class Hint(Static):
    """What a parameter means, as much of it as its width shows; the line below the form says all of it."""

    def __init__(self, field: Field, ellipsis: str) -> None:
        super().__init__(classes="hint", markup=False)
        self._field = field
        self._ellipsis = ellipsis

    def on_resize(self) -> None:
        """Say it anew where the width is another one."""
        self.update(hint(self._field, self.size.width, self._ellipsis))


def hint(field: Field, room: int, ellipsis: str) -> str:
    """Return the longest of a parameter's hints that fits: with its bounds, then ever less, at last cut."""
    whole = f"{field.description}  {_bounds(field)}".strip()
    plain = field.description.partition(" (")[0]
    short = ", ".join(field.choices) if field.choices else re.split("[;:]", plain)[0]
    fitting = (text for text in (whole, field.description, plain, short) if len(text) <= room)
    return next(fitting, textwrap.shorten(short, max(room, 1), placeholder=ellipsis))


def _bounds(field: Field) -> str:
    signs = ((">=", field.ge), (">", field.gt), ("<=", field.le), ("<", field.lt))
    return " ".join(f"{sign}{bound:g}" for sign, bound in signs if bound is not None)

"""Two small questions over a screen: yes or no, and one line of text."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from workbench.panes.keys_footer import KeysFooter
from workbench.screens.typed import TypedInput


class Confirm(ModalScreen[bool], inherit_bindings=False):
    """Asks before something cannot be undone; anything but `y` means no, a `y` before it was seen nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no", key_display="n"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question
        self._seen = False

    def on_mount(self) -> None:
        """On a slow link keys come together: those meant for what was there before are no answer."""
        self.call_after_refresh(self._is_seen)

    def _is_seen(self) -> None:
        self._seen = True

    def compose(self) -> ComposeResult:
        """The question in a box."""
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
        yield KeysFooter()

    def action_answer(self, answer: bool) -> None:
        """Close with the answer."""
        if self._seen or not answer:
            self.dismiss(answer)


class Ask(ModalScreen[str | None], inherit_bindings=False):
    """Asks for one line; None where the person left without an answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave it as it is")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """A line to edit in a box."""
        with Vertical(classes="dialog") as box:
            box.border_title = self._title
            yield TypedInput(self._text, compact=True, select_on_focus=False)
        yield KeysFooter()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter takes the line."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Close without an answer."""
        self.dismiss(None)

"""The help screen, made from the bindings of the screen it was opened on."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from workbench import palette
from workbench.panes.keys_footer import KeysFooter

MOVING = ("up", "down", "pageup", "pagedown", "home", "end")
"""What lists, texts and panes have alike: one line for all of it."""
SIDEWAYS = ("scroll_left", "scroll_right", "page_left", "page_right")
"""What Textual binds for wide contents, of which there are none."""
COLOURS = (
    "Colours never stand alone: a rank has its number, a phase its glyph and its word, a lane its letters. "
    "Runs are kept in a folder each; the same record is replayed with: workbench --replay RUN"
)


class HelpScreen(ModalScreen[None], inherit_bindings=False):
    """All keys that work where help was asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "dismiss", "close"),
        Binding("up", "scroll('up')", "up", show=False),
        Binding("down", "scroll('down')", "down", show=False),
    ]

    def __init__(self, bindings: dict[str, ActiveBinding], glyphs: palette.Glyphs) -> None:
        super().__init__()
        self._bindings_shown = bindings
        self._glyphs = glyphs

    def compose(self) -> ComposeResult:
        """The keys in two columns: key, what it does."""
        with VerticalScroll(id="help"):
            yield Static(self._text(), markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Name the box."""
        self.query_one("#help").border_title = "keys"

    def _text(self) -> Text:
        text = Text()
        for key, meaning in keys_of(self._bindings_shown, self.app.get_key_display):
            text.append(f"  {key:<13} ", f"bold {palette.ACCENT}")
            text.append(f"{meaning}\n")
        text.append("\nphases   ", palette.MUTED)
        for phase, colour in palette.PHASES.items():
            text.append(f"{self._glyphs.phases[phase]} {phase}  ", colour)
        text.append("\nlanes    ", palette.MUTED)
        for lane, colour in palette.LANES.items():
            text.append(f" {lane} ", f"{palette.ON_COLOUR} on {colour}")
            text.append(" ")
        return text.append(f"\n\n{COLOURS}", palette.MUTED)

    def action_scroll(self, direction: str) -> None:
        """Move the text where it is longer than the screen."""
        box = self.query_one("#help")
        box.scroll_relative(y=1 if direction == "down" else -1, animate=False)


def keys_of(bindings: dict[str, ActiveBinding], display: Callable[[Binding], str]) -> list[tuple[str, str]]:
    """Return keys and meaning of each action once: those of the footer, then the others, then how to move."""
    keys: dict[str, list[str]] = {}
    moving: dict[str, str] = {}
    every = [one.binding for one in bindings.values()]
    named = [one for one in every if one.description and not one.system and one.action not in SIDEWAYS]
    together = {part for one in named if " " in display(one) for part in display(one).split()}
    for binding in sorted(named, key=lambda one: not one.show):
        key = display(binding)
        if binding.key in MOVING:
            moving[binding.key] = key
        elif key not in together and key not in keys.setdefault(binding.description, []):
            keys[binding.description].append(key)
    found = [(" ".join(keys), meaning) for meaning, keys in keys.items() if keys]
    return [*found, (" ".join(moving[key] for key in MOVING if key in moving), "move")] if moving else found

"""The keys in the last line: as many as fit, and always back, stop, help, quit."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

ALWAYS = ("escape", "escape,question_mark", "question_mark", "q")
ALWAYS_ACTIONS = ("stop", "again")
"""What one wants of a run: a pane's own keys may not crowd it out."""
AROUND = 3
"""Blanks around a key and its words."""


class KeysFooter(Footer):
    """A footer that leaves out keys where the line is too short, instead of cutting the last ones off."""

    def compose(self) -> ComposeResult:
        """Return the keys that fit, in their order; help lists them all."""
        keys: list[Widget] = list(super().compose())
        room = self.app.size.width - sum(_width(key) for key in keys if _stays(key))
        for key in keys:
            if not _stays(key):
                room -= _width(key)
                if room < 0:
                    continue
            yield key

    def on_resize(self) -> None:
        """Another width has room for others."""
        self.call_after_refresh(self.recompose)


def _stays(key: Widget) -> bool:
    return isinstance(key, FooterKey) and (key.key in ALWAYS or key.action in ALWAYS_ACTIONS)


def _width(key: Widget) -> int:
    return len(key.key_display) + len(key.description) + AROUND if isinstance(key, FooterKey) else 0

"""The line of pane names that shows which one is in view, where one is shown at a time."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from workbench import palette
from workbench.panes.ink import ink, muted, style


class PaneBar(Widget):
    """`1 loss  2 ranks ...` with the pane in view marked."""

    def __init__(self) -> None:
        super().__init__(id="pane-bar")
        self._entries: list[tuple[str, str]] = []
        self._active = -1

    def show(self, entries: list[tuple[str, str]], active: int) -> None:
        """Take keys and titles; `active` is the place of the one in view."""
        if (entries, active) != (self._entries, self._active):
            self._entries, self._active = entries, active
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return the names, shortened together until they fit."""
        width = self.size.width
        limit = max((len(title) for _, title in self._entries), default=0)
        while limit > 3 and self._length(limit) > width:
            limit -= 1
        line: list[Segment] = []
        for place, (key, title) in enumerate(self._entries):
            text = f" {key} {title[:limit]} "
            if place == self._active:
                line.append(Segment(text, style(palette.ON_COLOUR, on=palette.ACCENT, bold=True)))
            else:
                line += [ink(f" {key}", palette.ACCENT), muted(f" {title[:limit]} ")]
        return Strip(line).crop_extend(0, width, None).apply_style(self.rich_style)

    def _length(self, limit: int) -> int:
        return sum(len(key) + min(len(title), limit) + 3 for key, title in self._entries)

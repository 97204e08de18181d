"""What every pane is: a title and lines drawn from one snapshot; only the lines that changed are redrawn."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

import msgspec
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from workbench import palette
from workbench.panes.ink import Line, ink, muted

S = TypeVar("S", bound=msgspec.Struct)


class Pane(ScrollView, Generic[S], can_focus=True, inherit_bindings=False):
    """Shows a snapshot. Subclasses give `lines`; in it they may `say` a fact into the frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", "scroll up", key_display="up", show=False),
        Binding("down", "scroll_down", "scroll down", key_display="down", show=False),
        Binding("pageup", "page_up", "page up", show=False),
        Binding("pagedown", "page_down", "page down", show=False),
        Binding("home", "scroll_home", "to the first line", show=False),
        Binding("end", "scroll_end", "to the last line", show=False),
    ]
    NAME: ClassVar[str] = ""
    TITLE: ClassVar[str] = ""
    SHORT: ClassVar[str] = ""
    """The title where panes share one line; empty: the title itself."""
    SPAN: ClassVar[int] = 2
    """How many of the grid's six columns the pane likes."""
    WEIGHT: ClassVar[int] = 10
    """Its share of the height, beside the other rows of the grid."""
    MAX_HZ: ClassVar[float] = 4.0
    FOLLOW: ClassVar[bool] = False
    """Whether the newest line, at the end, stays in view."""
    WAITING: ClassVar[str] = ""

    def __init__(self, *, ascii_only: bool = False, key: str = "") -> None:
        super().__init__(id=f"pane-{self.NAME}")
        self.glyphs = palette.glyphs(ascii_only)
        self.ascii_only = ascii_only
        self.key = key
        self.shown: S | None = None
        self.rank: int | None = None
        self.is_shown = False
        self._strips: list[Strip] = []
        self._lost_to_bar = 0
        self._drawn: tuple[S | None, int, int, int | None] | None = None
        self.border_title = f"{key} {self.TITLE}" if key else self.TITLE

    @property
    def short(self) -> str:
        """The title for a line that all panes share."""
        return self.SHORT or self.TITLE

    def show(self, snapshot: S) -> None:
        """Draw the snapshot, if it is another one than the one on the screen."""
        if snapshot is not self.shown:
            self.shown = snapshot
            self.redraw()

    def choose_rank(self, rank: int | None) -> None:
        """The person looks at this rank (None: at all of them)."""
        if rank != self.rank:
            self.rank = rank
            self.redraw()

    def lines(self, snapshot: S, width: int, height: int) -> list[Line]:
        """Return what to draw in `width` cells; `height` lines are in view, more can be scrolled to."""
        raise NotImplementedError

    def chosen_span(self) -> str:
        """Return the name of the span under this pane's cursor; empty where it has none."""
        return ""

    def text(self) -> str:
        """Return all its lines without colours, for a file or the clipboard."""
        return "\n".join(strip.text.rstrip() for strip in self._strips)

    def say(self, text: str) -> None:
        """Put a short fact into the frame, at the right of the title."""
        if self.border_subtitle != text:
            self.border_subtitle = text

    def waiting(self, text: str) -> list[Line]:
        """Return the first frame: what this pane waits for."""
        return [[], [ink("  "), muted(text)]]

    def on_resize(self) -> None:
        """Draw anew: lines depend on the width."""
        self.redraw()

    def redraw(self) -> None:
        """Draw the snapshot and refresh the lines that differ from those on the screen."""
        width, height = self.scrollable_content_region.size
        if self.show_vertical_scrollbar:
            width += self.styles.scrollbar_size_vertical
        if self.shown is None or width < 4:
            return
        drawn = (self.shown, width, height, self.rank)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        before = self._strips
        at_end = self.scroll_offset.y >= self.max_scroll_y
        self._strips = self._fitted(width, height)
        size = Size(width - self._lost_to_bar, len(self._strips))
        if size != self.virtual_size:
            self.virtual_size = size
            self.refresh()
            if self.FOLLOW and at_end:
                self.scroll_end(animate=False)
            return
        if self.FOLLOW and before != self._strips:
            self.refresh()
            return
        for y, (old, new) in enumerate(zip(before, self._strips, strict=True)):
            if old != new:
                self.refresh_line(y - self.scroll_offset.y)

    def _fitted(self, width: int, height: int) -> list[Strip]:
        """Draw in `width` cells, less the scroll bar's where the lines are too many to be seen at once.

        The bar appears only after the lines are there, and nothing tells that they have lost cells to it.
        """
        assert self.shown is not None
        lines = self.lines(self.shown, width - self._lost_to_bar, height)
        bar = self.styles.scrollbar_size_vertical if len(lines) > height else 0
        if bar != self._lost_to_bar:
            self._lost_to_bar = bar
            lines = self.lines(self.shown, width - bar, height)
        return [Strip(line) for line in lines]

    def refresh_line(self, y: int) -> None:
        """Refresh one line of the content, counted from the first in view."""
        if 0 <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """Return the strip at line `y` of the view."""
        row = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        strip = self._strips[row] if row < len(self._strips) else Strip.blank(width)
        return strip.crop_extend(0, width, None).apply_style(self.rich_style)

"""The whole log in a scrolled view: only the lines in sight are drawn, however long it is."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.strip import Strip

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import clipped, ink, muted, style
from workbench.views.logbook import Entry, LogbookSnapshot, matches, of_rank
from workbench.views.units import count

TIME_WIDTH = 10
WHO_WIDTH = 11
SHIFT = 20


class LogbookPane(Pane[LogbookSnapshot]):
    """One line an entry: when, which ranks, what; `!` marks stderr, `>` the line that was found."""

    NAME = "logbook"
    TITLE = "log"
    FOLLOW: ClassVar[bool] = False

    def __init__(self, *, ascii_only: bool = False) -> None:
        super().__init__(ascii_only=ascii_only)
        self.following = True
        self.query_text = ""
        self.at = -1
        """The place of the entry that was found last."""
        self.shift = 0
        self._entries: list[Entry] | tuple[Entry, ...] = ()
        self._found: list[int] = []

    def redraw(self) -> None:
        """Take the entries of the chosen rank, and keep the end in view where the log is followed."""
        snapshot = self.shown
        width = self.scrollable_content_region.width
        if snapshot is None or width < TIME_WIDTH:
            return
        self._entries = tuple(of_rank(snapshot.entries, self.rank))
        self._found = matches(self._entries, self.query_text)
        if self.at not in self._found:
            self.at = -1
        self.virtual_size = Size(width, max(1, len(self._entries)))
        self._tell(snapshot)
        self.refresh()
        self.keep_up()

    @property
    def at_rest(self) -> bool:
        """Whether the newest line is in view where the log is followed."""
        region = self.scrollable_content_region
        shown = self.scroll_offset.y + region.height
        return region.width >= TIME_WIDTH and (not self.following or shown >= len(self._entries))

    def keep_up(self) -> None:
        """Bring the newest line into view where the log is followed; sizes may have changed since."""
        if self.following and self.scroll_offset.y < self.max_scroll_y:
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)

    def _tell(self, snapshot: LogbookSnapshot) -> None:
        words = ["[ ] all ranks" if self.rank is None else f"[ ] rank {self.rank}"]
        words.append(count(len(self._entries), "line"))
        if snapshot.older:
            words.append(f"{snapshot.older} older in the files")
        if self.query_text:
            words.append(f"{len(self._found)} with {self.query_text!r}")
        words.append("follows" if self.following else "stays")
        self.say(f" {self.glyphs.dot} ".join(words))

    def text(self) -> str:
        """Return the entries in view of the chosen rank, for a file or the clipboard."""
        return "\n".join(f"{self._when(entry)} {entry.who} {entry.text}" for entry in self._entries)

    def render_line(self, y: int) -> Strip:
        """Draw the entry at line `y` of the view."""
        width = self.scrollable_content_region.width
        row = y + self.scroll_offset.y
        if row >= len(self._entries):
            return self._empty(row, width)
        entry = self._entries[row]
        colour = palette.WARN if entry.stream == "stderr" else ""
        who = palette.rank_colour(entry.ranks[0]) if len(entry.ranks) == 1 else palette.STRONG
        mark = ">" if row == self.at else "!" if entry.stream == "stderr" else " "
        room = width - TIME_WIDTH - WHO_WIDTH - len(mark) - 1
        line = [
            muted(self._when(entry), TIME_WIDTH),
            ink(entry.who, who, bold=True, width=WHO_WIDTH),
            ink(f"{mark} ", palette.ACCENT if row == self.at else colour, bold=True),
            *self._marked(clipped(entry.text, room, self.glyphs.ellipsis, start=self.shift), colour),
        ]
        return Strip(line).crop_extend(0, width, None).apply_style(self.rich_style)

    def _empty(self, row: int, width: int) -> Strip:
        if row or self._entries or self.shown is None:
            return Strip.blank(width, self.rich_style)
        who = "the ranks" if self.rank is None else f"rank {self.rank}"
        text = f"  {who} printed nothing{'' if self.shown.over else ' yet'}"
        return Strip([muted(text)]).crop_extend(0, width, None).apply_style(self.rich_style)

    def _when(self, entry: Entry) -> str:
        start = self.shown.start if self.shown is not None else 0
        return f"{(entry.t - start) / 1e9:+9.3f}"

    def _marked(self, text: str, colour: str) -> list[Segment]:
        """The text with what was searched for reversed."""
        query = self.query_text
        if not query:
            return [ink(text, colour)]
        whole = text if query != query.lower() else text.lower()
        segments: list[Segment] = []
        start = 0
        while (place := whole.find(query, start)) >= 0 and len(whole) == len(text):
            segments += [
                ink(text[start:place], colour),
                Segment(text[place : place + len(query)], style(colour, reverse=True)),
            ]
            start = place + len(query)
        return [*segments, ink(text[start:], colour)]

    def search(self, query: str) -> None:
        """Look for `query` from the line in view on."""
        self.query_text = query
        self.at = -1
        self.redraw()
        self.find(1)

    def find(self, by: int) -> None:
        """Go to the next entry that has the text (`by` 1), or to the one before (-1); around at the ends."""
        if not self._found:
            return
        here = self.at if self.at >= 0 else self.scroll_offset.y - 1
        if by > 0:
            self.at = next((place for place in self._found if place > here), self._found[0])
        else:
            self.at = next((place for place in reversed(self._found) if place < here), self._found[-1])
        self.following = False
        self.scroll_to(y=max(0, self.at - self.size.height // 2), animate=False)
        self.redraw()

    def move(self, by: int) -> None:
        """Shift long lines."""
        self.shift = max(0, self.shift + by * SHIFT)
        self.refresh()

    def follow(self, on: bool) -> None:
        """Keep the newest line in view, or stay where one is."""
        self.following = on
        self.redraw()

    def action_scroll_up(self) -> None:
        """Whoever moves away from the end does not want to be taken back there."""
        self.follow(False)
        super().action_scroll_up()

    def action_page_up(self) -> None:
        """Away from the end, too."""
        self.follow(False)
        super().action_page_up()

    def action_scroll_home(self) -> None:
        """To the first line."""
        self.follow(False)
        self.scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        """To the newest line, and stay with it."""
        self.follow(True)

    def on_mouse_scroll_up(self) -> None:
        """The wheel is moving away, too."""
        self.follow(False)

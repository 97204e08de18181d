"""The log screen: everything that the ranks printed, of one rank or of all, searched and followed."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from workbench.feed import Feed
from workbench.panes.keys_footer import KeysFooter
from workbench.panes.logbook import LogbookPane
from workbench.screens.base import WorkbenchScreen
from workbench.screens.dialog import Ask
from workbench.views.logbook import LogbookView

REFRESH_S = 0.25


class LogScreen(WorkbenchScreen):
    """The log of the run in `folder`.

    Raises:
        OSError, msgspec.MsgspecError: the folder is no run.
    """

    AUTO_FOCUS = "LogbookPane"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("slash", "search", "search", key_display="/", tooltip="search the log"),
        Binding("n", "find(1)", "next", key_display="n N", tooltip="the next line found"),
        Binding("N", "find(-1)", "the one before", show=False, tooltip="the line found before"),
        Binding("f", "follow", "follow", tooltip="follow the newest line, or stay"),
        Binding("right_square_bracket", "rank(1)", "rank", key_display="[ ]", tooltip="choose the next rank"),
        Binding("left_square_bracket", "rank(-1)", "previous rank", show=False),
        Binding("right", "move(1)", "long lines", key_display="left right", tooltip="the rest of long lines"),
        Binding("left", "move(-1)", "the beginning of long lines", show=False),
    ]

    def __init__(self, folder: Path, *, ascii_only: bool, rank: int | None = None) -> None:
        super().__init__()
        self.feed = Feed(folder, ())
        self.book = LogbookView(self.feed.manifest)
        self.feed.add("logbook", self.book)
        self.pane = LogbookPane(ascii_only=ascii_only)
        self.pane.rank = rank
        self.pane.border_title = f"log of {self.feed.manifest.run_id}"

    def compose(self) -> ComposeResult:
        """The log fills the screen."""
        yield self.pane
        yield KeysFooter()

    def on_mount(self) -> None:
        """Read the record and follow it."""
        self._timer = self.set_interval(REFRESH_S, self.tick)
        self.tick()

    def tick(self) -> None:
        """Fold what came."""
        self.feed.poll()
        self.pane.show(self.book.snapshot())
        self.pane.keep_up()
        if self.feed.result is not None:
            if self.pane.at_rest:  # before its first layout it cannot show the end
                self._timer.stop()
        elif self.feed.behind:
            self.read_on(self._more)

    def _more(self) -> bool:
        self.feed.poll()
        return self.feed.behind

    def action_search(self) -> None:
        """Ask for a text and go to the next line that has it."""

        def look(text: str | None) -> None:
            if text is not None:
                self.pane.search(text)
                if text and self.pane.at < 0:
                    self.notify(f"no line has {text!r}", severity="warning")

        self.app.push_screen(Ask("search the log", self.pane.query_text), look)

    def action_find(self, by: int) -> None:
        """Go to the next line that has the text."""
        self.pane.find(by)

    def action_follow(self) -> None:
        """Keep the newest line in view, or stay."""
        self.pane.follow(not self.pane.following)

    def action_rank(self, by: int) -> None:
        """Choose one rank; before the first and after the last: all, merged by time."""
        choices: list[int | None] = [None, *range(self.feed.manifest.world_size)]
        self.pane.choose_rank(choices[(choices.index(self.pane.rank) + by) % len(choices)])

    def action_move(self, by: int) -> None:
        """Shift long lines."""
        self.pane.move(by)

    def folders(self) -> tuple[Path, ...]:
        """What is kept of a run goes into its folder, where that can be written."""
        return (self.feed.folder, *super().folders())

    def action_back(self) -> None:
        """To the screen before."""
        self.dismiss()

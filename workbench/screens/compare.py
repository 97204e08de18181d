"""The compare screen: two or more runs, their facts in a table, their losses and schedules on one scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from workbench.feed import Feed
from workbench.panes.base import Pane
from workbench.panes.compare import CompareTablePane, OverlayPane, StackPane
from workbench.panes.keys_footer import KeysFooter
from workbench.panes.pane_bar import PaneBar
from workbench.screens.base import WorkbenchScreen
from workbench.views import compare
from workbench.views.compare import Compared

PANES = ("loss", "gantt")
"""The view models that are fed from each run's record."""
REFRESH_S = 0.25


class CompareScreen(WorkbenchScreen):
    """The runs in `folders`; those that still run are followed.

    Raises:
        OSError, msgspec.MsgspecError: a folder is no run.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("1", "pane(0)", "pane alone", key_display="1-3"),
        Binding("2", "pane(1)", "loss alone", show=False),
        Binding("3", "pane(2)", "schedules alone", show=False),
        Binding("right", "turn(1)", "next pane", show=False),
        Binding("left", "turn(-1)", "previous pane", show=False),
    ]

    def __init__(self, folders: tuple[Path, ...], *, ascii_only: bool) -> None:
        super().__init__()
        self.feeds = [Feed(folder, PANES) for folder in folders]
        self.active: int | None = None
        self._bare = False
        """Whether none of the runs has a schedule: the grid leaves its place to the others."""
        self._bar = PaneBar()
        self.panes: list[Pane[Any]] = [
            CompareTablePane(ascii_only=ascii_only, key="1"),
            OverlayPane(ascii_only=ascii_only, key="2"),
            StackPane(ascii_only=ascii_only, key="3"),
        ]

    def compose(self) -> ComposeResult:
        """The table beside the losses, the schedules below."""
        table, losses, schedules = self.panes
        yield self._bar
        with Vertical(id="rows"):
            yield Horizontal(table, losses, classes="row")
            yield Horizontal(schedules, classes="row")
        yield KeysFooter()

    def on_mount(self) -> None:
        """Read the records, a bit at a time, and follow those that grow."""
        self._timer = self.set_interval(REFRESH_S, self.tick)
        self.tick()
        self.rearrange()

    def on_resize(self) -> None:
        """Grid or one pane at a time."""
        self.rearrange()

    def tick(self) -> None:
        """Fold what came."""
        for feed in self.feeds:
            feed.poll()
        self._show()
        if all(feed.result is not None for feed in self.feeds):
            self._timer.stop()
        elif any(feed.behind for feed in self.feeds):
            self.read_on(self._more)

    def _more(self) -> bool:
        for feed in self.feeds:
            feed.poll()
        return any(feed.behind for feed in self.feeds)

    def _show(self) -> None:
        found = [
            Compared(
                feed.manifest, feed.result, feed.views["loss"].snapshot(), feed.views["gantt"].snapshot()
            )
            for feed in self.feeds
        ]
        snapshots = (compare.table(found), compare.overlay(found), compare.stack(found))
        for pane, snapshot in zip(self.panes, snapshots, strict=True):
            if pane.shown != snapshot:
                pane.show(snapshot)
        bare = snapshots[2].over and not snapshots[2].charts
        if bare != self._bare:
            self._bare = bare
            self.rearrange()

    def rearrange(self) -> None:
        """Show the grid, or the one pane that is in view."""
        if self.narrow and self.active is None:
            self.active = 0
        self.set_class(self.active is not None, "-single")
        for place, pane in enumerate(self.panes):
            pane.display = place == self.active or (self.active is None and not (self._bare and place == 2))
        for row in self.query(".row"):
            row.display = any(child.display for child in row.children)
        titles = [(str(place + 1), pane.short) for place, pane in enumerate(self.panes)]
        self._bar.show(titles, -1 if self.active is None else self.active)
        if self.active is not None:
            self.set_focus(self.panes[self.active])

    def action_pane(self, place: int) -> None:
        """Show one pane alone; the same key again, back to the grid."""
        self.active = None if self.active == place and not self.narrow else place
        self.rearrange()

    def action_turn(self, by: int) -> None:
        """Show the next pane, where one is shown at a time."""
        if self.active is not None:
            self.active = (self.active + by) % len(self.panes)
            self.rearrange()

    def action_back(self) -> None:
        """From one pane to the grid, from the grid to the history."""
        if self.active is not None and not self.narrow:
            self.active = None
            self.rearrange()
        else:
            self.dismiss()

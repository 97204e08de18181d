"""The run screen, live or replayed: panes in a grid or one at a time, progress, verdict, stop, run again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from labs.params import LabSpec, ParameterError, parse
from launcher.rundir import EVENTS
from workbench.feed import Feed
from workbench.messages import RunWanted, StopWanted
from workbench.panes.base import Pane
from workbench.panes.header import RunHeader
from workbench.panes.keys_footer import KeysFooter
from workbench.panes.pane_bar import PaneBar
from workbench.panes.registry import PANES
from workbench.screens.base import WorkbenchScreen
from workbench.screens.export import ask as ask_export
from workbench.screens.guide import GuidePanel
from workbench.screens.layout import pack
from workbench.screens.log import LogScreen
from workbench.screens.source import SourceScreen
from workbench.session import RunOptions
from workbench.views.run import RunSnapshot

ROOMY_LINES = 56
"""From this height on the grid of a failed run keeps all its rows."""
FAILURE_LINES = 16
BESIDE_COLUMNS = 180
"""From this width on the whole grid has room beside the guide."""
PANE_SHARE, REST_S = 0.015, 2.0
"""Of a core that drawing one pane may take: one that costs more rests for a while, at most so long."""
LOST_EVERY_S = 2
"""How often an attached run is looked after: whether the process that serves it is still there."""
FALLBACK = ("ranks", "communication", "checks", "log")
"""The panes of a run whose lab is not installed here."""


def panes_of(spec: LabSpec | None) -> tuple[str, ...]:
    """Return the panes to show: the lab's own, and the failure, which shows itself when there is one."""
    names = spec.panes if spec is not None else FALLBACK
    return (*(name for name in names if name in PANES and name != "failure"), "failure")


class RunScreen(WorkbenchScreen):
    """One run. `owned` where this app started it, so that it may stop it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("s", "stop", "stop", tooltip="stop the run"),
        Binding("r", "again", "run again", tooltip="run the same once more"),
        Binding("t", "guide", "guide", tooltip="the guide beside the panes, or hide it"),
        Binding("o", "source", "source", show=False, tooltip="the lab's source"),
        Binding(
            "1",
            "pane(1)",
            "pane alone",
            key_display="1-9",
            tooltip="one pane alone, or the grid again: 1 to 9",
        ),
        *(Binding(str(digit), f"pane({digit})", "", show=False) for digit in range(2, 10)),
        Binding("0", "pane(0)", "failure alone", show=False),
        Binding("right", "turn(1)", "next pane", key_display="right", show=False),
        Binding("left", "turn(-1)", "previous pane", key_display="left", show=False),
        Binding("enter", "zoom", "the focused pane alone", key_display="enter", show=False),
        Binding("right_square_bracket", "rank(1)", "rank", key_display="[ ]", tooltip="choose the next rank"),
        Binding("left_square_bracket", "rank(-1)", "previous rank", show=False),
        Binding("e", "export", "export", tooltip="export the run for other programs"),
        Binding("space", "pause", "hold the view"),
        Binding("L", "log", "whole log", tooltip="the whole log"),
    ]

    def __init__(
        self,
        feed: Feed,
        spec: LabSpec | None,
        *,
        owned: bool,
        ascii_only: bool,
        guided: bool = False,
    ) -> None:
        super().__init__()
        self.feed = feed
        self.spec = spec
        self.owned = owned
        self.guided = guided
        """Whether the guide is in view: beside the panes, or in their place on a small terminal."""
        self.names = panes_of(spec)
        self.active: str | None = None
        self.rank: int | None = None
        self.stopping = False
        self._ticks = 0
        self._rests: dict[str, float] = {}
        """Until when (monotonic) a pane that was costly to draw is left as it is."""
        self._over = False
        self._tabs = False
        self._header = RunHeader(feed.manifest, spec, ascii_only=ascii_only, owned=owned)
        self._bar = PaneBar()
        self.panes: dict[str, Pane[Any]] = {
            name: PANES[name](ascii_only=ascii_only, key=self.digit(name)) for name in self.names
        }
        self._rows = pack(self.names[:-1], {name: pane.SPAN for name, pane in self.panes.items()})

    def digit(self, name: str) -> str:
        """The key of a pane: 1 to 9 in their order, 0 for the failure."""
        place = self.names.index(name) + 1
        return "0" if name == "failure" else str(place) if place < 10 else ""

    def compose(self) -> ComposeResult:
        """Lay the panes out in rows; which of them show is decided by `rearrange`."""
        yield self._header
        yield self._bar
        with Horizontal(id="run-body"):
            with Vertical(id="rows"):
                yield Horizontal(self.panes["failure"], classes="row", id="row-failure")
                yield from self._grid()
            if self.spec is not None:
                app = self.workbench
                yield GuidePanel(self.spec, app.study(self.spec), app.guide_trouble(self.spec), app.glyphs)
        yield KeysFooter()

    def _grid(self) -> Iterator[Horizontal]:
        for row in self._rows:
            box = Horizontal(*(self.panes[name] for name in row), classes="row")
            box.styles.height = f"{max(self.panes[name].WEIGHT for name in row)}fr"
            for name in row:
                self.panes[name].styles.width = f"{self.panes[name].SPAN}fr"
            yield box

    def on_mount(self) -> None:
        """Start the one timer that asks the feed."""
        self.tick()
        self.guided = self.guided and not super().narrow  # where they take turns, the run is watched first
        self.rearrange()
        if self.guided:
            self.query_one(GuidePanel).focus()
        self.call_after_refresh(self.refresh_bindings)
        self.set_interval(1 / self.workbench.options.refresh_hz, self.tick)

    def on_resize(self) -> None:
        """Grid or tabs, by the size of the terminal."""
        self.rearrange()

    def tick(self) -> None:
        """Fold what came and hand snapshots to the panes that are due; nothing while the view is held."""
        if self._header.held:
            return
        self.feed.poll()
        if not self.terminal_behind:  # on a slow link frames are dropped, never events
            self._show(self.feed.run.snapshot())
        self._ticks += 1
        if self.feed.behind:
            self.read_on(self._more)

    def _more(self) -> bool:
        """Read on in a record that has much to tell; what it says is shown with the next tick."""
        if not self._header.held:
            self.feed.poll()
        return self.feed.behind and not self._header.held

    def _show(self, run: RunSnapshot) -> None:
        self._header.stopping = self.stopping and not run.over
        self._header.problem = self.feed.problem
        self._header.read_share = self.feed.read_share
        self._header.warming = self.owned and self.workbench.agent_state == "warming"
        if not self.owned and self._ticks % round(LOST_EVERY_S * self.workbench.options.refresh_hz) == 0:
            self._header.lost = self.feed.lost
        self._header.show(run)
        self._reveal_failure()
        for name, pane in self.panes.items():
            if pane.is_shown and (run.over or self._is_due(pane)):
                began = time.thread_time()
                pane.show(self.feed.views[name].snapshot())
                rest = (time.thread_time() - began) / PANE_SHARE
                self._rests[name] = time.monotonic() + min(rest, REST_S)
        if run.over != self._over:
            self._over = run.over
            self.refresh_bindings()

    def _is_due(self, pane: Pane[Any]) -> bool:
        every = max(1, round(self.workbench.options.refresh_hz / pane.MAX_HZ))
        in_turn = self._ticks % every == 0 and time.monotonic() >= self._rests.get(pane.NAME, 0.0)
        return pane.shown is None or in_turn

    def _reveal_failure(self) -> None:
        failed = self.feed.views["failure"].snapshot().failure is not None
        if failed and not self.has_class("-failed"):
            self.add_class("-failed")
            if self.active is not None or self.narrow:
                self.active = "failure"
            self.rearrange()

    def rearrange(self) -> None:
        """Show the grid, or the one pane that is in view."""
        shown = [name for name in self.names if name != "failure" or self.has_class("-failed")]
        if self.narrow and self.active not in shown:
            self.active = shown[0]
        if self._tabs and not self.narrow:
            self.active = None  # the terminal grew: the tab in view gives way to the grid
        self._tabs = self.narrow
        self.set_class(self.guided, "-guided")
        self.set_class(super().narrow, "-small")
        self.set_class(self.active is not None, "-single")
        for name, pane in self.panes.items():
            pane.is_shown = name in shown and self._in_view(name)
            pane.display = pane.is_shown
            if pane.is_shown:
                pane.show(self.feed.views[name].snapshot())
        for row in self.query(".row"):
            row.display = any(child.display for child in row.children)
        self._bar.show([(self.digit(name), self.panes[name].short) for name in shown], self._place(shown))
        self._fit_failure()
        if self.active is not None and not self.guided:
            self.set_focus(self.panes[self.active])  # at once: the next key may be for it

    @property
    def narrow(self) -> bool:
        """Whether panes take turns: on a small terminal, and beside the guide on most others."""
        return super().narrow or (self.guided and self.app.size.width < BESIDE_COLUMNS)

    def action_guide(self) -> None:
        """Show the guide beside the panes, or in their place; or hide it again."""
        if self.spec is None:
            return
        self.guided = not self.guided
        if not self.guided and self.focused is not None and self._tabs:
            self.set_focus(None)
        self.rearrange()
        if self.guided:
            self.query_one(GuidePanel).focus_best()

    def action_source(self) -> None:
        """Show the lab's source; with a span chosen in a pane, the line that made it."""
        if self.spec is None:
            return
        shown = [pane for pane in self.panes.values() if pane.is_shown]
        chosen = next((span for span in (pane.chosen_span() for pane in shown) if span), "")
        self.app.push_screen(SourceScreen(self.spec, self.feed.folder / EVENTS, chosen))

    def on_guide_panel_pane_wanted(self, event: GuidePanel.PaneWanted) -> None:
        """Bring the pane that the guide speaks of into view, where there is room or it was asked for."""
        if event.pane not in self.names or (super().narrow and not event.asked):
            return
        self.guided = self.guided and not super().narrow
        self.active = event.pane
        self.rearrange()

    def on_guide_panel_run_wanted(self, event: GuidePanel.RunWanted) -> None:
        """Run what the guide's step wants, in place of this run once it is over."""
        assert self.spec is not None
        try:
            params = parse(self.spec, event.given, event.nproc)
        except ParameterError as error:
            self.query_one(GuidePanel).changed(str(error))
            return
        chosen = self.workbench.options
        options = RunOptions(
            nproc=event.nproc,
            seed=event.seed,
            timeout_s=chosen.timeout_s,
            runs_dir=str(chosen.runs_dir) if chosen.runs_dir is not None else "",
            launcher=chosen.launcher,
        )
        self.post_message(RunWanted(self.spec, params, options, guided=True))

    def _in_view(self, name: str) -> bool:
        """Whether a pane has its place now: in the grid of a failed run only what helps to understand it."""
        if self.active is not None:
            return name == self.active
        if not self.has_class("-failed") or self.app.size.height >= ROOMY_LINES:
            return True
        row = next((row for row in self._rows if name in row), [name])
        return name == "failure" or "ranks" in row or "log" in row

    def _fit_failure(self) -> None:
        """In the grid the failure takes the lines that it needs, up to a bound."""
        snapshot = self.feed.views["failure"].snapshot()
        lines = self.panes["failure"].lines(snapshot, max(20, self.app.size.width - 4), FAILURE_LINES)
        self.query_one("#row-failure").styles.height = min(FAILURE_LINES, len(lines) + 2)

    def _place(self, shown: list[str]) -> int:
        return shown.index(self.active) if self.active in shown else -1

    def action_pane(self, digit: int) -> None:
        """Show one pane alone; the same digit again, back to the grid."""
        name = next((name for name in self.names if self.digit(name) == str(digit)), None)
        if name is None or (name == "failure" and not self.has_class("-failed")):
            return
        self.active = None if self.active == name and not self.narrow else name
        self.rearrange()

    def action_turn(self, by: int) -> None:
        """Show the next pane, where one is shown at a time."""
        if self.active is None:
            return
        shown = [name for name in self.names if name != "failure" or self.has_class("-failed")]
        self.active = shown[(shown.index(self.active) + by) % len(shown)]
        self.rearrange()

    def action_pause(self) -> None:
        """Hold the view as it is, or let it follow the run again; the run goes on either way."""
        self._header.held = not self._header.held and not self._over
        self._header.show(self.feed.run.snapshot())
        self.tick()

    def action_log(self) -> None:
        """Open the whole log, of the rank that was chosen."""
        ascii_only = self.workbench.options.ascii
        self.app.push_screen(LogScreen(self.feed.folder, ascii_only=ascii_only, rank=self.rank))

    def folders(self) -> tuple[Path, ...]:
        """What is kept of a run goes into its folder, where that can be written."""
        return (self.feed.folder, *super().folders())

    def action_zoom(self) -> None:
        """Show the focused pane alone, or the grid again."""
        focused = self.focused
        if self.narrow:
            return
        if self.active is not None:
            self.active = None
        elif isinstance(focused, Pane) and focused.NAME in self.panes:
            self.active = focused.NAME
        self.rearrange()

    def action_rank(self, by: int) -> None:
        """Choose a rank for the panes that can show one alone; before the first and after the last: all."""
        choices: list[int | None] = [None, *range(self.feed.manifest.world_size)]
        self.rank = choices[(choices.index(self.rank) + by) % len(choices)]
        for pane in self.panes.values():
            pane.choose_rank(self.rank)

    def action_back(self) -> None:
        """From one pane to the grid, from the grid to the screen before."""
        if self.focused is not None and self.focused.id == "guide-answer":
            self.set_focus(self.query_one(GuidePanel))
        elif self.guided:
            self.action_guide()
        elif self.active is not None and not self.narrow:
            self.active = None
            self.rearrange()
        elif self.owned and not self._over:
            self.notify("The run goes on; s stops it.", timeout=3)
            self.dismiss()
        else:
            self.dismiss()

    def action_stop(self) -> None:
        """End the run."""
        self.stopping = True
        self.post_message(StopWanted(self.feed.manifest.run_id))
        self._show(self.feed.run.snapshot())

    def action_export(self) -> None:
        """Write the run in a format that the person chooses."""
        ask_export(self, self.feed.folder)

    def action_again(self) -> None:
        """Run the same lab with the same parameters once more, in place of this screen."""
        if self._over:
            self.workbench.run_again(self)
        else:
            self.notify("The run is still stopping; once it has, r runs it again.", timeout=3)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer stop while it runs, run again once that was asked for or it is over."""
        if action == "stop":
            return self.owned and not self._over
        if action == "again":
            return (self._over or self.stopping) and self.spec is not None
        if action == "pause":
            return not self._over
        if action == "pane":
            return parameters != (0,) or self.has_class("-failed")
        return True

    def trouble(self, message: str) -> None:
        """The agent refused the run or was lost: say it in the header."""
        self._header.trouble = message
        self._show(self.feed.run.snapshot())

"""The history screen: all runs that are kept; found by words, sorted, noted, deleted, marked to compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from labs.params import ParameterError
from workbench import history, palette
from workbench.history import ORDERS, HistoryRun
from workbench.messages import ReplayWanted
from workbench.panes.keys_footer import KeysFooter
from workbench.screens.base import WorkbenchScreen
from workbench.screens.compare import CompareScreen
from workbench.screens.dialog import Ask, Confirm
from workbench.screens.facts import verdict_text
from workbench.screens.home import Choices, one_line
from workbench.screens.typed import TypedInput
from workbench.views.compare import RUNS_AT_MOST
from workbench.views.units import count

SHOWN_AT_MOST = 500
MIN_COMPARED = 2


class HistoryScreen(WorkbenchScreen):
    """Every run with its parameters, verdict and key figures."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("slash", "filter", "find", key_display="/", tooltip="find runs by words"),
        Binding("m,space", "mark", "mark", key_display="m", tooltip="mark the run, to compare or delete"),
        Binding("c", "compare", "compare", tooltip="compare the marked runs"),
        Binding("n", "note", "note", tooltip="write a note to the run"),
        Binding("d", "delete", "delete", tooltip="delete the marked runs, or this one"),
        Binding("o", "order", "order", tooltip="sort by another thing"),
        Binding("f5", "reload", "reload", show=False, tooltip="read the runs again"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._all: list[HistoryRun] = []
        self._shown: list[HistoryRun] = []
        self._marked: list[Path] = []
        self._order = ORDERS[0]

    def compose(self) -> ComposeResult:
        """A line to filter, the list, and beside or below it all of the run under the cursor."""
        yield TypedInput(placeholder="words of a run: dp failed nproc=8 lr=0.01", compact=True, id="filter")
        with Horizontal(id="history-body"):
            yield Choices(id="history")
            with VerticalScroll(id="run-detail"):
                yield Static(id="run-text", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Fill the list."""
        self.query_one("#filter", Input).border_title = "filter"
        self.query_one("#run-detail").border_title = "run"
        self.query_one("#history").focus()

    def on_screen_resume(self) -> None:
        """Coming back from a run, or from a question."""
        self.action_reload()

    def on_resize(self) -> None:
        """Beside each other, or only the list."""
        self.set_class(self.narrow, "-narrow")
        self._fill()

    def action_reload(self) -> None:
        """Read the folder of runs again."""
        self._all = history.load(self.workbench.runs_dir)
        kept = {run.folder for run in self._all}
        self._marked = [folder for folder in self._marked if folder in kept]
        self._fill()

    def on_input_changed(self) -> None:
        """Filter while the person types."""
        self._fill()

    def on_input_submitted(self) -> None:
        """From the filter into the list."""
        self.set_focus(self.query_one("#history"))

    def _fill(self) -> None:
        box = self.query_one("#history", OptionList)
        place = box.highlighted
        query = self.query_one("#filter", Input).value
        self._shown = history.chosen(self._all, query, self._order)
        few = self._shown[:SHOWN_AT_MOST]
        box.clear_options()
        if not few:
            why = "no run has all these words" if self._all else "no run yet: choose a lab and run it"
            box.add_option(Option(Text(why, palette.MUTED), disabled=True))
        box.add_options(Option(self._line(run)) for run in few)
        marked = f", {len(self._marked)} marked" if self._marked else ""
        box.border_title = f"history: {len(self._shown)} of {count(len(self._all), 'run')}{marked}"
        box.border_subtitle = f"o order: {self._order}"
        if few:
            box.highlighted = min(place or 0, len(few) - 1)
        self._describe()

    def _line(self, run: HistoryRun) -> Text:
        manifest, glyphs = run.manifest, self.workbench.glyphs
        mark = glyphs.marked if run.folder in self._marked else " "
        parts: list[str | Text | tuple[str, str]] = [
            (f"{mark} ", palette.WARN),
            (f"{manifest.lab:<12}", f"bold {palette.ACCENT}"),
            (f"{manifest.world_size:>3}r  ", palette.MUTED),
            (f"{manifest.created[5:16].replace('T', ' ')}  ", palette.MUTED),
            verdict_text(run.result, run.status == "running", glyphs),
            (f"  {run.note}" if run.note else "", palette.WARN),
            (f"  {' '.join(history.changed_params(manifest))}", palette.MUTED),
        ]
        return one_line(*parts)

    def _current(self) -> HistoryRun | None:
        place = self.query_one("#history", OptionList).highlighted
        return self._shown[place] if place is not None and place < len(self._shown) else None

    def on_option_list_option_highlighted(self) -> None:
        """Show all of the run under the cursor."""
        self._describe()

    def _describe(self) -> None:
        run = self._current()
        detail = self.query_one("#run-detail")
        if run is None:
            detail.border_title, text = "run", Text("no run under the cursor", palette.MUTED)
        else:
            detail.border_title = Content(run.manifest.run_id)
            text = describe(run, self.workbench.glyphs)
        self.query_one("#run-text", Static).update(text)
        detail.scroll_home(animate=False)

    def on_option_list_option_selected(self) -> None:
        """Open the run."""
        run = self._current()
        if run is not None:
            self.post_message(ReplayWanted(run.folder))

    def action_filter(self) -> None:
        """Type words that a run must have."""
        self.set_focus(self.query_one("#filter", Input))

    def action_order(self) -> None:
        """Sort by the next thing."""
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self._fill()

    def action_mark(self) -> None:
        """Mark the run, or unmark it; marked runs are compared or deleted together."""
        run = self._current()
        if run is None:
            return
        if run.folder in self._marked:
            self._marked.remove(run.folder)
        else:
            self._marked.append(run.folder)
        box = self.query_one("#history", OptionList)
        self._fill()
        box.action_cursor_down()

    def action_compare(self) -> None:
        """Put the marked runs side by side; with one marked, it and the one under the cursor."""
        run = self._current()
        folders = list(self._marked)
        if run is not None and len(folders) < MIN_COMPARED and run.folder not in folders:
            folders.append(run.folder)
        if len(folders) < MIN_COMPARED:
            self.notify("mark two runs or more with m, then c", severity="warning")
            return
        if len(folders) > RUNS_AT_MOST:
            self.notify(f"{len(folders)} runs are marked, {RUNS_AT_MOST} fit", severity="warning")
            return
        try:
            screen = CompareScreen(tuple(folders), ascii_only=self.workbench.options.ascii)
        except (OSError, msgspec.MsgspecError) as error:
            self.notify(f"cannot be compared: {error}", severity="error", timeout=10)
            return
        self.app.push_screen(screen)

    def action_note(self) -> None:
        """Write a line that stays with the run."""
        run = self._current()
        if run is None:
            return

        def keep(text: str | None) -> None:
            if text is not None:
                self._try(lambda: history.write_note(run.folder, text))

        self.app.push_screen(Ask(f"note of {run.manifest.run_id}", run.note), keep)

    def action_delete(self) -> None:
        """Remove the marked runs, or the one under the cursor, once the person has said yes."""
        current = self._current()
        doomed = [run for run in self._all if run.folder in self._marked] or ([current] if current else [])
        if not doomed:
            return
        what = doomed[0].manifest.run_id if len(doomed) == 1 else count(len(doomed), "marked run")

        def sure(yes: bool | None) -> None:
            if yes:
                self._try(lambda: history.delete(doomed))

        self.app.push_screen(Confirm(f"Delete {what}, record and all? It cannot be undone."), sure)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, ParameterError) as error:
            self.notify(str(error), severity="error", timeout=10)
        self.action_reload()

    def action_back(self) -> None:
        """From the filter to the list, from the list to the screen before."""
        field = self.query_one("#filter", Input)
        if self.focused is field:
            field.value = ""
            self.set_focus(self.query_one("#history"))
        else:
            self.dismiss()


def describe(run: HistoryRun, glyphs: palette.Glyphs) -> Text:
    """Return all of a run in lines: verdict, note, parameters, checks that failed, key figures."""
    manifest, result = run.manifest, run.result
    text = verdict_text(result, run.status == "running", glyphs).append("\n")
    if result is not None and result.reason and result.status == "interrupted":
        text.append(f"{result.reason}\n", palette.MUTED)
    if run.note:
        text.append(f"{run.note}\n", palette.WARN)
    text.append(
        f"{manifest.world_size} ranks, {manifest.backend} on {manifest.device}, seed {manifest.seed}\n"
    )
    text.append("\nparameters\n", palette.MUTED)
    changed = {entry.partition("=")[0] for entry in history.changed_params(manifest)}
    for name, value in manifest.params.items():
        text.append(f"{name} = {value}\n", "bold" if name in changed else palette.MUTED)
    figures = history.key_figures(result, 8)
    if figures:
        text.append("\nkey figures\n", palette.MUTED)
    for name, value in figures:
        text.append(f"{value:>12}  {name}\n")
    wrong = [check for check in result.checks if not check.passed] if result is not None else []
    if wrong:
        text.append("\nchecks that failed\n", palette.MUTED)
    for check in wrong:
        text.append(f"{glyphs.failed} {check.name}\n", palette.BAD)
    return text

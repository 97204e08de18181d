"""The home screen: the labs by group with what each teaches, what this machine has, and the recent runs."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from labs.catalog import GROUPS
from labs.params import LabSpec
from workbench import palette
from workbench.messages import HistoryWanted, ReplayWanted
from workbench.panes.keys_footer import KeysFooter
from workbench.runs import state_of
from workbench.screens.base import WorkbenchScreen
from workbench.screens.course import CourseScreen
from workbench.screens.exercise import state_text
from workbench.screens.facts import agent_text, machine_text, verdict_text
from workbench.screens.lab import LabScreen
from workbench.services import RecentRun, recent_runs


class Choices(OptionList):
    """A list whose Enter is seen in the footer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "open", key_display="enter", tooltip="open what the cursor is on"),
    ]


class Detail(VerticalScroll):
    """What a lab teaches; a stop of tab only where it is longer than its box."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "open", key_display="enter", tooltip="open the lab"),
    ]

    def allow_focus(self) -> bool:
        """Whether there is anything to scroll to."""
        return self.max_scroll_y > 0


def one_line(*parts: str | Text | tuple[str, str]) -> Text:
    """Return text that is cut at the end of its line, not broken."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


class HomeScreen(WorkbenchScreen):
    """Where the app opens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "next pane", show=True),
        Binding("m", "course", "course", tooltip="the course as a map"),
        Binding("h", "history", "history", tooltip="all runs that are kept"),
        Binding("f5", "reload", "reload runs", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._runs: list[RecentRun] = []

    def compose(self) -> ComposeResult:
        """Header, labs beside what the chosen one teaches, runs."""
        yield Static(id="title", markup=False)
        yield Static(id="machine", markup=False)
        with Horizontal(id="labs-and-detail"):
            yield Choices(id="labs")
            with Detail(id="detail"):
                yield Static(id="detail-text", markup=False)
        with Vertical(id="runs-box"):
            yield Choices(id="runs")
        yield KeysFooter()

    def on_mount(self) -> None:
        """Fill the lists."""
        labs = self.query_one("#labs", OptionList)
        labs.border_title = "labs"
        self.query_one("#runs", OptionList).border_title = "recent runs"
        for group in GROUPS:
            members = [spec for spec in self.workbench.labs.values() if spec.group == group]
            if members:
                labs.add_option(Option(Text(group, style=palette.MUTED), disabled=True))
                labs.add_options(Option(self._lab_line(spec), id=spec.id) for spec in members)
        labs.action_first()
        labs.focus()
        self.facts_changed()

    def on_screen_resume(self) -> None:
        """Coming back from a run: it is in the list now."""
        if self.is_current:  # opened on a run, home lies below it: no torch before it is wanted
            self.workbench.warm_up()
        self.action_reload()
        self._mark_labs()
        self.facts_changed()

    def _mark_labs(self) -> None:
        """Draw the labs anew: one may be done now."""
        labs = self.query_one("#labs", OptionList)
        for option in labs.options:
            if option.id is not None:
                labs.replace_option_prompt(option.id, self._lab_line(self.workbench.labs[option.id]))
        if self.workbench.course.problem:
            self.notify(self.workbench.course.problem, severity="warning", timeout=10)
            self.workbench.course.problem = ""

    def _lab_line(self, spec: LabSpec) -> Text:
        state = self.workbench.course.lab(spec.id).state
        return one_line(
            state_text(state, self.workbench.glyphs) if state != "open" else " ",
            " ",
            (f"{spec.id:<12}", f"bold {palette.ACCENT}"),
            " ",
            spec.title,
        )

    def facts_changed(self) -> None:
        """The machine is known, or the agent's state has changed."""
        app = self.workbench
        self.query_one("#title", Static).update(
            Text.assemble(
                ("Worldsize", f"bold {palette.ACCENT}"),
                "  ",
                agent_text(app.agent_state, app.agent_trouble, app.glyphs),
                ("  distributed training, by running it", palette.MUTED),
            )
        )
        spec = self._chosen()
        ranks = spec.default_ranks if spec is not None else 1
        self.query_one("#machine", Static).update(machine_text(app.machine, ranks, app.glyphs))

    def _chosen(self) -> LabSpec | None:
        labs = self.query_one("#labs", OptionList)
        option = labs.highlighted_option
        return self.workbench.labs.get(option.id or "") if option is not None else None

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show what the lab under the cursor teaches."""
        spec = self._chosen()
        if event.option_list.id != "labs" or spec is None:
            return
        detail = self.query_one("#detail")
        detail.border_title = Content(spec.title)
        ranks = f"{spec.min_ranks} to {spec.max_ranks} ranks, {spec.default_ranks} by default"
        text = Text.assemble(spec.summary, (f"\n{ranks}\n\n", palette.MUTED))
        facts = Table.grid(padding=(0, 1, 0, 0))
        if spec.teaches:
            text.append("what it teaches", palette.MUTED)
        for fact in spec.teaches:
            facts.add_row(Text(self.workbench.glyphs.bullet, palette.ACCENT), Text(fact))
        self.query_one("#detail-text", Static).update(Group(text, facts))
        detail.scroll_home(animate=False)
        self.facts_changed()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the lab, or the run."""
        if event.option_list.id == "labs":
            self.app.push_screen(LabScreen(self.workbench.labs[event.option.id or ""]))
        elif self._runs:
            self.post_message(ReplayWanted(self._runs[event.option_index].folder))

    def action_open(self) -> None:
        """Open the lab under the cursor."""
        self.query_one("#labs", OptionList).action_select()

    def action_course(self) -> None:
        """Open the map of the course."""
        self.app.push_screen(CourseScreen())

    def action_history(self) -> None:
        """Open the list of all runs."""
        self.post_message(HistoryWanted())

    def action_reload(self) -> None:
        """Read the list of runs again."""
        runs = self.query_one("#runs", OptionList)
        place = runs.highlighted
        self._runs = list(recent_runs(self.workbench.runs_dir))
        runs.clear_options()
        if not self._runs:
            runs.add_option(
                Option(Text("no run yet: choose a lab and press enter", palette.MUTED), disabled=True)
            )
        runs.add_options(Option(self._run_line(run)) for run in self._runs)
        if self._runs:
            runs.highlighted = min(place or 0, len(self._runs) - 1)

    def _run_line(self, run: RecentRun) -> Text:
        current = state_of(run.manifest, run.result) == "running"
        return one_line(
            (f"{run.manifest.lab:<12}", f"bold {palette.ACCENT}"),
            (f"{run.manifest.world_size:>3} ranks  ", palette.MUTED),
            (f"{run.manifest.created[:16].replace('T', ' ')}  ", palette.MUTED),
            verdict_text(run.result, current, self.workbench.glyphs),
        )

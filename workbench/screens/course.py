"""The course as a map: labs in order with what each needs and gives, its exercises, and how far one is."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from labs.exercises import exercises
from workbench import course_map, palette
from workbench.course_map import Stop
from workbench.panes.keys_footer import KeysFooter
from workbench.screens.base import WorkbenchScreen
from workbench.screens.exercise import ExerciseScreen, state_text
from workbench.screens.guide import row_text
from workbench.screens.lab import LabScreen


class CourseScreen(WorkbenchScreen):
    """The way through the labs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,m", "back", "back", key_display="esc"),
        Binding("enter", "open", "open the lab", key_display="enter"),
        Binding("x", "exercises", "its exercises"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.stops: tuple[Stop, ...] = ()

    def compose(self) -> ComposeResult:
        """The labs, and what is known of the one under the cursor."""
        yield Static(id="title", markup=False)
        with Horizontal(id="course-body"):
            yield OptionList(id="stops")
            with VerticalScroll(id="stop-box"):
                yield Static(id="stop", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Frame the two boxes."""
        self.query_one("#stops").border_title = "the course"
        self.query_one("#stops").focus()

    def on_resize(self) -> None:
        """Beside or above each other."""
        self.set_class(self.narrow, "-narrow")

    def on_screen_resume(self) -> None:
        """Coming back: something may be done now."""
        box = self.query_one("#stops", OptionList)
        at = box.highlighted or 0
        known = self.workbench.labs
        self.stops = tuple(stop for stop in course_map.stops(self.workbench.course) if stop.lab in known)
        done = sum(stop.state == "done" for stop in self.stops)
        minutes = sum(stop.minutes for stop in self.stops)
        self.query_one("#title", Static).update(
            Text.assemble(
                ("course", f"bold {palette.ACCENT}"),
                f"  {done} of {len(self.stops)} labs done, about {minutes} minutes in all",
            )
        )
        box.clear_options()
        box.add_options(Option(self._line(stop)) for stop in self.stops)
        box.highlighted = min(at, len(self.stops) - 1)

    def _line(self, stop: Stop) -> Text:
        tasks = sum(task.state == "done" for task in stop.exercises)
        told = f"{stop.steps_done}/{stop.steps}"
        of = f" {tasks}/{len(stop.exercises)} ex." if stop.exercises else ""
        return Text.assemble(
            state_text(stop.state, self.workbench.glyphs),
            (f" {stop.lab:<12}", f"bold {palette.ACCENT}"),
            (f"{told:>6}", palette.MUTED),
            (of, palette.MUTED),
        )

    @property
    def chosen(self) -> Stop:
        """The lab under the cursor."""
        return self.stops[self.query_one("#stops", OptionList).highlighted or 0]

    def on_option_list_option_highlighted(self) -> None:
        """Tell what the lab needs and gives."""
        stop = self.chosen
        self.query_one("#stop-box").border_title = stop.title
        dot = self.workbench.glyphs.dot
        text = Text(f"{stop.minutes} minutes, {stop.steps_done} of {stop.steps} steps done\n")
        if stop.next:
            text.append(f"next  {stop.next}\n", palette.WARN)
        needs = ", ".join(stop.needs) or "nothing: begin here"
        text.append("\nneeds  ", palette.MUTED).append(f"{needs}\n")
        text.append("\nwhat it teaches\n", palette.MUTED)
        for fact in stop.gives:
            text.append(f"{dot} ", palette.ACCENT).append(f"{fact}\n")
        for label, entries in (("in the texts", stop.texts), ("papers", stop.papers)):
            text.append(f"\n{label}\n", palette.MUTED)
            for entry in entries:
                text.append(f"{dot} {entry}\n")
        self._found_out(stop, text)
        if stop.exercises:
            text.append("\nexercises\n", palette.MUTED)
        for task in stop.exercises:
            text.append_text(state_text(task.state, self.workbench.glyphs))
            text.append(f" {task.title}  ").append(f"{task.minutes} min\n", palette.MUTED)
        self.query_one("#stop", Static).update(text)

    def _found_out(self, stop: Stop, text: Text) -> None:
        """Add the person's own answers and numbers, where there are some."""
        study = self.workbench.study(self.workbench.labs[stop.lab])
        rows = study.found_out() if study is not None else []
        if rows:
            text.append("\nwhat you found out\n", palette.MUTED)
        for step, row in rows:
            text.append(f"{self.workbench.glyphs.dot} {step.title}: ", palette.ACCENT)
            text.append_text(row_text(row, self.workbench.glyphs)).append("\n")

    def on_option_list_option_selected(self) -> None:
        """Open the lab."""
        self.action_open()

    def action_open(self) -> None:
        """Open the lab under the cursor."""
        self.app.push_screen(LabScreen(self.workbench.labs[self.chosen.lab]))

    def action_exercises(self) -> None:
        """Open the exercises of the lab under the cursor."""
        names = {task.name for task in self.chosen.exercises}
        found = tuple(one for one in exercises() if one.name in names)
        if found:
            self.app.push_screen(ExerciseScreen(found))
        else:
            self.notify(f"{self.chosen.title} has no exercises", timeout=3)

    def action_back(self) -> None:
        """Home."""
        self.dismiss()

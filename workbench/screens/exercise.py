"""A lab's exercises: the task, hints one by one, and the check of the learner's own file on real ranks."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from labs.exercises import Exercise, Verdict
from labs.params import ParameterError
from workbench import exercises, palette, watch
from workbench.course import State
from workbench.panes.keys_footer import KeysFooter
from workbench.panes.prose import prose
from workbench.screens.base import WorkbenchScreen

WATCH_S = 0.5


def state_text(state: State, glyphs: palette.Glyphs) -> Text:
    """Return how far a lab or an exercise is, as one glyph."""
    done = {"open": "starting", "started": "ready"}
    if state == "done":
        return Text(glyphs.passed, palette.GOOD)
    return Text(glyphs.phases[done[state]], palette.MUTED if state == "open" else palette.WARN)  # type: ignore[index]


class ExerciseScreen(WorkbenchScreen):
    """The exercises at the left, the chosen one beside them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,x", "back", "back", key_display="esc"),
        Binding("s", "stub", "take the stub", tooltip="copy the stub to ./exercises"),
        Binding("c", "check", "check", tooltip="check your file on real ranks"),
        Binding("a", "watch", "watch", tooltip="check at every save, or no more"),
        Binding("h", "hint", "next hint"),
    ]

    def __init__(self, found: tuple[Exercise, ...], name: str = "") -> None:
        super().__init__()
        self.exercises = found
        self.chosen = next((one for one in found if one.name == name), found[0])
        self.folder = Path(exercises.FOLDER)
        self.hints = 0
        self.verdict: Verdict | None = None
        self.said = ""
        self.watching = False
        self._seen = 0

    def compose(self) -> ComposeResult:
        """List and task."""
        yield Static(id="title", markup=False)
        with Horizontal(id="exercise-body"):
            yield OptionList(id="exercises")
            with VerticalScroll(id="exercise-box"):
                yield Static(id="exercise", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Fill the list; look for saves now and then."""
        self.set_class(self.narrow, "-narrow")
        self.query_one("#title", Static).update(
            Text.assemble(("exercises", f"bold {palette.ACCENT}"), "  write the missing code yourself")
        )
        self._list()
        self.query_one("#exercises").border_title = "exercises"
        self.query_one("#exercises").focus()
        self.set_interval(WATCH_S, self._look)

    def on_resize(self) -> None:
        """List beside or above the task."""
        self.set_class(self.narrow, "-narrow")
        self.redraw()

    def _list(self) -> None:
        known = self.workbench.course.exercises()
        box = self.query_one("#exercises", OptionList)
        box.clear_options()
        for one in self.exercises:
            state: State = known[one.name].state if one.name in known else "open"
            box.add_option(Option(Text.assemble(state_text(state, self.workbench.glyphs), " ", one.title)))
        box.highlighted = self.exercises.index(self.chosen)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the exercise under the cursor."""
        chosen = self.exercises[event.option_index]
        if chosen is not self.chosen:
            self.chosen, self.hints, self.verdict, self.said, self.watching = chosen, 0, None, "", False
        self.redraw()

    @property
    def path(self) -> Path:
        """The learner's own file."""
        return (self.folder / self.chosen.file_name).absolute()

    def redraw(self) -> None:
        """Draw the task, the verdict below it, and the hints that were asked for."""
        box = self.query_one("#exercise-box")
        width = max(30, box.content_size.width - 1)
        plain = self.workbench.options.ascii
        one = self.chosen
        box.border_title = one.title
        text = Text(f"{one.ranks} ranks, about {one.minutes} minutes\n\n", palette.MUTED)
        text.append_text(prose(one.text, width, ascii_only=plain)).append("\n\n")
        there = self.path.exists()
        text.append(f"{self.path}\n" if there else "s copies the stub to your folder\n", palette.ACCENT)
        for place in range(self.hints):
            text.append(f"\nhint {place + 1} of {len(one.hints)}\n", "bold")
            text.append_text(prose(one.hints[place], width, ascii_only=plain)).append("\n")
        if self.workbench.checking.exercise:
            text.append("\nchecking on real ranks ...", palette.WARN)
        elif self.verdict is not None:
            colour = palette.GOOD if self.verdict.passed else palette.BAD
            hints = "h shows a hint" if self.hints < len(one.hints) else "all hints stand above"
            text.append("\n" + watch.render(one, self.path, self.verdict, width=width, hints=hints), colour)
        if self.said:
            text.append(f"\n{self.said}", palette.WARN)
        if self.watching:
            text.append("\n\nwatching: it is checked at every save", palette.MUTED)
        self.query_one("#exercise", Static).update(text)

    def action_stub(self) -> None:
        """Copy the stub; a file that is there stays as it is."""
        there = self.path.exists()
        try:
            exercises.copy_stub(self.chosen.name, self.folder)
        except ParameterError as error:
            self.said = str(error)
        else:
            self.said = "it was yours already and stays as it is" if there else "yours: write your code there"
            self.workbench.course.begun(self.chosen.name)
            self._list()
        self._answer()

    def action_check(self) -> None:
        """Have the file checked by the app's agent."""
        self.said = self.workbench.check_exercise(self.chosen.name, self.folder)
        self._seen = self._saved()
        self._answer()

    def checked(self, verdict: Verdict | None, trouble: str = "") -> None:
        """The check is over."""
        self.said = trouble
        if verdict is not None and verdict.exercise == self.chosen.name:
            self.verdict = verdict
        self._list()
        self._answer()

    def action_hint(self) -> None:
        """Show one hint more."""
        self.hints = min(self.hints + 1, len(self.chosen.hints))
        self._answer()

    def _answer(self) -> None:
        """Draw what a key led to: it stands below the task, and comes into view."""
        self.redraw()
        self.call_after_refresh(self.query_one("#exercise-box").scroll_end, animate=False)

    def action_watch(self) -> None:
        """Check at every save from now on, or no more."""
        self.watching = not self.watching
        self._seen = self._saved()
        self._answer()

    def _saved(self) -> int:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return 0

    def _look(self) -> None:
        saved = self._saved()
        if self.watching and saved and saved != self._seen and not self.workbench.checking.exercise:
            self.action_check()

    def action_back(self) -> None:
        """To where one came from."""
        self.dismiss()

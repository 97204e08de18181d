"""The guide beside form or panes: a step at a time; prediction, theory and measurement in one row."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Input, Static

from labs.flags import take, to_flags
from labs.params import LabSpec, ParameterError, fields_of
from workbench import palette
from workbench.answers import AnswerError, Row, in_words
from workbench.expressions import ExpressionError
from workbench.guides import LETTERS, Setup, Step, filled
from workbench.panes.prose import prose
from workbench.panes.registry import PANES
from workbench.screens.typed import TypedInput
from workbench.study import Study
from workbench.usage import run_fields

MARGIN = 1
BEGINS_A_NUMBER = tuple("0123456789+-.")


class Answer(TypedInput):
    """The field for a number; while it is empty only what begins one is typed, and letters are keys."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Leave the keys of panel and screen alone while nothing is typed."""
        if not self.value and character not in BEGINS_A_NUMBER:
            return False
        return super().check_consume_key(key, character)

    async def _on_key(self, event: events.Key) -> None:
        """Keep `Input` from typing what is a key here: it asks nobody."""
        if event.is_printable and not self.check_consume_key(event.key, event.character):
            event.prevent_default()


class GuidePanel(VerticalScroll, can_focus=True):
    """One lab's guide. It tells its screen what is wanted by messages, and keeps its place by itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "turn(1)", "next step", tooltip="the guide's next step"),
        Binding("p", "turn(-1)", "previous step", show=False, tooltip="the guide's previous step"),
        Binding("enter", "act", "do it", key_display="enter", tooltip="do what the guide's step is about"),
        *(
            Binding(
                letter, f"choose('{letter}')", "choose", show=False, tooltip=f"the guide's choice {letter}"
            )
            for letter in LETTERS
        ),
    ]

    class RunWanted(Message):
        """Run the lab like this: ranks, seed, and parameters as text by name."""

        def __init__(self, nproc: int, seed: int, given: dict[str, str | bool]) -> None:
            super().__init__()
            self.nproc = nproc
            self.seed = seed
            self.given = given

    class PaneWanted(Message):
        """The step in view speaks of this pane; `asked` where the person wants to see it now."""

        def __init__(self, pane: str, *, asked: bool) -> None:
            super().__init__()
            self.pane = pane
            self.asked = asked

    def __init__(self, spec: LabSpec, study: Study | None, trouble: str, glyphs: palette.Glyphs) -> None:
        super().__init__(id="guide-box")
        self.spec = spec
        self.study = study
        self._trouble = trouble
        self._glyphs = glyphs
        self._said = ""
        self._width = 0

    def compose(self) -> ComposeResult:
        """Text, the answer where a number is asked, and what came of it."""
        yield Static(id="guide-text", markup=False)
        yield Answer(id="guide-answer", compact=True, placeholder="your answer")
        yield Static(id="guide-below", markup=False)

    def on_mount(self) -> None:
        """Show the step where one left."""
        self.redraw()

    def on_resize(self) -> None:
        """Wrap the text anew where the width is another one."""
        if self.content_size.width != self._width:
            self.redraw()

    @property
    def step(self) -> Step | None:
        """The step in view."""
        return self.study.step if self.study is not None else None

    def focus_best(self) -> None:
        """Focus the field of the answer where one is asked, else the panel."""
        if self.has_class("-asks") and not self._answered():
            self.screen.set_focus(self.query_one("#guide-answer"))
        else:
            self.screen.set_focus(self)

    def redraw(self) -> None:
        """Draw the step in view, after anything has changed."""
        if not self.is_mounted:
            return
        self._width = self.content_size.width
        if self._width:  # without one yet, or hidden: drawn once it has a width
            text, below = self._drawn(max(20, self._width - MARGIN))
            self.query_one("#guide-text", Static).update(text)
            self.query_one("#guide-below", Static).update(below)
        step = self.step
        asks = step is not None and step.question is not None and not step.question.choices
        waits = self._waiting_for() is not None
        self.set_class(asks and not waits, "-asks")
        self.border_title = "guide"
        self.border_subtitle = self._where()

    def _where(self) -> str:
        if self.study is None:
            return ""
        steps = self.study.guide.steps
        return f"{min(self.study.place + 1, len(steps))} of {len(steps)}" if self.step else "the end"

    def _drawn(self, width: int) -> tuple[Text, Text]:
        """The text of the step, and what stands below the field of the answer."""
        step = self.step
        if self.study is None:
            return Text(self._trouble, palette.WARN), Text()
        if step is None:
            return self._summary(width), Text(self._said, palette.MUTED)
        head = Text.assemble(self._progress(), "\n", (f"{step.kind}: {step.title}", "bold"), "\n\n")
        text = filled(step.text, self._setup(step)) if self._speaks_of_a_run(step) else step.text
        return head.append_text(prose(text, width, ascii_only=self._plain)), self._below(step, width)

    @property
    def _plain(self) -> bool:
        return self._glyphs is palette.ASCII

    def _progress(self) -> Text:
        assert self.study is not None
        text = Text()
        for place, step in enumerate(self.study.guide.steps):
            here = place == self.study.place
            glyph = self._glyphs.passed if self.study.is_done(step) else self._glyphs.phases["starting"]
            colour = palette.GOOD if self.study.is_done(step) else palette.MUTED
            text.append(glyph, f"reverse {palette.ACCENT}" if here else colour).append(" ")
        return text

    def _speaks_of_a_run(self, step: Step) -> bool:
        return step.question is not None or step.setup is not None

    def _setup(self, step: Step) -> Setup:
        assert self.study is not None
        if step.setup is not None:
            return step.setup
        assert step.question is not None
        return self.study.guide.setup_of(step.question)

    def _below(self, step: Step, width: int) -> Text:
        if step.question is not None:
            parts = self._question(step, width)
        elif step.setup is not None:
            parts = self._run(step.setup)
        elif step.pane:
            parts = [Text(f"enter shows the pane {PANES[step.pane].TITLE}; n goes on", palette.MUTED)]
        elif step.commands or step.refused:
            parts = self._tries(step)
        else:
            parts = [Text("n goes on", palette.MUTED)]
        if self._said:
            parts.append(Text(self._said, palette.WARN))
        return Text("\n").join(parts)

    def _run(self, setup: Setup) -> list[Text]:
        assert self.study is not None
        flags = " ".join([f"--nproc {setup.nproc}", *to_flags(self.spec, setup.params)])
        parts = [Text(flags, palette.ACCENT)]
        done = self.study.progress.runs.get(setup.name)
        if done is not None:
            parts.append(Text(f"{self._glyphs.passed} run {done.run_id}: {done.status}", palette.GOOD))
        again = "enter runs it again, n goes on" if done is not None else "enter sets this and runs it"
        return [*parts, Text(again, palette.MUTED)]

    def _tries(self, step: Step) -> list[Text]:
        lines = [*step.commands, *step.refused]
        parts = [
            Text.assemble((f"{letter}  ", f"bold {palette.ACCENT}"), line)
            for letter, line in zip(LETTERS, lines, strict=False)
        ]
        return [*parts, Text("its letter runs it; n goes on", palette.MUTED)]

    def _question(self, step: Step, width: int) -> list[Text]:
        question = step.question
        assert question is not None
        assert self.study is not None
        setup = self._waiting_for()
        if setup is not None:
            return [Text(f"this asks about the run '{setup.name}': enter runs it first", palette.MUTED)]
        parts = [
            Text.assemble((f"{letter}  ", f"bold {palette.ACCENT}"), choice)
            for letter, choice in zip(LETTERS, question.choices, strict=False)
        ]
        try:
            row = self.study.row(step)
        except ExpressionError as error:
            return [*parts, Text(str(error), palette.BAD)]
        if row.predicted is None:
            unit = f" in {question.unit}" if question.unit else ""
            how = "its letter chooses" if question.choices else f"a number{unit}, then enter"
            return [*parts, Text(f"{how}; n leaves it open", palette.MUTED)]
        return [*parts, row_text(row, self._glyphs), *self._reasons(row, step, width)]

    def _reasons(self, row: Row, step: Step, width: int) -> list[Text]:
        question = step.question
        assert question is not None
        because = prose(question.because, width, ascii_only=self._plain)
        parts = [Text(), because]
        if row.agrees is False:
            why = f"Theory and your run differ. {question.why}"
            parts += [Text(), prose(why, width, ascii_only=self._plain)]
        elif row.missing:
            parts += [Text(), Text(f"Your run did not tell it: {row.missing}", palette.WARN)]
        elif question.measured and row.measured is None:
            parts += [Text(), Text("Your run will add what it measured.", palette.MUTED)]
        return [*parts, Text(), Text("n goes on", palette.MUTED)]

    def _summary(self, width: int) -> Text:
        """What was learnt, with the person's own numbers, and what is still open."""
        assert self.study is not None
        text = Text.assemble(self._progress(), "\n", ("what you found out", "bold"), "\n")
        for step, row in self.study.found_out():
            text.append(f"\n{step.title}\n").append_text(row_text(row, self._glyphs)).append("\n")
        left = self.study.open_steps
        if left:
            text.append("\nstill open\n", "bold")
            for step in left:
                text.append(f"{self._glyphs.bullet} {step.kind}: {step.title}\n", palette.MUTED)
            return text.append("\nenter goes to the first of them", palette.MUTED)
        text.append(f"\n{self._glyphs.passed} {self.study.guide.title} is done.", palette.GOOD)
        return text

    def _answered(self) -> bool:
        step = self.step
        return step is not None and self.study is not None and step.id in self.study.progress.answers

    def _waiting_for(self) -> Setup | None:
        step = self.step
        if step is None or step.question is None or self.study is None:
            return None
        return self.study.setup_before(step)

    def changed(self, said: str = "") -> None:
        """Something happened to the study: draw it, with a word where one is due."""
        self._said = said
        self.redraw()
        if self.study is not None and self.study.course.problem:
            self.app.notify(self.study.course.problem, severity="warning", timeout=10)
            self.study.course.problem = ""

    def action_turn(self, by: int) -> None:
        """Turn to the next or the previous step."""
        if self.study is None:
            return
        self.study.go(by)
        self.query_one("#guide-answer", Input).value = ""
        self.changed()
        self.scroll_home(animate=False)
        self.focus_best()
        if self.step is not None and self.step.pane:
            self.post_message(self.PaneWanted(self.step.pane, asked=False))

    def action_act(self) -> None:
        """Do what the step is about: run, show the pane, answer, or go on."""
        step = self.step
        if self.study is None:
            return
        setup = step.setup if step is not None and step.setup is not None else self._waiting_for()
        if step is None:
            if self.study.open_steps:
                self.study.show(self.study.open_steps[0])
                self.changed()
        elif setup is not None:
            self.post_message(self.RunWanted(setup.nproc, setup.seed, setup.given))
        elif step.pane:
            self.post_message(self.PaneWanted(step.pane, asked=True))
        elif step.question is not None and not step.question.choices:
            self.screen.set_focus(self.query_one("#guide-answer"))
        elif step.question is None and not (step.commands or step.refused):
            self.action_turn(1)

    def action_choose(self, letter: str) -> None:
        """Choose an answer, or run one of the commands, by its letter."""
        step = self.step
        if step is None:
            return
        if step.question is not None and step.question.choices and self._waiting_for() is None:
            self._answer(letter)
            return
        lines: Sequence[str] = [*step.commands, *step.refused]
        if LETTERS.index(letter) < len(lines):
            self._try(lines[LETTERS.index(letter)])

    def _try(self, line: str) -> None:
        common = run_fields()
        try:
            given, _ = take([*common, *fields_of(self.spec.params)], shlex.split(line))
            nproc = int(str(given.pop("nproc", self.spec.default_ranks)))
            self.post_message(self.RunWanted(nproc, int(str(given.pop("seed", 0))), given))
        except ParameterError as error:
            self.changed(str(error))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take a number."""
        event.stop()
        self._answer(event.value)

    def _answer(self, text: str) -> None:
        assert self.study is not None
        try:
            self.study.answer(text)
        except (AnswerError, ExpressionError) as error:
            self.changed(str(error))
            return
        self.changed()
        self.screen.set_focus(self)
        self.scroll_end(animate=False)


def row_text(row: Row, glyphs: palette.Glyphs) -> Text:
    """Return prediction, theory and measurement in one row, each judged by a glyph."""
    text = Text()
    cells = (
        ("you", row.predicted, row.right),
        ("theory", row.theory, None),
        ("measured", row.measured, row.agrees),
    )
    for name, value, good in cells:
        if value is None:
            continue
        text.append(f"{name} ", palette.MUTED).append(in_words(value, row.unit), "bold")
        if good is not None:
            mark, colour = (glyphs.passed, palette.GOOD) if good else (glyphs.differs, palette.WARN)
            text.append(f" {mark}", colour)
        text.append("   ")
    text.rstrip()
    return text

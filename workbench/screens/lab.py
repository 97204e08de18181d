"""The lab screen: summary, guide, parameters as a form, the equivalent commands, and Run."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Static

from labs.catalog import package_of
from labs.exercises import exercises
from labs.params import LabSpec, ParameterError, parse
from workbench import palette
from workbench.messages import RunWanted
from workbench.panes.keys_footer import KeysFooter
from workbench.screens.base import WorkbenchScreen
from workbench.screens.exercise import ExerciseScreen
from workbench.screens.facts import agent_text, machine_text
from workbench.screens.form import ParameterForm, meaning
from workbench.screens.guide import GuidePanel
from workbench.screens.source import SourceScreen
from workbench.session import RunOptions, check, torchrun_command, workbench_command

Device = Literal["auto", "cpu", "cuda"]


RUN = "run the lab with these parameters"


class RunButton(Button, inherit_bindings=False):
    """Enter presses it; help and palette call that by what it does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "press", "run", show=False, tooltip=RUN)]


class LabScreen(WorkbenchScreen):
    """One lab, ready to be run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("ctrl+r", "run", "run", tooltip=RUN),
        Binding("tab", "app.focus_next", "next field", show=True),
        Binding("g", "guide", "guide", tooltip="the guide, or the form again"),
        Binding("o", "source", "source", tooltip="the lab's source"),
        Binding("x", "exercises", "exercise", tooltip="the lab's exercises"),
    ]

    def __init__(self, spec: LabSpec) -> None:
        super().__init__()
        self.spec = spec
        self._wanted: tuple[msgspec.Struct, RunOptions] | None = None

    def compose(self) -> ComposeResult:
        """Form and guide side by side, or in turns; the commands and Run below."""
        yield Static(id="title", markup=False)
        yield Static(id="machine", markup=False)
        with Horizontal(id="lab-body"):
            with Vertical(id="form-box"):
                yield ParameterForm(self.spec, self.workbench.options)
                yield Static("tab or enter a field to change it", id="meaning", markup=False)
            yield self.guide
        yield Static(id="commands", markup=False)
        with Horizontal(id="run-line"):
            yield RunButton("Run", id="run", compact=True, variant="primary")
            yield Static(id="message", markup=False)
        yield KeysFooter()

    @cached_property
    def guide(self) -> GuidePanel:
        """The lab's guide, at the step where one left it."""
        app = self.workbench
        return GuidePanel(self.spec, app.study(self.spec), app.guide_trouble(self.spec), app.glyphs)

    def on_mount(self) -> None:
        """Validate the defaults and show their commands."""
        self.query_one("#form-box").border_title = "parameters"
        self.query_one("#commands").border_title = "the same without the app"
        self.query_one("#title", Static).update(
            Text.assemble(
                (self.spec.id, f"bold {palette.ACCENT}"),
                (f"  {self.spec.title}  ", "bold"),
                (self.spec.summary, palette.MUTED),
            )
        )
        self.query_one("#run").focus()
        self.rearrange()
        self.facts_changed()

    def on_screen_resume(self) -> None:
        """Back from a run: the guide may have gone on."""
        self.guide.redraw()

    def on_guide_panel_run_wanted(self, event: GuidePanel.RunWanted) -> None:
        """Set the form as the guide's step wants it, and run."""
        form = self.query_one(ParameterForm)
        form.fill({**event.given, "nproc": str(event.nproc), "seed": str(event.seed)})
        self.validate()
        if self._wanted is None:
            self.guide.changed(str(self.query_one("#message", Static).render()))
        else:
            self._ask(guided=True)

    def on_resize(self) -> None:
        """Side by side where there is room."""
        self.rearrange()

    def rearrange(self) -> None:
        """Hide the guide or the form where there is room for one only."""
        self.set_class(self.narrow, "-narrow")

    def facts_changed(self) -> None:
        """The machine is known, or the agent's state has changed."""
        self.validate()

    def on_parameter_form_focused(self, event: ParameterForm.Focused) -> None:
        """Say in full what the field is."""
        self.query_one("#meaning", Static).update(meaning(event.field))

    def on_parameter_form_changed(self) -> None:
        """Validate after each edit."""
        self.validate()

    def validate(self) -> None:
        """Read the form; show the commands, or what is wrong with which flag."""
        app = self.workbench
        form = self.query_one(ParameterForm)
        message = self.query_one("#message", Static)
        self._wanted = None
        try:
            params, options = self._read(form)
            self._show_commands(params, options)
            ranks = options.world_size(self.spec)
            self.query_one("#machine", Static).update(machine_text(app.machine, ranks, app.glyphs))
            if app.machine is not None:
                check(self.spec, params, options, app.machine)
                self._wanted = (params, options)
        except ParameterError as error:
            form.mark(error.flag)
            message.update(Text(f"{app.glyphs.failed} {error}", palette.BAD))
        else:
            form.mark("")
            message.update(agent_text(app.agent_state, app.agent_trouble, app.glyphs))

    def _read(self, form: ParameterForm) -> tuple[msgspec.Struct, RunOptions]:
        common = form.values(form.common)
        nproc = _whole("--nproc", str(common["nproc"]))
        seed = _whole("--seed", str(common["seed"]))
        params = parse(self.spec, form.values(form.own), nproc)
        device = msgspec.convert(common["device"], Device)
        chosen = self.workbench.options
        return params, RunOptions(
            nproc=nproc,
            device=device,
            seed=seed,
            timeout_s=chosen.timeout_s,
            runs_dir=str(chosen.runs_dir) if chosen.runs_dir is not None else "",
            launcher=chosen.launcher,
        )

    def _show_commands(self, params: msgspec.Struct, options: RunOptions) -> None:
        text = Text.assemble(
            ("$ ", palette.MUTED),
            workbench_command(self.spec, params, options),
            "\n",
            ("$ ", palette.MUTED),
            (torchrun_command(self.spec, params, options), palette.MUTED),
        )
        self.query_one("#commands", Static).update(text)

    def on_input_submitted(self) -> None:
        """Enter in a field runs."""
        self.action_run()

    def on_button_pressed(self) -> None:
        """Run."""
        self.action_run()

    def action_run(self) -> None:
        """Ask the app for the run, if the form is right."""
        if self._wanted is None:
            self.app.bell()
        else:
            self._ask(guided=False)

    def _ask(self, *, guided: bool) -> None:
        assert self._wanted is not None
        params, options = self._wanted
        self.post_message(RunWanted(self.spec, params, options, guided=guided))

    def action_guide(self) -> None:
        """Look at the guide, or at the form again."""
        self.toggle_class("-guide")
        if self.has_class("-guide"):
            self.guide.focus_best()
        else:
            self.set_focus(self.query_one("#run"))

    def action_exercises(self) -> None:
        """Open the lab's exercises, if it has some."""
        folder = package_of(self.spec.id).partition(".")[2]
        found = tuple(one for one in exercises() if one.lab == folder)
        if found:
            self.app.push_screen(ExerciseScreen(found))
        else:
            self.notify(f"{self.spec.title} has no exercises", timeout=3)

    def action_source(self) -> None:
        """Show the lab's source."""
        self.app.push_screen(SourceScreen(self.spec))

    def action_back(self) -> None:
        """Out of a field first, then to the list of labs."""
        if self.focused is not None and self.focused.id == "guide-answer":
            self.set_focus(self.guide)
        elif isinstance(self.focused, Input):
            self.set_focus(self.query_one("#run"))
        elif self.has_class("-guide"):
            self.action_guide()
        else:
            self.dismiss()


def _whole(flag: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ParameterError(flag, f"{text!r} is not a whole number; allowed: a whole number >= 0") from None
    if value < 0:
        raise ParameterError(flag, f"{value} is out of bounds; allowed: a whole number >= 0")
    return value

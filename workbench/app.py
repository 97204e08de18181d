"""The app: owns the agent, starts and stops runs, and moves between the screens."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, ClassVar

import msgspec
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.filter import LineFilter, Monochrome, NoColor

from labs.exercises import Verdict
from labs.params import LabSpec, ParameterError, nearest
from launcher.client import Lost
from launcher.control import Ending
from launcher.protocol import Finished, Refused, Reply, Warm
from launcher.rundir import Manifest, read_manifest, read_result
from workbench import palette
from workbench.checking import Checking
from workbench.console import say
from workbench.feed import Feed
from workbench.guides import GuideError, parse_guide
from workbench.machine import Machine
from workbench.messages import AgentSaid, ReplayWanted, RunWanted, StopWanted
from workbench.options import AppOptions
from workbench.screens.commands import Actions
from workbench.screens.exercise import ExerciseScreen
from workbench.screens.facts import AgentState
from workbench.screens.guide import GuidePanel
from workbench.screens.help import HelpScreen
from workbench.screens.history import HistoryScreen
from workbench.screens.home import HomeScreen
from workbench.screens.lab import LabScreen
from workbench.screens.run import RunScreen, panes_of
from workbench.screens.shades import LIGHT, SIXTEEN, THEME, filters_of, heed_no_color
from workbench.screens.terminal import Terminal
from workbench.services import Agent, Services, conclude
from workbench.session import RunOptions, prepare, runs_dir_of
from workbench.study import Study

CLOSE_S = ASKED_S = 5.0
COLLECTOR_S, LEFT_S = 5.0, 1.0
"""How long a collector may take to write the result after its agent is gone, and after the agent was closed
in order: it has written the result then, or never began the run."""
KEYS_IN_WORDS = {key: key for key in ("up", "down", "left", "right", "enter")}
REFUSED, LOST, INTERRUPTED = 2, 3, 130


class WorkbenchApp(App[int], inherit_bindings=False):
    """Worldsize on a terminal."""

    TITLE = "Worldsize"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["app.tcss", "guide.tcss"]
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[Any]] = {Actions}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("colon", "command_palette", "all commands", key_display=":", show=False),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "leave", "quit at once", show=False, priority=True),
    ]

    def __init__(
        self, options: AppOptions, replay: Path | None = None, services: Services | None = None
    ) -> None:
        super().__init__(driver_class=Terminal)
        if self.no_color:  # Textual would write greys; NO_COLOR asks for none
            self._filters = [f for f in self._filters if not isinstance(f, Monochrome)] + [NoColor()]
        for theme in (THEME, LIGHT, SIXTEEN):
            self.register_theme(theme)
        self.options = options
        self.services = services or Services()
        self.labs = self.services.labs()
        self.glyphs = palette.glyphs(options.ascii)
        self.runs_dir = runs_dir_of(str(options.runs_dir) if options.runs_dir is not None else "")
        self.machine: Machine | None = None
        self.agent: Agent | None = None
        self.agent_state: AgentState = "warming"
        self.agent_trouble = ""
        self.current_run = ""
        self._current: tuple[Path, int] | None = None
        """Folder of the run in progress, and when it was asked for (ns, monotonic)."""
        self._replay = replay
        self._asked: dict[str, tuple[msgspec.Struct, RunOptions]] = {}
        self._leaving = False
        self._asked_until = 0.0
        """Until when (s, monotonic) another `q` means that the run may end."""
        self.stopped_run = ""
        self.left_with = 0
        """What `leave` was told: a terminal that goes may end the app before it says so itself."""
        self.course = self.services.course()
        self.checking = Checking(self.course)
        self._studies: dict[str, Study | str] = {}
        """By lab; where a guide cannot be read, why."""

    def on_mount(self) -> None:
        """Open home, warm the agent, look at the machine."""
        self.theme = self.options.theme
        self.set_class(self.options.ascii, "-ascii")
        self.push_screen(HomeScreen())
        if self._replay is not None:
            self.open_run(self._replay, owned=False)
        self._watch_signals()
        self.run_worker(self._probe, thread=True)
        if self._replay is None:
            self.warm_up()

    def _watch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.leave, 128 + number)

    def _probe(self) -> None:
        machine = self.services.probe()
        self.call_from_thread(self._machine_known, machine)

    def _machine_known(self, machine: Machine) -> None:
        self.machine = machine
        self._tell()

    def warm_up(self) -> None:
        """Start the agent, if there never was one; opened on a run, the app waits until home is seen."""
        if self.agent is None:
            self._warm()

    def _warm(self) -> None:
        """Start an agent in a thread, so that torch loads while the person reads."""
        self.agent_state, self.agent_trouble = "warming", ""
        self.agent = agent = self.services.agent(self._hear)
        self.run_worker(lambda: self._start(agent), thread=True)
        self._tell()

    def _start(self, agent: Agent) -> None:
        try:
            agent.start()
        except OSError as error:
            self._hear(Lost(message=f"the launcher agent cannot be started: {error.strerror or error}"))

    def _hear(self, reply: Reply | Lost) -> None:
        """Called from the agent's reader thread."""
        self.post_message(AgentSaid(reply))

    def _tell(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, HomeScreen | LabScreen) and screen.is_mounted:
                screen.facts_changed()

    def on_agent_said(self, message: AgentSaid) -> None:
        """Keep the agent's state, and pass trouble to the run screen."""
        match message.reply:
            case Warm():
                self.agent_state = "warm"
            case Finished(run_id=run_id) if self.checking.exercise:
                self._checked(self.checking.finished(run_id))
            case Finished():
                if self._current is not None:
                    self._learn(self._current[0])
                self._forget_run()
            case Refused(message=text):
                self._give_up(f"refused: {text}", REFUSED)
            case Lost(message=text, unfit=unfit):
                self.agent_state, self.agent_trouble = "lost", text
                self._give_up(text, REFUSED if unfit else LOST)
        self._tell()

    def _forget_run(self) -> None:
        self.current_run, self._current = "", None

    def check_exercise(self, name: str, folder: Path) -> str:
        """Ask the agent to check a learner's file; returns why it does not, or an empty text."""
        if self.current_run or self.checking.exercise:
            return f"{self.current_run or self.checking.exercise} is still running; wait for it, or stop it"
        if self.agent is None or self.agent_state == "lost":
            self._warm()
        if self.agent is None or self.agent_state != "warm":
            return "torch is still being loaded: a moment, then check again"
        try:
            self.checking.begin(self.agent, name, folder)
        except ParameterError as error:
            return str(error)
        return ""

    def _checked(self, verdict: Verdict | None, trouble: str = "") -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ExerciseScreen):
                screen.checked(verdict, trouble)

    def _give_up(self, reason: str, exit_code: int) -> None:
        """The run in progress will not end by itself: say so, and see that it gets its result."""
        if self.checking.failed():
            self._checked(None, reason)
        current = self._current
        self._forget_run()
        self._trouble(reason)
        if current is not None:
            ending = Ending("error", exit_code, reason, agent_lost=exit_code == LOST)
            self.run_worker(lambda: conclude(*current, ending, COLLECTOR_S), thread=True)

    def _trouble(self, text: str) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, RunScreen) and screen.owned:
                screen.trouble(text)

    def on_run_wanted(self, message: RunWanted) -> None:
        """Start a run and open its screen."""
        if message.guided and isinstance(self.screen, RunScreen) and not self.current_run:
            self.screen.dismiss()
        self.start_run(message.spec, message.params, message.options, guided=message.guided)

    def start_run(
        self, spec: LabSpec, params: msgspec.Struct, options: RunOptions, *, guided: bool = False
    ) -> None:
        """Make the run's folder, ask the agent, show the run; what a person can mend is shown as a notice."""
        if running := self.current_run or self.checking.exercise:
            self.notify(f"{running} is still running: stop it first", severity="error")
            return
        if self.machine is None:
            self.notify("still looking at this machine, a moment", severity="warning")
            return
        if self.agent is None or self.agent_state == "lost":
            self._warm()
        agent = self.agent
        assert agent is not None
        try:
            prepared = prepare(spec, params, options, self.machine, agent.identity)
        except ParameterError as error:
            self.notify(str(error), severity="error", timeout=10)
            return
        self.current_run = prepared.manifest.run_id
        self._asked[self.current_run] = (params, options)
        self._current = prepared.folder, time.monotonic_ns()
        agent.request(prepared.request)
        self.open_run(prepared.folder, owned=True, guided=guided)

    def run_again(self, screen: RunScreen) -> None:
        """Start the same run once more; its screen replaces `screen`."""
        manifest = screen.feed.manifest
        assert screen.spec is not None
        params, options = self._asked.get(manifest.run_id) or self._from_manifest(screen.spec, manifest)
        if not self.current_run:
            screen.dismiss()
        self.start_run(screen.spec, params, options)

    def _from_manifest(self, spec: LabSpec, manifest: Manifest) -> tuple[msgspec.Struct, RunOptions]:
        params = msgspec.convert(manifest.params, spec.params)
        runs_dir = str(self.options.runs_dir) if self.options.runs_dir is not None else ""
        return params, RunOptions(nproc=manifest.world_size, seed=manifest.seed, runs_dir=runs_dir)

    def on_replay_wanted(self, message: ReplayWanted) -> None:
        """Open a run from its record."""
        self.open_run(message.folder, owned=message.folder.name == self.current_run)

    def on_history_wanted(self) -> None:
        """Open the list of all runs."""
        self.push_screen(HistoryScreen())

    def open_run(self, folder: Path, *, owned: bool, guided: bool = False) -> None:
        """Show the run in `folder`; a folder that is no run is a notice."""
        try:
            manifest_lab = Feed(folder, ()).manifest.lab
        except (OSError, msgspec.MsgspecError) as error:
            self.notify(f"{folder} is no run: {error}", severity="error", timeout=10)
            return
        spec = self.labs.get(manifest_lab)
        feed = Feed(folder, panes_of(spec))
        self.push_screen(RunScreen(feed, spec, owned=owned, ascii_only=self.options.ascii, guided=guided))

    def study(self, spec: LabSpec) -> Study | None:
        """Return the person's way through a lab's guide; None where it has none that can be read."""
        if spec.id not in self._studies:
            try:
                guide = parse_guide(self.services.guide(spec.id), spec)
                self._studies[spec.id] = Study(guide, self.course)
            except GuideError as error:
                self._studies[spec.id] = str(error)
        found = self._studies[spec.id]
        return found if isinstance(found, Study) else None

    def guide_trouble(self, spec: LabSpec) -> str:
        """Return why a lab's guide cannot be shown; empty where it can."""
        found = self._studies.get(spec.id, "")
        return found if isinstance(found, str) else ""

    def _learn(self, folder: Path) -> None:
        """A run of ours is over: what it measured goes to the guide that asked for it."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            manifest, result = read_manifest(folder), read_result(folder)
            spec = self.labs.get(manifest.lab)
            study = self.study(spec) if spec is not None else None
            if study is None or result is None or not study.finished(result, manifest.seed):
                return
            for panel in (panel for screen in self.screen_stack for panel in screen.query(GuidePanel)):
                panel.changed()
            if isinstance(self.screen, RunScreen) and not self.screen.guided:
                self.notify("The guide goes on: press t", timeout=4)

    def on_stop_wanted(self, message: StopWanted) -> None:
        """End the run in progress; asked a second time, at once."""
        if self.agent is not None:
            self.agent.stop(message.run_id, "stopped by the person", INTERRUPTED)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return what changes colours on the way to the terminal: Textual's filters, then the theme's own."""
        own = () if self.no_color else filters_of(self.current_theme)
        return (*super().get_line_filters(), *own)

    @property
    def crash(self) -> Exception | None:
        """What ended the app, where it was a defect of ours."""
        return self._exception

    def _fatal_error(self) -> None:
        """End without a traceback on the terminal: `run_app` raises what happened, once all is restored."""
        self._close_messages_no_wait()

    def action_command_palette(self) -> None:
        """Find an action of this screen, a lab or a theme by its name."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette(placeholder="an action, a lab, a theme"))

    def get_key_display(self, binding: Binding) -> str:
        """Name a key as the footer does: a word, which any terminal can draw, not an arrow."""
        return binding.key_display or KEYS_IN_WORDS.get(binding.key) or super().get_key_display(binding)

    def action_help(self) -> None:
        """Show the keys of this screen."""
        self.push_screen(HelpScreen(dict(self.screen.active_bindings), self.glyphs))

    async def action_quit(self) -> None:
        """Leave, from anywhere; a run in progress would end with the app, so that is asked for twice."""
        now = time.monotonic()
        if not self.current_run or self._leaving or now < self._asked_until:
            self.leave(0)
            return
        self._asked_until = now + ASKED_S
        self.notify("q again stops the run and quits", severity="warning", timeout=ASKED_S)

    def action_leave(self) -> None:
        """Leave at once, as ctrl-C does everywhere."""
        self.leave(0)

    def leave(self, code: int) -> None:
        """Stop what runs, wait for it a bounded time, and end; asked a second time, kill it."""
        if self._leaving:
            if self.agent is not None:
                self.run_worker(self.agent.kill, thread=True)
            return
        self._leaving = True
        self.left_with = code
        if self.current_run:
            self.stopped_run = self.current_run
            self.notify("stopping the run; q again kills it", timeout=CLOSE_S)
        self.run_worker(self._leave(code))

    async def _leave(self, code: int) -> None:
        await asyncio.to_thread(self.close_agent)
        self.exit(code, return_code=code)

    def close_agent(self) -> None:
        """Leave the agent, waiting at most `CLOSE_S`; does nothing the second time."""
        if self.agent is not None:
            self.agent.close(CLOSE_S)
        self.checking.failed()
        current = self._current
        if current is not None:
            self._current = None
            ending = Ending(status="interrupted", exit_code=INTERRUPTED, reason="the app was left")
            conclude(*current, ending, LEFT_S)


def run_app(options: AppOptions, replay: Path | None = None) -> int:
    """Open the app and return its exit code: 0, or what a signal means.

    Raises:
        ParameterError: there is no such theme.
    """
    heed_no_color()
    app = WorkbenchApp(options, replay)
    if options.theme == THEME.name and app.console.color_system == "standard":
        app.options = msgspec.structs.replace(options, theme=SIXTEEN.name)
    if options.theme not in app.available_themes:
        known = sorted(app.available_themes)
        hint = nearest(options.theme, known)
        raise ParameterError("--theme", f"no theme {options.theme!r}; {hint}allowed: {', '.join(known)}")
    try:
        app.run(mouse=options.mouse)
    finally:
        app.close_agent()
    if app.crash is not None:
        raise app.crash
    if app.stopped_run and not app.left_with:
        say(f"stopped, and kept: workbench --replay {app.stopped_run}")
    return app.left_with or app.return_code or 0

"""The head of the run screen: what runs, on what, how far it is, and the verdict."""

from __future__ import annotations

from labs.params import LabSpec
from launcher.rundir import Manifest
from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, fit, ink, muted, progress_bar
from workbench.views.run import RunSnapshot
from workbench.views.units import duration

COLOURS = {
    "starting": palette.MUTED,
    "running": palette.GOOD,
    "failing": palette.BAD,
    "passed": palette.GOOD,
    "failed": palette.BAD,
    "error": palette.BAD,
    "interrupted": palette.WARN,
}


class RunHeader(Pane[RunSnapshot], can_focus=False):
    """Two lines: the run, and its progress or verdict."""

    NAME = "header"

    def __init__(self, manifest: Manifest, spec: LabSpec | None, *, ascii_only: bool, owned: bool) -> None:
        super().__init__(ascii_only=ascii_only)
        self._manifest = manifest
        self._title = spec.title if spec is not None else "lab not installed here"
        self._owned = owned
        self.stopping = self.warming = self.lost = self.held = False
        self.trouble = ""
        self.problem = ""
        self.read_share = 1.0

    def show(self, snapshot: RunSnapshot) -> None:
        """Draw always: `stopping` and trouble come from outside of the snapshot."""
        self.shown = snapshot
        self._drawn = None
        self.redraw()

    def lines(self, snapshot: RunSnapshot, width: int, height: int) -> list[Line]:
        """Return the two lines."""
        return [self._what(width), self._state(snapshot, width)]

    def _what(self, width: int) -> Line:
        manifest = self._manifest
        dot = f" {self.glyphs.dot} "
        paced = f"{dot}paced {manifest.paced_ms:g} ms" if manifest.paced_ms else ""
        over = self.shown is not None and self.shown.over
        source = "" if self._owned else f"{dot}record" if over or self.lost else f"{dot}attached, read-only"
        facts = f"{dot}{manifest.world_size} ranks{dot}{manifest.backend} on {manifest.device}{paced}{source}"
        left: Line = [
            ink(manifest.lab, palette.ACCENT, bold=True),
            ink(f"  {self._title}", bold=True),
            muted(facts),
        ]
        room = width - sum(segment.cell_length for segment in left)
        if room > len(manifest.run_id) + 2:
            left += [ink(" " * (room - len(manifest.run_id))), muted(manifest.run_id)]
        return left

    def _state(self, run: RunSnapshot, width: int) -> Line:
        colour = COLOURS[run.state]
        if run.over:
            marks = {"passed": self.glyphs.passed, "interrupted": self.glyphs.unknown}
            glyph = marks.get(run.state, self.glyphs.failed)
            dropped = f" ({run.dropped} events dropped)" if run.dropped else ""
            if self.read_share < 1:
                dropped += f"  reading the record, {self.read_share:.0%}: figures are of parts of it"
            return [
                ink(fit(f"{glyph} {run.verdict}{dropped}", width, self.glyphs.ellipsis), colour, bold=True)
            ]
        if self.held:
            head = ink(f"{self.glyphs.unknown} view held  ", palette.WARN, bold=True)
            return [head, muted("the run goes on; space follows it again")]
        if self.lost:
            text = f"{self.glyphs.unknown} lost: the process that served it is gone, and it has no result"
            return [ink(fit(text, width, self.glyphs.ellipsis), palette.WARN, bold=True)]
        if self.trouble or self.problem:
            text = f"{self.glyphs.failed} {self.trouble or self.problem}"
            return [ink(fit(text, width, self.glyphs.ellipsis), palette.BAD, bold=True)]
        if not run.total_steps:
            ready = f"{run.num_ready} of {self._manifest.world_size} ranks ready"
            ready += ", the agent still loads torch" if self.warming else ""
            word = "stopping" if self.stopping else run.state
            return [ink(f"{self.glyphs.phases['starting']} {word}  ", colour), muted(ready)]
        return self._progress(run, width, colour)

    def _progress(self, run: RunSnapshot, width: int, colour: str) -> Line:
        word = "stopping" if self.stopping else run.state
        head = f"{self.glyphs.phases['running']} {word}  "
        left = f", {duration(run.left_s)} left" if run.left_s is not None else ""
        tail = f"  step {run.step}/{run.total_steps}  {duration(run.elapsed_s)}{left}"
        if run.num_checks:
            tail += f"  {run.num_passed}/{run.num_checks} checks"
        room = max(4, width - len(head) - len(tail))
        done = max(0, run.step - 1) / run.total_steps
        return [
            ink(head, palette.WARN if self.stopping else colour, bold=True),
            *progress_bar(done, room, self.glyphs, colour),
            muted(tail),
        ]

"""The failure: the rank that failed first, why, what to try, and its traceback once."""

from __future__ import annotations

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, ink, muted, wrap
from workbench.views.failure import FailureSnapshot
from workbench.views.units import ranks_text


class FailurePane(Pane[FailureSnapshot]):
    """Which rank failed first, and why."""

    NAME = "failure"
    TITLE = "failure"
    SPAN = 6
    WEIGHT = 12

    def lines(self, snapshot: FailureSnapshot, width: int, height: int) -> list[Line]:
        """Return reason, advice and traceback."""
        failure = snapshot.failure
        if failure is None:
            return self.waiting("nothing has failed")
        self.say("named by the result" if snapshot.final else "so far")
        who = f"rank {failure.rank}" if failure.rank >= 0 else "the launcher"
        head = f"{self.glyphs.failed} {who} failed first: {failure.kind}"
        head += f" in {failure.collective}" if failure.collective else ""
        lines: list[Line] = [[ink(head, palette.BAD, bold=True)]]
        for paragraph in failure.message.strip().splitlines():
            lines += [[ink(f"  {text}")] for text in wrap(paragraph, width - 2)]
        if failure.victims:
            noun = "rank" if len(failure.victims) == 1 else "ranks"
            lines.append([muted(f"  {noun} {ranks_text(failure.victims)} only noticed it")])
        if failure.advice:
            lines += [
                [muted("try: " if place == 0 else "     "), ink(text, palette.WARN)]
                for place, text in enumerate(wrap(failure.advice, width - 5))
            ]
        if failure.traceback:
            lines += [[], *([muted(text)] for text in failure.traceback.rstrip().expandtabs(4).splitlines())]
        return lines

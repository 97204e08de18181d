"""A run's schedule as text, for `--gantt`: the picture of the app's pane, in plain characters."""

from __future__ import annotations

import shutil
from pathlib import Path

from labs.params import LabSpec, ParameterError
from workbench.exports.stream import Source
from workbench.views.gantt import GanttView
from workbench.views.gantt_picture import printed

FLAG = "--gantt"
PANE = "gantt"
NARROWEST, WIDEST = 40, 240
DRAWN = "·─"


def schedule(folder: Path, encoding: str | None) -> str:
    """Return the plan and the newest step of the run in `folder`, as wide as the terminal is.

    ASCII alone where `encoding`, that of the output, lacks the characters.

    Raises:
        ParameterError: the run cannot be read, or told no schedule.
    """
    source = Source(folder, FLAG)
    view = GanttView(source.manifest)
    for event in source.events():
        view.feed(event)
    width = min(WIDEST, max(NARROWEST, shutil.get_terminal_size((100, 40)).columns))
    lines = printed(view.snapshot(), width, ascii_only=not _has(encoding))
    if not lines:
        raise ParameterError(FLAG, f"{folder.name} told no schedule; it needs a run of pp or 3d")
    return "\n".join(lines)


def check_lab(spec: LabSpec) -> None:
    """Refuse a lab that has no schedule to draw, before it runs.

    Raises:
        ParameterError: it has none.
    """
    if PANE not in spec.panes:
        raise ParameterError(FLAG, f"{spec.id} has no schedule to draw; it goes with --run pp and --run 3d")


def _has(encoding: str | None) -> bool:
    try:
        DRAWN.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True

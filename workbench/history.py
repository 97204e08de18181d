"""The runs that are kept, as the history screen needs them: filtered, sorted, with notes; deleting one.

A run's note is `note.txt` in its folder, so that it goes where the run goes. Loads neither torch nor textual.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from labs.catalog import catalog
from labs.params import ParameterError, fields_of
from launcher.rundir import Manifest, Result, run_folders, write_atomically
from workbench import runs
from workbench.views.units import number

NOTE = "note.txt"
MAX_NOTE = 400
KEY_FIGURES = 3
Order = Literal["newest", "lab", "status", "ranks", "longest"]
ORDERS: tuple[Order, ...] = ("newest", "lab", "status", "ranks", "longest")
STATUS_ORDER = ("running", "failed", "error", "interrupted", "lost", "no result", "passed")
"""What wants to be looked at comes first."""
TELLING = ("final_loss", "bubble", "makespan", "busbw_max", "busbw", "peak", "bytes", "loss")
"""Parts of the names of metrics that say most of a run, the most telling first."""


class HistoryRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run in the list."""

    folder: Path
    manifest: Manifest
    result: Result | None
    status: str
    note: str = ""

    @property
    def words(self) -> str:
        """What the filter looks into, in small letters: its own words and `name=value`."""
        manifest = self.manifest
        params = [f"{name}={value}" for name, value in manifest.params.items()]
        facts = [manifest.run_id, self.status, manifest.backend, f"nproc={manifest.world_size}", self.note]
        return " ".join([*facts, *params]).lower()


def load(runs_dir: Path) -> list[HistoryRun]:
    """Return all runs, the newest first; folders whose manifest cannot be read are passed over."""
    found = []
    for folder in run_folders(runs_dir):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            run = runs.load(folder)
            found.append(
                HistoryRun(
                    folder=folder,
                    manifest=run.manifest,
                    result=run.result,
                    status=run.status,
                    note=read_note(folder),
                )
            )
    return found


def chosen(found: Iterable[HistoryRun], query: str, order: Order) -> list[HistoryRun]:
    """Return the runs in which every word of `query` occurs, in the order asked for."""
    words = query.lower().split()
    fitting = [run for run in found if all(word in run.words for word in words)]
    match order:
        case "lab":
            fitting.sort(key=lambda run: run.manifest.lab)
        case "status":
            fitting.sort(key=lambda run: STATUS_ORDER.index(run.status))
        case "ranks":
            fitting.sort(key=lambda run: -run.manifest.world_size)
        case "longest":
            fitting.sort(key=lambda run: -run.result.wall_s if run.result is not None else 0.0)
    return fitting


def changed_params(manifest: Manifest) -> list[str]:
    """Return the parameters that are not at their lab's defaults, `name=value`; all of an unknown lab."""
    spec = catalog().get(manifest.lab)
    defaults = {field.name: field.default for field in fields_of(spec.params)} if spec is not None else {}
    return [
        f"{name}={value}"
        for name, value in manifest.params.items()
        if name not in defaults or defaults[name] != value
    ]


def key_figures(result: Result | None, count: int = KEY_FIGURES) -> list[tuple[str, str]]:
    """Return the metrics that say most of a run, as names and values, in the order of the result."""
    if result is None:
        return []

    def rank(name: str) -> int:
        return next((place for place, part in enumerate(TELLING) if part in name), len(TELLING))

    names = sorted(sorted(result.metrics, key=rank)[:count], key=list(result.metrics).index)
    return [(name, number(result.metrics[name])) for name in names]


def read_note(folder: Path) -> str:
    """Return the run's note; empty where it has none or it cannot be read."""
    try:
        text = (folder / NOTE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return " ".join(text.split())[:MAX_NOTE]


def write_note(folder: Path, text: str) -> None:
    """Keep the note in the run's folder; an empty one is removed.

    Raises:
        OSError: the folder cannot be written.
    """
    note = " ".join(text.split())[:MAX_NOTE]
    if note:
        write_atomically(folder / NOTE, f"{note}\n".encode())
    else:
        (folder / NOTE).unlink(missing_ok=True)


def delete(doomed: Sequence[HistoryRun]) -> None:
    """Remove the folders of these runs.

    Raises:
        ParameterError: one of them still runs; nothing was removed.
        OSError: a folder cannot be removed.
    """
    for run in doomed:
        if runs.load(run.folder).status == "running":
            raise ParameterError(run.manifest.run_id, "still runs: stop it first")
    for run in doomed:
        shutil.rmtree(run.folder)

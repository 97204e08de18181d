"""The formats of an export by name, what their outputs are called, and the one call that writes one.

Stands between `--export` and the key of the run screen on one side, and the writers on the other; loads
neither torch nor textual.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from workbench.exports import chrome, html, svg, tables
from workbench.exports.output import placed, refuse
from workbench.exports.stream import Source

FormatName = Literal["chrome", "csv", "html", "json", "svg"]


class Format(msgspec.Struct, frozen=True):
    """One format: what it is for, the end of its default name, and its writer."""

    says: str
    ending: str
    write: Callable[[Source, Path], None]


FORMATS: dict[FormatName, Format] = {
    "chrome": Format(
        "a trace for Perfetto: ranks, lanes, messages, memory, loss", ".trace.json", chrome.write
    ),
    "csv": Format("tables of spans, scalars and samples in a folder or a .zip", "-csv", tables.write_csv),
    "html": Format("one page for any browser: verdict, schedule, curves, log", ".html", html.write),
    "json": Format("result and all events in one document", ".json", tables.write_json),
    "svg": Format("the pictures: schedule, loss, bandwidth", ".svg", svg.write),
}


def export(folder: Path, name: FormatName, output: Path | None = None) -> Path:
    """Write the run in `folder` in the format `name`; returns where it is.

    Without `output` it lies in the current folder under the run's id. It appears there as a whole or not.

    Raises:
        ParameterError: the run cannot be read or has nothing to draw, or the output exists or cannot be
            written.
    """
    source = Source(folder)
    path = (output or default_output(source.manifest.run_id, name)).absolute()
    refuse(path)
    with placed(path) as temporary:
        if name == "csv" and path.suffix == ".zip":
            tables.write_csv(source, temporary, packed=True)
        else:
            FORMATS[name].write(source, temporary)
    return path


def default_output(run_id: str, name: FormatName) -> Path:
    """Return the name of an export for which none was given, in the current folder."""
    return Path(f"{run_id}{FORMATS[name].ending}")

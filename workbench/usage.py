"""The command line's own flags, declared like a lab's parameters, and the help pages built from them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.catalog import catalog
from labs.params import Field, LabSpec, fields_of
from workbench import exercise_flags
from workbench.options import MAX_REFRESH_HZ, MIN_REFRESH_HZ, AppOptions

MAX_WIDTH = 100
MAX_SEED = 2**32 - 1
MAX_RANKS = 1024


class RunFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What `--run LAB` understands beside the lab's own parameters."""

    run: Annotated[str, Meta(description="the lab", extra={"unit": "LAB"})] = ""
    nproc: Annotated[
        int, Meta(ge=1, le=MAX_RANKS, description="number of ranks; the lab has its own default")
    ] = 0
    device: Annotated[
        Literal["auto", "cpu", "cuda"], Meta(description="auto takes GPUs where there is one a rank")
    ] = "auto"
    seed: Annotated[int, Meta(ge=0, le=MAX_SEED, description="seed of data and parameters")] = 0
    timeout: Annotated[
        float, Meta(ge=0, description="end the run after so long; 0: no limit", extra={"unit": "S"})
    ] = 0.0
    launcher: Annotated[
        Literal["warm", "torchrun"],
        Meta(
            description="warm forks ranks from a process that has torch loaded; torchrun is the plain command"
        ),
    ] = "warm"
    runs_dir: Annotated[str, Meta(description="folder in which runs are kept", extra={"unit": "DIR"})] = ""
    json: Annotated[bool, Meta(description="print the result as one JSON object on stdout, nothing else")] = (
        False
    )
    quiet: Annotated[bool, Meta(description="no progress on stderr")] = False
    gantt: Annotated[bool, Meta(description="print the schedule as text above the verdict (pp, 3d)")] = False
    detach: Annotated[
        bool, Meta(description="leave the run to itself once it has begun; it survives the terminal")
    ] = False
    dry_run: Annotated[bool, Meta(description="print the equivalent torchrun command and start nothing")] = (
        False
    )


class PageFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What the command understands without `--run`: one page, or the app."""

    list: Annotated[bool, Meta(description="the labs")] = False
    runs: Annotated[bool, Meta(description="the runs that are kept, the newest first")] = False
    replay: Annotated[
        str,
        Meta(
            description="open a run's record in the app: its id, a unique prefix, latest, or a folder",
            extra={"unit": "RUN"},
        ),
    ] = ""
    attach: Annotated[
        str,
        Meta(description="watch a run that another process started, live", extra={"unit": "RUN"}),
    ] = ""
    stop: Annotated[
        str, Meta(description="end a run, whoever started it, and say how it ended", extra={"unit": "RUN"})
    ] = ""
    export: Annotated[
        str, Meta(description="write a run in another format, see --format", extra={"unit": "RUN"})
    ] = ""
    format: Annotated[
        Literal["chrome", "csv", "html", "json", "svg"],
        Meta(
            description="chrome: a trace for Perfetto; csv: spans, scalars, samples; html: one page; "
            "json: result and events; svg: the pictures"
        ),
    ] = "html"
    output: Annotated[
        str,
        Meta(
            description="where the export goes: a file, or for csv a folder or a .zip; by default the run's "
            "id in this folder",
            extra={"unit": "F"},
        ),
    ] = ""
    gantt: Annotated[bool, Meta(description="with --replay: print the schedule as text and open nothing")] = (
        False
    )
    progress: Annotated[
        bool, Meta(description="the course: its labs and exercises, and how far you are in them")
    ] = False
    reset: Annotated[
        str, Meta(description="set a lab or an exercise back to open", extra={"unit": "NAME"})
    ] = ""
    doctor: Annotated[bool, Meta(description="what this machine has, and what is wrong with it")] = False
    version: Annotated[bool, Meta(description="the version")] = False
    json: Annotated[bool, Meta(description="the page as JSON (--list, --runs, --progress, --doctor)")] = False
    runs_dir: Annotated[str, Meta(description="folder in which runs are kept", extra={"unit": "DIR"})] = ""
    ascii: Annotated[bool, Meta(description="draw with ASCII characters alone")] = False
    mouse: Annotated[bool, Meta(description="listen to the mouse")] = True
    refresh: Annotated[
        float,
        Meta(
            ge=MIN_REFRESH_HZ,
            le=MAX_REFRESH_HZ,
            description="how often a second the run screen looks for news",
            extra={"unit": "HZ"},
        ),
    ] = AppOptions().refresh_hz
    theme: Annotated[str, Meta(description="colours of the app", extra={"unit": "NAME"})] = AppOptions().theme


APP_ONLY = ("ascii", "mouse", "refresh", "theme")
PAGES = ("list", "runs", "replay", "attach", "stop", "export", "progress", "reset", "doctor", "version")
EXPORT_ONLY = ("format", "output")
OF_A_RUN = ("replay", "attach", "stop", "export")
"""The pages whose value names a run."""


def run_fields() -> tuple[Field, ...]:
    """The common flags of a run; `--run` allows the labs that exist."""
    first, *others = fields_of(RunFlags)
    lab = msgspec.structs.replace(first, kind="choice", choices=tuple(catalog()))
    return (lab, *others)


def overview() -> str:
    """The page of `workbench --help`."""
    lines = [
        "workbench                                open the app",
        "workbench --run LAB [--PARAM VALUE ...]  run a lab headless: progress on stderr, verdict on stdout",
        "workbench --run LAB --help               the lab's own parameters",
        "workbench --list [--json]                the labs",
        *exercise_flags.OVERVIEW,
        "workbench --runs [--json]                the runs that are kept",
        "workbench --replay RUN [--gantt]         open a run's record in the app, or print its schedule",
        "workbench --attach RUN                   watch a run that another process started",
        "workbench --stop RUN                     end a run, whoever started it",
        "workbench --export RUN [--format FORMAT] [--output F]   write a run for other programs",
        "workbench --progress [--json]            the course, and how far you are in it",
        "workbench --reset NAME                   set a lab or an exercise back to open",
        "workbench --doctor [--json]              what this machine has",
        "workbench --version",
        "",
        "RUN is a run's id, a unique prefix of one, latest, or a folder.",
        "",
        "Options of --run:",
        *_rows(field for field in run_fields() if field.name != "run"),
        "",
        "Options of --export:",
        *_rows(field for field in fields_of(PageFlags) if field.name in EXPORT_ONLY),
        "",
        "Options of the app, of --replay and of --attach:",
        *_rows(field for field in fields_of(PageFlags) if field.name in APP_ONLY),
        "",
        "Exit codes: 0 every check passed, 1 a check failed, 2 wrong usage or environment, 3 a worker",
        "failed, hung or ran out of time, 130 interrupted, 143 terminated, 129 the terminal went away.",
    ]
    return "\n".join(lines)


def lab_page(spec: LabSpec) -> str:
    """The page of `workbench --run LAB --help`."""
    ranks = f"{spec.min_ranks} to {spec.max_ranks}, default {spec.default_ranks}"
    lines = [
        f"workbench --run {spec.id} [--PARAM VALUE ...]",
        "",
        f"{spec.title}: {spec.summary}",
        *(f"  - {taught}" for taught in spec.teaches),
        "",
        f"Ranks (--nproc): {ranks}",
        "",
        "Parameters:",
        *(_rows(fields_of(spec.params)) or ["  none"]),
        "",
        "Options of every run:",
        *_rows(field for field in run_fields() if field.name != "run"),
    ]
    return "\n".join(lines)


def labs_page(specs: Sequence[LabSpec]) -> str:
    """The page of `workbench --list`: a line a lab."""
    width = max((len(spec.id) for spec in specs), default=0)
    lines = [f"{spec.id:<{width}}  {spec.title}: {spec.summary}" for spec in specs]
    return "\n".join([*lines, "", "workbench --run LAB --help shows a lab's parameters."])


def labs_json(specs: Sequence[LabSpec]) -> str:
    """The labs with their parameters as one JSON array."""
    listed = [
        {
            "id": spec.id,
            "title": spec.title,
            "summary": spec.summary,
            "group": spec.group,
            "teaches": spec.teaches,
            "panes": spec.panes,
            "min_ranks": spec.min_ranks,
            "max_ranks": spec.max_ranks,
            "default_ranks": spec.default_ranks,
            "params": [
                {
                    "flag": field.flag,
                    "kind": field.kind,
                    "default": field.default,
                    "allowed": field.allowed,
                    "description": field.description,
                }
                for field in fields_of(spec.params)
            ],
        }
        for spec in specs
    ]
    return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode()


def _rows(fields: Iterable[Field]) -> list[str]:
    rows = [(_head(field), _text(field)) for field in fields]
    left = max((len(head) for head, _ in rows), default=0) + 4
    width = max(60, min(MAX_WIDTH, shutil.get_terminal_size().columns))
    lines: list[str] = []
    for head, text in rows:
        first, *others = textwrap.wrap(text, width - left)
        lines.append(f"  {head:<{left - 2}}{first}")
        lines += [" " * left + other for other in others]
    return lines


def _head(field: Field) -> str:
    flags = f"{field.short}, {field.flag}" if field.short else field.flag
    if field.kind == "bool":
        return flags
    noun = {"int": "N", "float": "X", "str": "TEXT", "choice": "CHOICE"}[field.kind]
    return f"{flags} {field.unit or noun}"


def _text(field: Field) -> str:
    notes = []
    if field.kind == "bool":
        notes.append(f"on; --no-{field.flag[2:]} turns it off" if field.default else "off by default")
    else:
        notes.append(f"default {field.default}" if field.default not in ("", 0.0) else "")
        notes.append(field.allowed if field.kind != "str" else "")
    noted = "; ".join(note for note in notes if note)
    return f"{field.description} ({noted})" if noted else field.description

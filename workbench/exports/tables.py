"""A run as tables, `spans.csv`, `scalars.csv` and `samples.csv`, and as one JSON document.

Times are seconds from the first event of the record. The tables go to a folder, or into a zip where the
output's name ends so.
"""

from __future__ import annotations

import csv
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from launcher.events import Sample, Scalar, Span, decode
from launcher.rundir import to_json
from workbench.exports.stream import Source

Row = Sequence[object]
SPANS = (
    "rank",
    "step",
    "lane",
    "name",
    "start_s",
    "end_s",
    "stage",
    "micro_batch",
    "action",
    "bytes",
    "group",
    "seq",
    "peer",
    "source",
)
SCALARS = ("rank", "step", "name", "value", "unit", "time_s")
SAMPLES = (
    "time_s",
    "node",
    "of",
    "index",
    "cpu_percent",
    "memory_bytes",
    "gpu_memory_bytes",
    "gpu_percent",
    "power_w",
    "temperature_c",
)
"""`of` is node, rank or gpu, and `index` which; memory is resident of a rank, used of a node."""
HEADERS = {"spans": SPANS, "scalars": SCALARS, "samples": SAMPLES}


def write_csv(source: Source, path: Path, *, packed: bool = False) -> None:
    """Write the three tables into the new folder `path`, or with `packed` into the new zip file `path`.

    Raises:
        ParameterError: the run cannot be read.
        OSError: the files cannot be written.
    """
    folder = path.with_name(path.name + ".tables") if packed else path
    folder.mkdir()
    try:
        _write_tables(source, folder)
        if packed:
            with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
                for name in HEADERS:
                    archive.write(folder / f"{name}.csv", f"{name}.csv")
    finally:
        if packed:
            shutil.rmtree(folder, ignore_errors=True)


def _write_tables(source: Source, folder: Path) -> None:
    files = {name: (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") for name in HEADERS}
    try:
        writers = {name: csv.writer(file) for name, file in files.items()}
        for name, header in HEADERS.items():
            writers[name].writerow(header)
        origin: int | None = None
        for event in source.events():
            if origin is None:
                origin = event.t
            match event:
                case Span():
                    writers["spans"].writerow(_span(event, origin))
                case Scalar():
                    time_s = _seconds(event.t, origin)
                    row = (event.rank, _known(event.step), event.name, repr(event.value), event.unit, time_s)
                    writers["scalars"].writerow(row)
                case Sample():
                    writers["samples"].writerows(_sample(event, origin))
    finally:
        for file in files.values():
            file.close()


def _span(span: Span, origin: int) -> Row:
    return (
        span.rank,
        _known(span.step),
        span.lane,
        span.name,
        _seconds(span.t, origin),
        _seconds(span.t1, origin),
        _known(span.stage),
        _known(span.micro_batch),
        span.action,
        _known(span.bytes),
        span.group,
        _known(span.seq),
        _known(span.peer),
        span.source,
    )


def _sample(sample: Sample, origin: int) -> list[Row]:
    """The node first, then its ranks, then its GPUs; what was not told is empty."""
    time_s, node = _seconds(sample.t, origin), sample.node
    rows: list[Row] = [(time_s, node, "node", "", sample.cpu_percent, sample.memory_used, "", "", "", "")]
    for rank in sample.ranks:
        held = _told(rank.gpu_memory)
        rows.append((time_s, node, "rank", rank.rank, rank.cpu_percent, rank.rss, held, "", "", ""))
    for gpu in sample.gpus:
        used = (_told(gpu.memory_used), _told(gpu.utilisation), _told(gpu.power_w), _told(gpu.temperature_c))
        rows.append((time_s, node, "gpu", gpu.index, "", "", *used))
    return rows


def _seconds(t: int, origin: int) -> str:
    return f"{(t - origin) / 1e9:.9f}"


def _known(number: int) -> int | str:
    return number if number >= 0 else ""


def _told(value: float | None) -> float | str:
    return "" if value is None else value


def write_json(source: Source, path: Path) -> None:
    """Write manifest, result and all events as one document to `path`.

    Lines of the record that are no events are left out and counted in `unreadable`.

    Raises:
        ParameterError: the run cannot be read.
        OSError: the file cannot be written.
    """
    unreadable = 0
    with path.open("wb") as file:
        file.write(b'{\n"schema": 1,\n"manifest": ' + to_json(source.manifest).rstrip())
        result = b"null" if source.result is None else to_json(source.result).rstrip()
        file.write(b',\n"result": ' + result + b',\n"events": [')
        separator = b"\n"
        for line in source.lines():
            try:
                decode(line)
            except msgspec.DecodeError:
                unreadable += 1
                continue
            file.write(separator + line)
            separator = b",\n"
        file.write(b'\n],\n"unreadable": %d\n}\n' % unreadable)

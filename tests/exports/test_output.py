"""Where an export goes, and what a person can get wrong: one line, exit 2, nothing half-written."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labs.params import ParameterError
from launcher.events import Span, encode
from tests.app.recording import START
from tests.cli.command import workbench
from tests.exports.runs import data_parallel_run, pipeline_run
from workbench import headless
from workbench.cli import main
from workbench.exports import formats, output, tables
from workbench.exports.formats import FORMATS, export
from workbench.exports.stream import Source


@pytest.mark.parametrize("name", list(FORMATS))
def test_the_default_name_is_the_runs_id_here(
    name: formats.FormatName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pipeline_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    path = export(run, name)
    assert path == tmp_path / f"pp-20261129-163012-4f2a{FORMATS[name].ending}"
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ParameterError, match=r"--output: .* exists already; give another name"):
        export(run, name)
    assert sorted(tmp_path.iterdir()) == before == sorted([run, path])


def test_nothing_is_left_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_source: Source, path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(formats.FORMATS, "json", formats.Format("", ".json", full))
    run = data_parallel_run(tmp_path / "run")
    with pytest.raises(ParameterError, match="No space left on device"):
        export(run, "json", tmp_path / "out.json")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_output_that_came_into_being_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "out"

    def write() -> None:
        with output.placed(place) as temporary:
            temporary.write_text("ours")
            place.write_text("theirs")

    with pytest.raises(ParameterError, match="exists"):
        write()
    assert place.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_free_name_is_found(tmp_path: Path) -> None:
    place = tmp_path / "run.trace.json"
    assert output.free_name(place) == place
    place.touch()
    (tmp_path / "run-2.trace.json").touch()
    assert output.free_name(place).name == "run-3.trace.json"


ERRORS = {
    "format": (["--export", "RUN", "--format", "pdf"], ["--format", "'pdf'", "chrome, csv, html, json, svg"]),
    "run": (["--export", "none"], ["--export", "no run", "'none'"]),
    "no run": (["--export"], ["--export", "needs a value"]),
    "folder": (["--export", "RUN", "--output", "no/where"], ["--output", "is not a folder"]),
    "format alone": (["--format", "svg"], ["--format", "goes with --export RUN"]),
    "output alone": (["--runs", "--output", "x"], ["--output", "goes with --export RUN"]),
    "gantt alone": (["--gantt"], ["--gantt", "goes with --run LAB and with --replay RUN"]),
    "gantt of dp": (["--run", "dp", "--gantt"], ["--gantt", "dp has no schedule"]),
    "gantt as json": (["--run", "pp", "--gantt", "--json"], ["--gantt", "does not go with --json"]),
}


@pytest.mark.parametrize(("words", "expected"), ERRORS.values(), ids=ERRORS)
def test_one_line_and_exit_2(
    words: list[str], expected: list[str], tmp_path: Path, runs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = data_parallel_run(runs_dir / "dp-1")
    assert main([str(run) if word == "RUN" else word for word in words]) == 2
    done = capsys.readouterr()
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert all(part in line for part in expected), line


def test_a_damaged_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = data_parallel_run(tmp_path / "run")
    (run / "result.json").write_text("{")
    assert main(["--export", str(run), "--output", str(tmp_path / "x.html")]) == 2
    assert "its manifest or result cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    run = data_parallel_run(tmp_path / "run")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(ParameterError, match="cannot be written"):
        export(run, "json", locked / "x.json")


def test_the_command_says_where_it_is(tmp_path: Path) -> None:
    """As a process: also that the page's template is found, and that nothing heavy is needed for it."""
    run = pipeline_run(tmp_path / "run")
    done = workbench("--export", str(run), "--output", str(tmp_path / "page.html"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    shown = workbench("--replay", str(run), "--gantt", environment={"PYTHONIOENCODING": "ascii"})
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.isascii()
    assert shown.stdout.startswith("planned 1f1b  660 ms  idle 37.5% of ideal, 27.3% of total")


def test_a_run_without_a_schedule_has_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = data_parallel_run(tmp_path / "run")
    assert main(["--replay", str(run), "--gantt"]) == 2
    assert "told no schedule" in capsys.readouterr().err
    (run / "result.json").write_text("{")
    assert main(["--replay", str(run), "--gantt"]) == 2
    assert capsys.readouterr().err.startswith(f"workbench: --gantt: {run}: its manifest or result cannot be ")


def test_the_schedule_stands_above_the_verdict_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run that ended before it told a schedule, one line says so and the verdict still comes."""
    show: Any = headless._show_schedule
    show(SimpleNamespace(folder=pipeline_run(tmp_path / "pp")))
    assert capsys.readouterr().out.startswith("planned 1f1b  660 ms")
    show(SimpleNamespace(folder=data_parallel_run(tmp_path / "dp")))
    done = capsys.readouterr()
    assert (done.out, done.err.count("\n")) == ("", 1)
    assert "told no schedule" in done.err


def test_exports_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of 4 MB goes through in a fraction of its size."""
    run = data_parallel_run(tmp_path / "run")
    span = Span(t=START, t1=START + 5, rank=1, lane="compute", name="x" * 1000, step=3)
    with (run / "events.jsonl").open("ab") as record:
        for _ in range(4):
            record.write(encode(span) * 1000)
    monkeypatch.setattr("workbench.exports.stream.PIECE", 1 << 16)
    source = Source(run)
    tracemalloc.start()
    tables.write_json(source, tmp_path / "run.json")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "run.json").stat().st_size > 4_000_000
    assert peak < 1_500_000

"""A lab's files, and the lines that may have made a span, for every span of the recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.catalog import catalog
from launcher.rundir import EVENTS, run_folders
from workbench import source

RUNS = Path(__file__).parents[1] / "data" / "runs"
RECORDED = [folder.name for folder in run_folders(RUNS)]


@pytest.mark.parametrize("lab", list(catalog()))
def test_files_begin_with_the_narrative_and_end_with_the_communicator(lab: str) -> None:
    files = source.files_of(lab)
    assert files[0].name == "lab.py"
    assert files[-1].name == "comms.py"
    assert len(set(files)) == len(files)
    assert all(file.is_file() for file in files)


def test_algorithms_are_followed_through_their_imports() -> None:
    names = [file.name for file in source.files_of("pp")]
    assert {"pipeline.py", "schedules.py", "backward_split.py"} <= set(names)
    assert "bucketed.py" not in names


@pytest.mark.parametrize("run", RECORDED)
def test_every_span_of_a_recorded_run_has_a_line_that_speaks_of_it(run: str) -> None:
    lab = run.split("-")[0]
    spans = source.spans_of(RUNS / run / EVENTS)
    assert spans
    for span in spans:
        places = source.places_of(lab, span.name)
        # The sweep of the bandwidth lab calls torch itself, through a table of functions.
        assert places or lab == "bandwidth", span
        for place in places:
            around = "\n".join(place.file.read_text().splitlines()[place.line - 1 : place.line + 4])
            word = span.name.removeprefix("wait ").split(" ")[0]
            if place.rule == "calls it":
                assert f"{word}(" in around, (span, place)
            elif place.rule == "times it":
                assert "span" in around or "booked" in around, (span, place)


@pytest.mark.parametrize(
    ("lab", "span", "file", "text"),
    [
        ("pp", "forward", "pipeline.py", "def _forward"),
        ("pp", "full backward", "pipeline.py", "def _backward"),
        ("pp", "input gradient", "pipeline.py", "def _input_gradient"),
        ("pp", "step", "lab.py", 'ctx.span("optimizer", "step")'),
        ("tp", "forward", "lab.py", 'ctx.span("compute", "forward")'),
        ("bootstrap", "tcp: connect", "groups.py", 'f"{way}: {stage}"'),
        ("mesh", "wait all_reduce", "lab.py", "all_reduce("),
    ],
)
def test_the_first_place(lab: str, span: str, file: str, text: str) -> None:
    place = source.places_of(lab, span)[0]
    assert place.file.name == file
    assert text in place.file.read_text().splitlines()[place.line - 1]


def test_a_name_that_no_line_times_has_no_place() -> None:
    assert source.places_of("mesh", "daydream") == ()


def test_a_record_that_breaks_off_is_read_to_there(tmp_path: Path) -> None:
    whole = (RUNS / "mesh" / EVENTS).read_bytes()
    cut = tmp_path / EVENTS
    cut.write_bytes(whole[: len(whole) // 2])
    assert source.spans_of(cut)
    with pytest.raises(OSError, match="No such file"):
        source.spans_of(tmp_path / "none")

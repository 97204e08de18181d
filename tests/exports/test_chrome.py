"""The trace for Perfetto: processes are ranks, lanes threads without overlap, messages arrows, counters."""

from __future__ import annotations

import itertools
import json
from array import array
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.events import Scalar, encode
from tests.app.recording import START
from tests.exports.runs import data_parallel_run, message, pipeline_run
from workbench.exports.chrome import numbered
from workbench.exports.formats import export
from workbench.exports.stream import Source


def trace_of(run: Path, tmp_path: Path) -> list[dict[str, Any]]:
    path = export(run, "chrome", tmp_path / "trace.json")
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


@pytest.fixture
def trace(tmp_path: Path) -> list[dict[str, Any]]:
    return trace_of(pipeline_run(tmp_path / "run"), tmp_path)


def test_a_process_is_a_rank_and_names_have_no_time(trace: list[dict[str, Any]]) -> None:
    names = {e["pid"]: e["args"]["name"] for e in trace if e["ph"] == "M" and e["name"] == "process_name"}
    assert {names[rank] for rank in range(4)} == {f"rank {rank}" for rank in range(4)}
    assert all("ts" not in event for event in trace if event["ph"] == "M")
    spans = [event for event in trace if event["ph"] == "X"]
    assert len([event for event in spans if event["cat"] == "compute"]) == 4 * 16 * 3
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in trace if event["ph"] == "X")


def test_spans_of_a_thread_do_not_overlap(trace: list[dict[str, Any]]) -> None:
    threads: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in trace:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        spans.sort()
        assert all(end <= start + 1e-6 for (_, end), (start, _) in itertools.pairwise(spans))
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in trace
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert {names[thread] for thread in threads} == {"compute", "comm", "comm 2"}


def test_arrows_lead_from_each_send_to_its_receive(trace: list[dict[str, Any]]) -> None:
    starts = {event["id"]: event for event in trace if event["ph"] == "s"}
    ends = {event["id"]: event for event in trace if event["ph"] == "f"}
    # The send of rank 2 has no receive in the record: it leads nowhere.
    assert len(starts) == len(ends) == 2
    assert starts.keys() == ends.keys()
    spans = [event for event in trace if event["ph"] == "X"]
    for name, start in starts.items():
        assert (start["pid"], ends[name]["pid"]) == (0, 1)
        assert start["ts"] <= ends[name]["ts"]
        for end in (start, ends[name]):
            assert any(
                (span["pid"], span["tid"]) == (end["pid"], end["tid"])
                and span["ts"] <= end["ts"] <= span["ts"] + span["dur"]
                for span in spans
            )
    # The first that was sent is the first that was received.
    first = min(starts.values(), key=lambda event: event["ts"])
    assert ends[first["id"]]["ts"] == min(event["ts"] for event in ends.values())


def test_arrows_are_as_perfetto_takes_them(tmp_path: Path) -> None:
    """Ids are whole numbers, and no arrow ends before it begins, however long a receiver waited."""
    run = pipeline_run(tmp_path / "run")
    with (run / "events.jsonl").open("ab") as record:
        for step, begin in enumerate((1999.0, 1999.999), 5):
            record.write(encode(message("recv", 3, 2, 0, 2000, step)))
            record.write(encode(message("send", 2, 3, begin, 2001, step)))
    arrows = [event for event in trace_of(run, tmp_path) if event["ph"] in "sf"]
    assert all(type(event["id"]) is int and event["id"] > 0 for event in arrows)
    starts = {event["id"]: event["ts"] for event in arrows if event["ph"] == "s"}
    ends = {event["id"]: event["ts"] for event in arrows if event["ph"] == "f"}
    assert len(starts) == len(ends) == len(arrows) / 2 == 4
    assert all(starts[name] <= end for name, end in ends.items())


def test_counters_tell_loss_and_memory(trace: list[dict[str, Any]]) -> None:
    counters = defaultdict(list)
    for event in trace:
        if event["ph"] == "C":
            counters[event["pid"], event["name"]].append(event["args"])
    assert [one["value"] for one in counters[3, "loss"]] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert counters[2, "memory (MB)"] == [{"resident": 302.0}]
    assert any(name == "gpu 0 (%)" for _, name in counters)


def test_what_json_cannot_hold_is_left_out(tmp_path: Path) -> None:
    run = data_parallel_run(tmp_path / "run")
    with (run / "events.jsonl").open("ab") as record:
        record.write(encode(Scalar(t=START, rank=0, name="loss", value=float("nan"), step=99)))
        record.write(b"{ torn\n")
    values = [event["args"] for event in trace_of(run, tmp_path) if event["name"] == "loss"]
    assert len(values) == 4 * 20
    assert all(one["value"] == one["value"] for one in values)


def test_a_dropped_span_draws_no_wrong_arrow(tmp_path: Path) -> None:
    run = pipeline_run(tmp_path / "run")
    with (run / "events.jsonl").open("ab") as record:
        record.write(encode(message("send", 0, 1, 20, 21)))
    assert not [event for event in trace_of(run, tmp_path) if event["ph"] in "sf"]


def test_a_run_that_goes_on_is_exported_as_it_was_at_first(tmp_path: Path) -> None:
    run = data_parallel_run(tmp_path / "run")
    source = Source(run)
    before = len(list(source.events()))
    with (run / "events.jsonl").open("ab") as record:
        record.write(encode(message("send", 0, 1, 20, 21)))
    assert len(list(source.events())) == len(list(source.lines())) == before
    assert len(list(Source(run).events())) == before + 1


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_threads_are_as_few_as_the_overlap_is_deep(spans: list[tuple[int, int]]) -> None:
    starts = array("q", [start for start, _ in spans])
    ends = array("q", [start + length for start, length in spans])
    numbers, count = numbered(starts, ends)
    by_thread = defaultdict(list)
    for place, number in enumerate(numbers):
        by_thread[number].append((starts[place], ends[place]))
    for one in by_thread.values():
        one.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(one))
    deepest = max(
        (sum(a <= moment < b for a, b in zip(starts, ends, strict=True)) for moment in starts), default=0
    )
    assert len(by_thread) == count
    assert deepest <= count <= max(1, deepest) + sum(a == b for a, b in zip(starts, ends, strict=True))


def test_the_trace_says_what_run_it_is(tmp_path: Path) -> None:
    path = export(data_parallel_run(tmp_path / "run"), "chrome", tmp_path / "t.json")
    about = msgspec.json.decode(path.read_bytes())["otherData"]
    assert (about["lab"], about["status"]) == ("dp", "passed")

"""A long record seen by its index at once, and whole afterwards: the same as without an index."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher import record_index
from launcher.events import decode, encode
from launcher.record_index import INDEX, Entry, IndexWriter, sketch
from launcher.rundir import EVENTS
from tests.app.recording import dp_events, manifest_of, result_of, write_run
from workbench import feed as feeding
from workbench.feed import Feed
from workbench.views.loss import LossSnapshot

PANES = ("loss", "ranks", "communication", "checks", "timeline")
STEPS = 400


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of 2 ranks with its index; blocks and bounds are small, so that it counts as long."""
    monkeypatch.setattr(record_index, "MARK_EVERY", 4096)
    monkeypatch.setattr(record_index, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(record_index, "END_BYTES", 16384)
    monkeypatch.setattr(feeding, "SKETCH_FROM", 1000)
    monkeypatch.setattr(feeding, "CHUNK", 65536)
    manifest = manifest_of("dp", 2)
    events = dp_events(manifest, steps=STEPS, total=STEPS)
    folder = write_run(tmp_path / "dp", manifest, events, result_of(manifest, events))
    writer = IndexWriter(folder)
    for number, event in enumerate(events, 1):
        writer.add(len(encode(msgspec.structs.replace(event, n=number))), event)
        if number % 100 == 0:
            writer.write()
    writer.write()
    return folder


def test_the_sketch_has_the_rare_the_end_and_some_of_all(long: Path) -> None:
    whole = (long / EVENTS).read_bytes().splitlines()
    lines = sketch(long)
    assert len(lines) < len(whole) / 2
    numbers = [decode(line).n for line in lines]
    assert numbers == sorted(set(numbers))
    rare = [line for line in whole if type(decode(line)) in record_index.RARE]
    assert set(rare) <= set(lines) <= set(whole)
    assert lines[-20:] == whole[-20:]
    middle = [number for number in numbers if len(whole) * 0.4 < number < len(whole) * 0.6]
    assert middle


def test_every_entry_is_the_beginning_of_a_line(long: Path) -> None:
    record = (long / EVENTS).read_bytes()
    entries = [msgspec.json.decode(line, type=Entry) for line in (long / INDEX).read_bytes().splitlines()]
    assert entries
    assert all(entry.at == 0 or record[entry.at - 1 : entry.at] == b"\n" for entry in entries)


@pytest.mark.parametrize("text", [None, b"", b"[1,", b"[99999999,true]\n", b"[500,false]\n[3,true]\n"])
def test_an_index_that_does_not_fit_is_none(long: Path, text: bytes | None) -> None:
    if text is None:
        (long / INDEX).unlink()
    else:
        (long / INDEX).write_bytes(text)
    assert sketch(long) == []
    feed = Feed(long, PANES)
    while feed.result is None:
        feed.poll()
        assert feed.read_share == 1.0
    assert feed.views["ranks"].snapshot().rows[0].phase == "done"


def test_the_first_frame_shows_the_end_and_the_last_one_everything(long: Path) -> None:
    feed = Feed(long, PANES)
    feed.poll()
    assert feed.result is None
    assert feed.read_share == 0.0
    assert feed.run.snapshot().verdict.startswith("passed")
    assert {row.phase for row in feed.views["ranks"].snapshot().rows} == {"done"}
    assert len(feed.views["checks"].snapshot().rows) == 3
    early: LossSnapshot = feed.views["loss"].snapshot()
    assert early.step == STEPS
    assert any(0.3 * STEPS < step < 0.7 * STEPS for step, _ in early.ranks[0].points)
    feed.poll()
    assert 0 < feed.read_share < 1
    while feed.behind:
        feed.poll()
    assert feed.read_share == 1.0
    (long / INDEX).unlink()
    plain = Feed(long, PANES)
    while plain.result is None:
        plain.poll()
    for name in PANES:
        assert feed.views[name].snapshot() == plain.views[name].snapshot(), name


def test_a_disk_that_refuses_leaves_no_index(tmp_path: Path) -> None:
    writer = IndexWriter(tmp_path / "gone")
    manifest = manifest_of("dp", 2)
    for event in dp_events(manifest, steps=2):
        writer.add(10, event)
    writer.write()
    writer.write()
    assert not (tmp_path / "gone").exists()

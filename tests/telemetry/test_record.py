"""The record's file: whole lines alone are written and read, whatever the disk does."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from launcher.events import Scalar, encode
from launcher.record import RecordWriter, Tail, read_record


def line(number: int, name: str = "loss") -> bytes:
    """An event as a line; its time is its number."""
    return encode(Scalar(t=number, rank=0, name=name, value=1.5))


def times(tail: Tail, limit: int = 1 << 20) -> list[int]:
    """The times of the events that are new."""
    return [event.t for event in tail.read(limit)]


class TestTail:
    def test_a_record_that_does_not_exist_yet_is_empty(self, tmp_path: Path) -> None:
        tail = Tail(tmp_path / "events.jsonl")
        assert (tail.read(), tail.behind) == ([], 0)
        tail.path.write_bytes(line(1))
        assert times(tail) == [1]

    def test_half_a_line_is_handed_out_when_it_is_whole(self, tmp_path: Path) -> None:
        tail = Tail(tmp_path / "events.jsonl")
        tail.path.write_bytes(line(1) + line(2)[:-5])
        assert times(tail) == [1]
        assert tail.behind == len(line(2)) - 5
        assert times(tail) == []
        with tail.path.open("ab") as file:
            file.write(line(2)[-5:] + line(3))
        assert times(tail) == [2, 3]
        assert tail.behind == 0

    def test_a_line_that_is_no_event_is_counted_and_passed_over(self, tmp_path: Path) -> None:
        tail = Tail(tmp_path / "events.jsonl")
        later = b'{"event":"of a later version","t":1}\n'
        tail.path.write_bytes(line(1) + later + b"\n" + line(2))
        assert times(tail) == [1, 2]
        assert tail.unreadable == 2

    def test_a_line_ends_with_a_newline_alone(self, tmp_path: Path) -> None:
        """A carriage return between two fields is white space of JSON."""
        tail = Tail(tmp_path / "events.jsonl")
        tail.path.write_bytes(line(1).replace(b",", b",\r") + line(2))
        assert times(tail) == [1, 2]
        assert tail.unreadable == 0

    def test_it_reads_in_pieces_that_may_be_smaller_than_a_line(self, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        path.write_bytes(b"".join(line(number, "x" * 300) for number in range(5)))
        tail, found = Tail(path), []
        while new := times(tail, limit=100):
            found += new
        assert found == [0, 1, 2, 3, 4]
        assert [event.t for event in read_record(path)] == found

    def test_it_goes_on_from_a_position(self, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        path.write_bytes(line(1) + line(2))
        assert times(Tail(path, position=len(line(1)))) == [2]


class TestWriter:
    def test_what_is_queued_is_written_at_once(self, tmp_path: Path) -> None:
        writer = RecordWriter(tmp_path / "events.jsonl")
        writer.add(line(1))
        writer.add(line(2))
        assert (tmp_path / "events.jsonl").read_bytes() == b""
        assert writer.write()
        assert (tmp_path / "events.jsonl").read_bytes() == line(1) + line(2)
        writer.close()

    @pytest.mark.parametrize("taken", [0, 10, len(line(1)) - 1, len(line(1)), len(line(1)) + 10])
    def test_a_disk_that_refuses_leaves_whole_lines(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
    ) -> None:
        """It takes so many bytes more, then none: the line that was torn is cut off again."""
        writer = RecordWriter(tmp_path / "events.jsonl")
        writer.add(line(0))
        assert writer.write()
        write, room = os.write, taken

        def refusing(file: int, data: bytes) -> int:
            nonlocal room
            if not room:
                raise OSError(errno.ENOSPC, "No space left on device")
            count = write(file, data[:room])
            room -= count
            return count

        monkeypatch.setattr(os, "write", refusing)
        writer.add(line(1))
        writer.add(line(2))
        assert not writer.write()
        assert writer.error is not None
        assert writer.error.errno == errno.ENOSPC
        monkeypatch.undo()
        writer.add(line(3))
        assert not writer.write(), "the record ends where it was refused"
        writer.close()
        whole = [0] if taken < len(line(1)) else [0, 1]
        assert (tmp_path / "events.jsonl").read_bytes() == b"".join(map(line, whole))

"""`--exercise` and `--check` as a person uses them: files, exit codes, JSON, a check at each save."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from labs.exercises import exercise_of
from labs.params import ParameterError
from tests.cli.command import WORKBENCH, family, gone, workbench
from workbench import exercise_flags, exercises, watch
from workbench.exercises import Checker, copy_stub, file_to_check

NAME = "average-gradients"
FILE = "average_gradients.py"
SOLUTION = (exercise_of(NAME).folder / "solution.py").read_text()
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    """One warm agent for the module."""
    with Checker() as found:
        yield found


def test_a_stub_is_copied_once_and_never_over_work(tmp_path: Path) -> None:
    path = copy_stub(NAME, tmp_path / "exercises")
    assert path.read_bytes() == exercise_of(NAME).stub.read_bytes()
    path.write_text("mine")
    assert copy_stub(NAME, tmp_path / "exercises") == path
    assert path.read_text() == "mine"


def test_the_exercise_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exercise_flags.run(["--exercise", NAME]) == 0
    assert "is yours: write your code there" in capsys.readouterr().out
    assert exercise_flags.run(["--exercise", NAME]) == 0
    assert "stays as it is" in capsys.readouterr().out
    assert exercise_flags.run(["--exercise", NAME, "--hint", "2"]) == 0
    assert watch.reflow(exercise_of(NAME).hints[1]) in capsys.readouterr().out
    assert [path.name for path in tmp_path.rglob("*.py")] == [FILE]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--exercise", "average-gradient"], "--exercise: .*did you mean average-gradients"),
        (["--check", "nothing-like-it"], "--check: no exercise named 'nothing-like-it'; exercises: ring"),
        (["--check", NAME], "--check: .*No such file.*first workbench --exercise average-gradients"),
        (["--check", NAME, "--file", "mine.py"], "--file: .*mine.py: No such file"),
        (["--check", NAME, "--file", "."], "--file: .*is no file"),
        (["--check", NAME, "--nproc", "2"], "--nproc: does not go with --check; allowed: --check, --file"),
        (["--exercise", NAME, "--watch"], "--watch: goes with --check"),
        (["--exercise", NAME, "--hint", "4"], "--hint: 4 is out of bounds; allowed: a whole number >= 0"),
        (["--exercise", NAME, "--check", NAME], "--check: does not go with --exercise"),
    ],
)
def test_what_a_person_can_get_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=complaint):
        exercise_flags.run(words)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "exercises").write_text("a file")
    with pytest.raises(ParameterError, match=r"--exercise: .*go to a folder you may write"):
        copy_stub(NAME, tmp_path / "exercises")


def test_a_file_of_unreasonable_size_is_not_sent_to_the_ranks(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"#" * (exercises.MAX_BYTES + 1))
    with pytest.raises(ParameterError, match="has 1048577 bytes; allowed"):
        file_to_check(NAME, "", tmp_path)


def test_one_json_object_and_an_exit_code(tmp_path: Path) -> None:
    assert workbench("--exercise", NAME, cwd=tmp_path).returncode == 0
    done = workbench("--check", NAME, "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, told["exit_code"], told["kind"], told["passed"]) == (1, 1, "unwritten", False)
    assert told["line"].startswith(f"{FILE}:")
    assert told["seconds"] > 0
    assert not done.stderr
    missing = workbench("--check", "ring-all-reduce", cwd=tmp_path)
    assert missing.returncode == 2
    assert len(missing.stderr.splitlines()) == 1


def test_ranks_that_end_themselves_or_hear_nothing_are_told(checker: Checker, tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text(
        "import os\ndef average_gradients(module, comms):\n"
        "    os._exit(0) if comms.rank == 1 else comms.barrier()\n"
    )
    verdict = checker.check(NAME, file)
    assert (verdict.kind, verdict.exit_code, verdict.rank) == ("worker", 3, 1)
    assert "rank 1 ended with exit code 0 before your code had returned" in verdict.message
    file.write_text(
        "def average_gradients(module, comms):\n    while comms.rank == 0:\n"
        "        try:\n            comms.rank\n"
        "        except BaseException:\n            pass\n    comms.barrier()\n"
    )
    verdict = checker.check(NAME, file, limit_s=1.0)
    assert (verdict.kind, verdict.exit_code, verdict.rank) == ("late", 3, 0)
    assert verdict.line.startswith(f"{FILE}:")
    file.write_text(SOLUTION + "\nprint('loaded')\n")
    verdict = checker.check(NAME, file)
    assert verdict.printed == [f"rank {rank}: loaded" for rank in range(4)]
    assert verdict.passed, "and the agent is as good as new"


def test_a_check_leaves_no_folder(
    checker: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_dir: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = tmp_path / FILE
    file.write_text(SOLUTION)
    assert checker.check(NAME, file).passed
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert not runs_dir.exists()


def test_a_watch_checks_at_each_save_and_ends_with_130(tmp_path: Path) -> None:
    path = copy_stub(NAME, tmp_path / "exercises")
    command = [*WORKBENCH, "--check", NAME, "--watch"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    assert process.stdout is not None
    assert process.stderr is not None

    def read(stream: IO[str]) -> None:
        for line in stream:
            lines.put(line)

    streams = (process.stdout, process.stderr)
    readers = [threading.Thread(target=read, args=(stream,), daemon=True) for stream in streams]
    for reader in readers:
        reader.start()

    def until(part: str) -> None:
        while part not in (line := lines.get(timeout=WITHIN_S)):
            assert line

    try:
        until("not passed")
        until("watching")
        path.write_text(SOLUTION)
        until("average-gradients: passed")
        renamed = tmp_path / "exercises" / "new"  # as editors save
        renamed.write_text(SOLUTION.replace("parameter.grad /= comms.world_size", "pass"))
        renamed.replace(path)
        until("summed not averaged")
        started = family(process.pid)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(WITHIN_S) == 130
        gone(started)
        for reader in readers:
            reader.join()
        while not lines.empty():
            assert "KeyboardInterrupt" not in lines.get()
    finally:
        process.kill()
        process.wait()
        for reader in readers:
            reader.join()
        process.stdout.close()
        process.stderr.close()


def test_a_signal_raises_once_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(watch.Ended) as ended, watch.ending():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before

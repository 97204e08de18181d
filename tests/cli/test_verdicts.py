"""Runs that do not pass, through the whole headless path: a failed check, a rank that raises, a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.catalog import spec_of
from labs.params import parse
from tests.cli.command import events, only_run, result, workbench
from workbench import headless, session
from workbench.machine import probe

SMALL = {"steps": "6", "dim": "16"}


def run_broken(entrypoint: str, monkeypatch: pytest.MonkeyPatch, as_json: bool = False) -> int:
    """Run `dp` headless in this process, with another entrypoint for its ranks."""
    monkeypatch.setattr(session, "ENTRYPOINT", f"tests.cli.broken:{entrypoint}")
    spec = spec_of("dp")
    options = session.RunOptions(nproc=2, device="cpu")
    return headless.run(spec, parse(spec, SMALL, 2), options, probe(), as_json=as_json, quiet=True)


def test_a_failed_check_is_exit_1_and_says_what_it_shows(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_broken("no_broadcast", monkeypatch) == 1
    printed = capsys.readouterr()
    found = result(only_run(runs_dir))
    assert (found["status"], found["exit_code"], found["failure"]) == ("failed", 1, None)
    failed = [check for check in found["checks"] if not check["passed"]]
    assert failed
    assert len(failed) < len(found["checks"])
    for check in failed:
        assert f"FAILED  {check['name']}" in printed.out
        assert check["shows"] in printed.out
    assert printed.out.splitlines()[-1].startswith("failed: ")
    assert printed.err == ""


def test_a_rank_that_raises_is_exit_3_with_its_traceback_once(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_broken("rank_1_raises", monkeypatch) == 3
    printed = capsys.readouterr()
    found = result(only_run(runs_dir))
    assert (found["status"], found["exit_code"]) == ("error", 3)
    assert (found["failure"]["rank"], found["failure"]["kind"]) == (1, "exception")
    assert "the third batch is bad" in found["failure"]["message"]
    assert printed.out.count("Traceback (most recent call last)") == 1
    assert printed.out.count("rank 1 failed first") == 1
    assert "rank 0 failed" not in printed.out
    assert printed.err == ""


def test_a_torch_that_cannot_be_loaded_is_the_environment_and_not_a_kill(
    runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.12: no such file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_broken("main", monkeypatch) == 2
    printed = capsys.readouterr()
    folder = only_run(runs_dir)
    found = result(folder)
    assert (found["status"], found["exit_code"]) == ("error", 2)
    said = "The launcher agent could not start: OSError: libcudart.so.12: no such file."
    assert found["failure"]["message"].startswith(said)
    assert printed.err.startswith(f"workbench: {said}")
    assert len(printed.err.splitlines()) == 1
    assert "Traceback" in (folder / "agent.log").read_text()


def test_a_run_without_a_result_did_not_pass(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def removed(follower: headless.Headless) -> int:
        shutil.rmtree(runs_dir)
        return 0

    monkeypatch.setattr(headless.Headless, "follow", removed)
    assert run_broken("main", monkeypatch) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "its folder was removed while it ran" in printed.err


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(
    not Path("/proc/mounts").exists() or os.geteuid() != 0, reason="mounting needs root on Linux"
)
def test_a_disk_that_fills_up_is_exit_2_and_keeps_a_whole_record(small_disk: Path) -> None:
    words = ["--run", "dp", "--nproc", "2", "--steps", "100000", "--dim", "16", "--json"]
    done = workbench(*words, "--runs-dir", str(small_disk))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    folder = only_run(small_disk)
    printed = json.loads(done.stdout)
    assert printed == result(folder)
    assert (printed["status"], printed["exit_code"]) == ("error", 2)
    assert printed["failure"]["kind"] == "environment"
    assert "No space left" in printed["failure"]["message"]
    assert events(folder), "every line of the record parses"


@pytest.mark.skipif(
    not Path("/proc/mounts").exists() or os.geteuid() != 0, reason="mounting needs root on Linux"
)
def test_a_disk_that_is_full_already_is_one_line_and_no_folder(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(4096))
    done = workbench("--run", "dp", "--runs-dir", str(small_disk))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"workbench: --runs-dir: {small_disk}: No space left on device")
    assert list(small_disk.iterdir()) == [filler]

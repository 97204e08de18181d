"""What a person can get wrong on the command line: one line that says what is allowed, exit 2, no folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import workbench
from workbench import cli

ERRORS = {
    "wrong lab": (["--run", "bandwith"], ["--run", "'bandwith'", "did you mean bandwidth?", "dp"]),
    "no lab": (["--run"], ["--run", "needs a value", "dp"]),
    "lab twice": (["--run", "dp", "--run", "mesh"], ["--run", "given twice"]),
    "wrong flag": (["--run", "dp", "--stesp", "3"], ["--stesp", "did you mean --steps?", "--dim"]),
    "abbreviated flag": (["--run", "dp", "--step", "3"], ["--step", "did you mean --steps?"]),
    "flag of another lab": (["--run", "dp", "--iters", "3"], ["--iters", "no such flag of dp"]),
    "lab without steps": (["--run", "bandwidth", "--steps", "3"], ["--steps", "no such flag of bandwidth"]),
    "no value": (["--run", "dp", "--steps"], ["--steps", "needs a value", "a whole number"]),
    "flag as value": (["--run", "dp", "--steps", "--json"], ["--steps", "needs a value"]),
    "not a number": (["--run", "dp", "--steps", "many"], ["--steps", "'many'", "a whole number"]),
    "a half step": (["--run", "dp", "--steps", "2.5"], ["--steps", "'2.5'", "a whole number"]),
    "out of bounds": (["--run", "dp", "--steps", "-5"], ["--steps", "-5", ">= 2"]),
    "not finite": (["--run", "dp", "--lr", "nan"], ["--lr", "nan", "> 0"]),
    "infinite": (["--run", "dp", "--timeout", "inf"], ["--timeout", "inf"]),
    "wrong choice": (["--run", "dp", "--variant", "flatt"], ["--variant", "did you mean flat?", "naive"]),
    "given twice": (["--run", "dp", "--seed", "1", "--seed=2"], ["--seed", "given twice"]),
    "no ranks": (["--run", "dp", "--nproc", "0"], ["--nproc", "0", ">= 1"]),
    "negative ranks": (["--run", "dp", "--nproc", "-1"], ["--nproc", "-1", ">= 1"]),
    "too few ranks": (["--run", "dp", "--nproc", "1"], ["--nproc", "1 rank does not fit dp", "2 to 64"]),
    "too many ranks": (["--run", "dp", "--nproc", "65"], ["--nproc", "65", "2 to 64"]),
    "combination": (["--run", "dp", "--nproc", "8", "--batch", "4"], ["--batch", "4", "8 ranks"]),
    "negative seed": (["--run", "dp", "--seed", "-1"], ["--seed", "-1", ">= 0"]),
    "wrong device": (["--run", "dp", "--device", "gpu"], ["--device", "'gpu'", "auto, cpu, cuda"]),
    "wrong launcher": (["--run", "dp", "--launcher", "mpi"], ["--launcher", "'mpi'", "torchrun, warm"]),
    "switch with value": (["--run", "dp", "--json=yes"], ["--json", "takes no value"]),
    "stray word": (["--run", "dp", "fast"], ["fast", "belongs to no flag", "--steps"]),
    "page with run": (["--run", "dp", "--list"], ["--list", "does not go with --run"]),
    "two pages": (["--list", "--runs"], ["--runs", "does not go with --list"]),
    "run flag alone": (["--nproc", "4"], ["--nproc", "goes with --run LAB"]),
    "lab without run": (["dp"], ["dp", "no such command", "--run dp"]),
    "wrong page": (["--lst"], ["--lst", "did you mean --list?"]),
    "json of the app": (["--json"], ["--json", "--run LAB", "--list"]),
    "app flag on a page": (["--list", "--ascii"], ["--ascii", "--list"]),
    "refresh": (["--refresh", "0"], ["--refresh", "0", ">= 0.5"]),
    "no such run": (["--replay", "dp-2020"], ["--replay", "no runs in", "workbench --run LAB"]),
    "no run": (["--replay"], ["--replay", "needs a value", "latest"]),
    "bytes that are no text": (["--run", "dp", "--variant", "\udcff"], ["is not text in utf-8"]),
    "no terminal": ([], ["terminal", "workbench --run LAB"]),
}


@pytest.mark.parametrize(("words", "expected"), ERRORS.values(), ids=ERRORS)
def test_one_line_and_exit_2(words: list[str], expected: list[str], runs_dir: Path) -> None:
    done = workbench(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("workbench: ")
    for part in expected:
        assert part in lines[0]
    assert not runs_dir.exists()


def test_a_file_as_the_folder_of_runs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    done = workbench("--run", "dp", "--runs-dir", str(file / "runs"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"workbench: --runs-dir: {file}/runs: {file} is not a folder")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["--runs"], ["--run", "dp"]])
def test_what_is_no_folder_of_runs_is_said_to_be_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("")
    link.symlink_to("nowhere")
    for place, said in ((file, "is not a folder"), (link, "is a link that leads nowhere")):
        assert cli.main([*words, "--runs-dir", str(place)]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"workbench: --runs-dir: {place}: {place} {said}; ")
        assert shown.err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_an_output_that_was_lost_on_a_full_disk_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert cli.main(["--list"]) == 2
    told = "workbench: stdout: No space left on device; free some space, or write it elsewhere\n"
    assert capsys.readouterr().err == told


def test_a_folder_of_runs_that_does_not_exist_has_none(
    runs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--runs", "--runs-dir", str(runs_dir)]) == 0
    assert capsys.readouterr() == (f"no runs in {runs_dir}\n", "")


def test_a_folder_of_runs_that_cannot_be_made() -> None:
    done = workbench("--run", "dp", "--runs-dir", "/proc/runs")
    assert done.returncode == 2
    assert done.stderr.startswith("workbench: --runs-dir: /proc/runs: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_folder_by_environment_is_named(tmp_path: Path) -> None:
    done = workbench("--run", "dp", environment={"WORLDSIZE_RUNS_DIR": "/proc/runs"}, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("workbench: WORLDSIZE_RUNS_DIR: /proc/runs: ")


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has an NVIDIA driver")
def test_cuda_without_a_gpu() -> None:
    done = workbench("--run", "dp", "--device", "cuda")
    assert done.returncode == 2
    assert "--device: cuda needs one GPU a rank: no GPU" in done.stderr
    assert "--device cpu" in done.stderr

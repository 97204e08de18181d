"""The pages of the command line: labs, a lab's help, the doctor, the version, a dry run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from labs.catalog import catalog
from labs.params import fields_of
from tests.cli.command import WORKBENCH, workbench


def test_list_names_every_lab_in_the_order_of_the_course() -> None:
    done = workbench("--list")
    assert done.returncode == 0
    assert done.stderr == ""
    first_words = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert first_words[:-1] == list(catalog())
    for spec in catalog().values():
        assert spec.summary in done.stdout


def test_list_as_json_is_one_array_with_the_parameters() -> None:
    done = workbench("--list", "--json")
    listed = json.loads(done.stdout)
    assert [lab["id"] for lab in listed] == list(catalog())
    dp = next(lab for lab in listed if lab["id"] == "dp")
    steps = next(param for param in dp["params"] if param["flag"] == "--steps")
    assert steps["kind"] == "int"
    assert steps["description"]
    assert ">= " in steps["allowed"]


@pytest.mark.parametrize("lab", list(catalog()))
def test_help_of_a_lab_has_every_flag_with_its_description(lab: str) -> None:
    done = workbench("--run", lab, "--help", environment={"COLUMNS": "300"})
    assert done.returncode == 0
    assert done.stderr == ""
    page = " ".join(done.stdout.split())
    for field in fields_of(catalog()[lab].params):
        assert field.flag in page
        assert field.description
        assert " ".join(field.description.split()) in page
    assert "--timeout S" in page


def test_help_wraps_to_the_terminal() -> None:
    done = workbench("--run", "bandwidth", "--help", environment={"COLUMNS": "80"})
    parameters = done.stdout.partition("Parameters:")[2]
    assert max(len(line) for line in parameters.splitlines()) <= 80


def test_overview_names_only_flags_that_work() -> None:
    page = workbench("--help").stdout
    for flag in ("--run", "--list", "--runs", "--replay", "--doctor", "--version", "--seed", "--no-mouse"):
        assert flag in page


def test_version() -> None:
    done = workbench("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("worldsize 0.")


def test_dry_run_prints_one_command_and_starts_nothing(runs_dir: Path) -> None:
    done = workbench("--run", "dp", "--nproc", "3", "--steps", "7", "--seed", "5", "--dry-run")
    assert done.returncode == 0
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    words = shlex.split(line)
    assert Path(words[0]).name == "torchrun"
    assert words[words.index("--nproc-per-node") + 1] == "3"
    assert words[words.index("-m") + 1] == "labs.worker"
    assert words[words.index("--steps") + 1] == "7"
    assert words[words.index("--seed") + 1] == "5"
    assert not runs_dir.exists()


def test_no_runs_yet(runs_dir: Path) -> None:
    done = workbench("--runs")
    assert (done.returncode, done.stdout) == (0, f"no runs in {runs_dir}\n")
    assert json.loads(workbench("--runs", "--json").stdout) == []


def test_doctor_looks_at_everything() -> None:
    done = workbench("--doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == (2 if any(finding["advice"] for finding in found.values()) else 0)
    for name in (
        "python",
        "torch",
        "backend",
        "cores",
        "memory",
        "localhost",
        "open files",
        "terminal",
        "runs",
    ):
        assert found[name]["value"], name
    assert str(os.environ["WORLDSIZE_RUNS_DIR"]) in found["runs"]["value"]


def test_doctor_says_what_to_do_about_a_problem() -> None:
    done = workbench("--doctor", "--runs-dir", "/proc/runs")
    assert done.returncode == 2
    marked = [line for line in done.stdout.splitlines() if line.startswith("!!")]
    assert any("/proc/runs" in line for line in marked)
    assert "--runs-dir DIR" in done.stdout


@pytest.mark.parametrize("words", [["--list", "--json"], ["--help"], ["--run", "bandwidth", "--help"]])
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*WORKBENCH, *words], stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are looked up there")
def test_closed_standard_streams_are_no_error() -> None:
    """Whatever is opened next must not be given their numbers, nor a line of ours fail."""
    code = "import os; from workbench import cli; cli.main(['--version']); cli.main(['--lst']); "
    told = "os.write(9, repr([os.readlink(f'/proc/self/fd/{n}') for n in range(3)]).encode())"
    shell = f"""{sys.executable} -c "{code}{told}" 9>&1 <&- >&- 2>&-"""
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == repr(["/dev/null"] * 3)


def test_letters_that_the_terminal_lacks_are_no_error() -> None:
    done = workbench("--list", environment={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stderr == ""

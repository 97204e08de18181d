"""The settings file: what it may say, which line is wrong where it does not fit, and that a flag wins."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from labs.params import ParameterError, fields_of
from tests.cli.command import WORKBENCH
from tests.terminal import Terminal
from workbench import cli, settings, usage

FILE = Path("/c/config.toml")
WRONG = {
    "unknown key": ('theme = "nord"\nrefersh = 2\n', ["line 2", "refersh", "did you mean refresh?", "nproc"]),
    "a table": ("\n[app]\nascii = true\n", ["line 2", "app", "no such setting", "ascii"]),
    "text for a switch": ('ascii = "yes"', ["line 1", "ascii", "'yes'", "true or false"]),
    "a switch for a number": ("nproc = true", ["line 1", "nproc", "True", "a whole number >= 1"]),
    "out of bounds": ("# Hz\n\nrefresh = 99.0", ["line 3", "refresh", "99", "<= 20"]),
    "half a rank": ("nproc = 2.5", ["line 1", "nproc", "2.5", "a whole number"]),
    "wrong choice": ('device = "gpu"', ["line 1", "device", "'gpu'", "auto, cpu, cuda"]),
    "infinite": ("timeout = inf", ["line 1", "timeout", "inf"]),
    "no TOML": ("theme = nord\n", ["is no TOML", "line 1"]),
}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A settings file for the command, empty at first."""
    monkeypatch.setenv(settings.DIR_VARIABLE, str(tmp_path))
    file = tmp_path / settings.FILE
    file.touch()
    return file


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_names_the_line_and_what_is_allowed(text: str, expected: list[str]) -> None:
    with pytest.raises(ParameterError) as caught:
        settings.parse(FILE, text)
    assert str(caught.value).startswith(str(FILE))
    for part in expected:
        assert part in str(caught.value)


def test_every_setting_is_a_flag() -> None:
    flags = {field.flag for struct in (usage.PageFlags, usage.RunFlags) for field in fields_of(struct)}
    assert {field.flag for field in settings.known().values()} <= flags
    assert {"theme", "ascii", "mouse", "refresh", "runs_dir", "nproc", "timeout"} <= set(settings.known())


def test_no_file_sets_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(settings.DIR_VARIABLE, str(tmp_path / "none"))
    assert settings.load().values == {}


def test_an_unreadable_file_is_one_line(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written.write_bytes(b"nproc = 2\ntheme = '\xff'\n")
    assert cli.main(["--runs"]) == 2
    assert capsys.readouterr().err.startswith(f"workbench: {written} line 2: is not UTF-8")
    written.unlink()
    written.mkdir()
    assert cli.main(["--runs"]) == 2
    assert capsys.readouterr().err.startswith(f"workbench: {written}: is a folder")


def test_a_mark_before_the_text_is_none_of_it(written: Path) -> None:
    written.write_bytes(b"\xef\xbb\xbfnproc = 2\r\n")
    assert settings.load().values == {"nproc": "2"}


def test_a_run_takes_them_and_a_flag_wins(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written.write_text("nproc = 3\nseed = 7\nascii = true\n")

    def words(*given: str) -> list[str]:
        assert cli.main(["--run", "dp", *given, "--dry-run"]) == 0
        return shlex.split(capsys.readouterr().out)

    command = words()
    assert command[command.index("--nproc-per-node") + 1] == "3"
    assert command[command.index("--seed") + 1] == "7"
    command = words("--nproc", "2")
    assert command[command.index("--nproc-per-node") + 1] == "2"


def test_a_value_that_fits_the_file_and_not_the_lab(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written.write_text("\nnproc = 128\n")
    assert cli.main(["--run", "dp", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"workbench: {written} line 2: nproc: 128 ranks do not fit dp: allowed 2 to 64")
    assert "--nproc" in error
    assert cli.main(["--run", "dp", "--nproc", "65"]) == 2
    assert capsys.readouterr().err.startswith("workbench: --nproc: 65")


def test_the_folder_of_runs(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written.write_text(f'runs_dir = "{tmp_path}/kept"\n')
    cli.main(["--runs"])
    assert capsys.readouterr().out == f"no runs in {os.environ[settings.RUNS_DIR_VARIABLE]}\n"
    monkeypatch.delenv(settings.RUNS_DIR_VARIABLE)
    cli.main(["--runs"])
    assert capsys.readouterr().out == f"no runs in {tmp_path}/kept\n"


def test_a_theme_that_there_is_not_names_the_line(written: Path, runs_dir: Path) -> None:
    written.write_text('# colours\ntheme = "nrod"\n')
    with Terminal(WORKBENCH, 120, 40) as terminal:
        assert terminal.wait() == 2
        said = terminal.written.decode()
    assert f"{written} line 2: theme: no theme 'nrod'; did you mean nord?" in " ".join(said.split())

"""Fixtures of the app's tests: a folder with recorded runs, and text snapshots of whole screens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.fakes import Outside

RECORDED = Path(__file__).parents[1] / "data" / "runs"
SNAPSHOTS = Path(__file__).parent / "snapshots"
UPDATE = "WORLDSIZE_UPDATE_SNAPSHOTS"

Compare = Callable[[str, str], None]


@pytest.fixture
def outside() -> Outside:
    """What lies outside of the app, made of stand-ins."""
    return Outside()


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """A folder of runs, empty at first."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a recorded run, by its name under `tests/data/runs`."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(RECORDED / name, tmp_path / "recorded" / name))

    return copy


@pytest.fixture
def same_as_snapshot() -> Compare:
    """Compare a screen with its text under `snapshots/`, or write it there where the variable asks for it."""

    def compare(name: str, text: str) -> None:
        file = SNAPSHOTS / f"{name}.txt"
        if os.environ.get(UPDATE):
            file.write_text(text)
        assert file.exists(), (
            f"no snapshot {file.name}: look at the screen, then set {UPDATE}=1 and run again"
        )
        assert text.splitlines() == file.read_text().splitlines()

    return compare

"""What every test has: a folder of runs of its own, and no settings of the person who runs the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SETTINGS = ("NO_COLOR", "COLUMNS", "LINES", "WORLDSIZE_TELEMETRY", "WORLDSIZE_SECRET", "WORLDSIZE_RUN_ID")


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep runs out of the user's data folder; returns the test's own folder of runs, not made yet."""
    runs_dir = tmp_path_factory.mktemp("own") / "runs"
    monkeypatch.setenv("WORLDSIZE_RUNS_DIR", str(runs_dir))
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    yield runs_dir
    assert os.environ.get("WORLDSIZE_RUNS_DIR") == str(runs_dir)

"""What every test has: folders of its own for runs and progress, no settings of the person who tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

SETTINGS = ("NO_COLOR", "COLUMNS", "LINES", "WORLDSIZE_TELEMETRY", "WORLDSIZE_SECRET", "WORLDSIZE_RUN_ID")


def pytest_configure() -> None:
    """Hear all signals: a runner under nohup or in the background ignores some, as would what it starts."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def runs_dir(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep runs out of the user's data folder; returns the test's own folder of runs, not made yet."""
    folder = tmp_path_factory.mktemp("own") / "runs"
    monkeypatch.setenv("WORLDSIZE_RUNS_DIR", str(folder))
    monkeypatch.setenv("WORLDSIZE_CONFIG_DIR", str(folder.with_name("config")))
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture(autouse=True)
def data_dir(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep progress out of the user's data folder; returns the test's own, empty at first."""
    folder = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("WORLDSIZE_DATA_DIR", str(folder))
    return folder

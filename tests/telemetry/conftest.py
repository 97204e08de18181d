"""A collector process for a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.telemetry.harness import CollectorProcess


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    """A running collector; it must end by itself when its stdin does."""
    process = CollectorProcess(tmp_path / "run")
    yield process
    process.close()
    assert process.process.returncode is not None

"""Fixtures of the command's tests: what a test has started ends with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import end_started


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """End the commands that a failed test has left running."""
    yield
    end_started()

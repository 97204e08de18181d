"""Driving the app in tests: wait for what is seen, with a deadline, never for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from textual.pilot import Pilot

from tests.app.fakes import screen_text
from workbench.app import WorkbenchApp
from workbench.screens.run import RunScreen

DEADLINE_S = 20.0


async def until(pilot: Pilot[int], condition: Callable[[], bool]) -> None:
    """Let the app work until the condition holds.

    Raises:
        AssertionError: it does not within the deadline; the message shows the screen.
    """
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        app = pilot.app
        assert isinstance(app, WorkbenchApp)
        assert time.monotonic() < deadline, f"not reached; the screen:\n{screen_text(app)}"
        await pilot.pause()
        await asyncio.sleep(0.01)
    await pilot.pause()


async def until_seen(pilot: Pilot[int], text: str) -> None:
    """Let the app work until `text` stands on the screen."""
    app = pilot.app
    assert isinstance(app, WorkbenchApp)
    await until(pilot, lambda: text in screen_text(app))


async def until_over(pilot: Pilot[int]) -> RunScreen:
    """Let the run screen read its record to the end, and return it."""
    app = pilot.app

    def over() -> bool:
        screen = app.screen
        return isinstance(screen, RunScreen) and screen.feed.result is not None

    await until(pilot, over)
    screen = app.screen
    assert isinstance(screen, RunScreen)
    screen.tick()
    await pilot.pause()
    return screen

"""From a run's folder to snapshots: tails the record and folds it into the view models that the screen needs.

Live, attached and replayed runs are the same code on the same files. It has no timer: the screen polls.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, get_args

import msgspec

from launcher.events import AnyEvent, decode
from launcher.record import Tail
from launcher.record_index import sketch
from launcher.rundir import EVENTS, RESULT, Manifest, Result, read_manifest, read_result
from workbench.runs import state_of
from workbench.views.base import View
from workbench.views.registry import VIEWS
from workbench.views.run import RunView

CHUNK = 1 << 18
"""Bytes of the record that one poll reads: some 0.02 s of work, so that keys are answered in between."""


SKETCH_FROM = 8 << 20
"""From this size on a finished record is shown by its index first: reading it takes seconds."""
TAG = b'"event":"'
TAG_WITHIN = 48
"""In how many bytes of a line the name of its event stands, after the arrival number."""
EVENTS_BY_NAME = {kind.__name__.lower().encode(): kind for kind in get_args(AnyEvent)}


class Feed:
    """One run as the screen sees it; `views` holds one view model a pane name.

    Raises:
        FileNotFoundError: the folder has no manifest.
        msgspec.DecodeError: its manifest is damaged.
    """

    def __init__(self, folder: Path, panes: tuple[str, ...]) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)
        self.result: Result | None = None
        self.problem = ""
        self.unreadable = 0
        """Lines that should be events and are not."""
        self.run = RunView(self.manifest)
        self.views: dict[str, View[Any]] = {name: VIEWS[name](self.manifest) for name in panes}
        self._whole = (self.run, self.views)
        self._begun = False
        self._tail = Tail(folder / EVENTS)
        self._takers: dict[type, tuple[View[Any], ...]] = {}
        self._untaken: set[bytes] = set()
        self._sort()

    def add(self, name: str, view: View[Any]) -> None:
        """Have one more view model fed; before the first poll."""
        self.views[name] = view
        self._sort()

    def _sort(self) -> None:
        """Note which view models take an event of which name, so that no other is even decoded."""
        views = self._all()
        self._takers = {kind: tuple(v for v in views if kind in v.takes) for kind in EVENTS_BY_NAME.values()}
        self._untaken = {name for name, kind in EVENTS_BY_NAME.items() if not self._takers[kind]}

    def _all(self) -> tuple[View[Any], ...]:
        """The view models that see every event."""
        run, views = self._whole
        return (run, *views.values())

    @property
    def read_share(self) -> float:
        """Part of the record that was read while `run` and `views` show a sketch of it; else 1."""
        if self.run is self._whole[0]:
            return 1.0
        return self._tail.position / max(1, self._tail.position + self._tail.behind)

    @property
    def lost(self) -> bool:
        """Whether nobody writes the record any more and it has no result."""
        return self.result is None and not self._over() and state_of(self.manifest, None) == "lost"

    @property
    def behind(self) -> bool:
        """Whether more of the record is there than one poll reads, or its end: poll at once."""
        if self.problem or self.result is not None:
            return False
        return self._over() or self._tail.behind > CHUNK

    def poll(self) -> None:
        """Fold what came since the last poll, and the result once the record is read to its end."""
        if self.result is not None:
            return
        over = self._over()
        if not self._begun:
            self._begun = True
            if over and self._tail.behind > SKETCH_FROM:
                self._sketch()
                return
        try:
            lines = self._tail.read_lines(CHUNK)
        except OSError as error:
            self.problem = f"{self._tail.path}: {error.strerror or error}"
            return
        for line in lines:
            self._take(line)
        if over and not lines:
            self.run, self.views = self._whole
            self._finish(self._all())

    def _sketch(self) -> None:
        """Show a long record at once by parts of it, in view models of their own, until the whole is read."""
        lines = sketch(self.folder)
        try:
            result = read_result(self.folder)
        except (OSError, msgspec.DecodeError):
            return
        if not lines or result is None:
            return
        self.run = RunView(self.manifest)
        self.views = {name: type(view)(self.manifest) for name, view in self.views.items()}
        views = (self.run, *self.views.values())
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError):
                event = decode(line)
                for view in views:
                    view.feed(event)
        for view in views:
            view.finish(result)

    def _take(self, line: bytes) -> None:
        """Decode a line if a view model takes its event, whose name stands in front as it was written."""
        start = line.find(TAG, 0, TAG_WITHIN) + len(TAG)
        if start >= len(TAG) and line[start : line.find(b'"', start)] in self._untaken:
            return
        try:
            event = decode(line)
        except msgspec.DecodeError:
            self.unreadable += 1
            return
        for view in self._takers[type(event)]:
            view.feed(event)

    def _over(self) -> bool:
        return (self.folder / RESULT).exists()

    def _finish(self, views: tuple[View[Any], ...]) -> None:
        try:
            self.result = read_result(self.folder)
        except (OSError, msgspec.DecodeError) as error:
            self.problem = f"result.json cannot be read: {error}"
        if self.result is not None:
            for view in views:
                view.finish(self.result)

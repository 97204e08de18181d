"""The whole log of a run, merged by time: identical lines of several ranks are one entry with a count."""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Sequence

import msgspec

from launcher.events import AnyEvent, Log
from launcher.rundir import Manifest
from workbench.views.base import View
from workbench.views.log import clean
from workbench.views.units import ranks_text

CAPACITY = 20_000
"""Entries held; older ones are in the ranks' files."""
TRIM = 2_000
WHO_AT_MOST = 10
FOLD_NS = 2_000_000_000
"""Ranks say the same thing within this time: later it is another occasion."""


class Entry(msgspec.Struct):
    """One line, by the ranks that printed it; `t` (ns) is when the first of them did. -1 is the launcher."""

    t: int
    text: str
    stream: str
    ranks: list[int]

    @property
    def who(self) -> str:
        """The ranks in words: `r3`, `r0-7 x8`, `5 ranks` where they are scattered; the launcher is `--`."""
        if self.ranks == [-1]:
            return "--"
        many = f" x{len(self.ranks)}" if len(self.ranks) > 1 else ""
        text = f"r{ranks_text(self.ranks)}{many}"
        return text if len(text) <= WHO_AT_MOST else f"{len(self.ranks)} ranks"


class LogbookSnapshot(msgspec.Struct, frozen=True):
    """The entries in their order; `version` tells one state from the next, `older` were let go."""

    entries: tuple[Entry, ...] = ()
    version: int = 0
    older: int = 0
    over: bool = False

    @property
    def start(self) -> int:
        """When the first line was printed (ns)."""
        return self.entries[0].t if self.entries else 0


class LogbookView(View[LogbookSnapshot]):
    """Takes log lines."""

    takes = (Log,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._entries: list[Entry] = []
        self._open: dict[tuple[str, str], Entry] = {}
        self._older = 0
        self._version = 0

    def fold(self, event: AnyEvent) -> None:
        """Take one line: it joins the entry of other ranks that just said the same, or is a new one."""
        assert isinstance(event, Log)
        self._version += 1
        text = clean(event.line)
        same = self._open.get((event.stream, text))
        if same is not None and text and event.rank not in same.ranks and event.t - same.t <= FOLD_NS:
            insort(same.ranks, event.rank)
            return
        entry = Entry(event.t, text, event.stream, [event.rank])
        if self._entries and event.t < self._entries[-1].t:
            insort(self._entries, entry, key=lambda one: one.t)
        else:
            self._entries.append(entry)
        self._open[event.stream, text] = entry
        if len(self._entries) >= CAPACITY + TRIM:
            self._trim()

    def _trim(self) -> None:
        del self._entries[:TRIM]
        self._older += TRIM
        oldest = self._entries[0].t
        self._open = {key: entry for key, entry in self._open.items() if entry.t >= oldest}

    def build(self) -> LogbookSnapshot:
        """Return the entries held."""
        return LogbookSnapshot(tuple(self._entries), self._version, self._older, over=self.result is not None)


def of_rank(entries: Sequence[Entry], rank: int | None) -> Sequence[Entry]:
    """Return what one rank printed; None: everything."""
    return entries if rank is None else [entry for entry in entries if rank in entry.ranks]


def matches(entries: Sequence[Entry], query: str) -> list[int]:
    """Return the places of the entries in which `query` occurs; capitals count only if it has some."""
    if not query:
        return []
    found = re.compile(re.escape(query), 0 if query != query.lower() else re.IGNORECASE)
    return [place for place, entry in enumerate(entries) if found.search(entry.text)]

"""The board of a checked run: ranks announce what they do, and so prove a deadlock instead of timing it.

Every operation of `labs.exercise_comms` is announced here before any byte moves, and starts when its partners
have announced theirs. So a wrong program waits on this board, where it can be told what it waits for and
ended cleanly, and never inside the backend. A rank that waits publishes how often it has looked in vain; when
every rank has ended or has looked in vain twice since a common moment, and nothing moved, nothing ever will.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

FIRST_LOOK_S = 0.1
LOOK_EVERY_S = 0.03
SHORTEST_NAP_S = 0.0003
LONGEST_NAP_S = 0.005
FOR_GOOD = 1 << 40
"""So many looks of a rank that has given up: nobody need wait for more of them."""
Status = Literal["running", "waiting", "returned", "raised"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank is, as the others read it."""

    status: Status = "running"
    looks: int = 0
    """How often it has looked in vain."""
    moves: int = 0
    """How many of its operations have come to something."""
    waits: str = ""
    """`recv from rank 1`."""
    peers: list[int] = []
    """The ranks of the world that could end the wait."""
    line: str = ""
    """The learner's `file.py:12` that waits."""


class Stuck(RuntimeError):  # noqa: N818
    """This rank waits for what will never come; `standings` say where every rank is."""

    def __init__(self, standings: list[Standing], rank: int) -> None:
        super().__init__(f"{standings[rank].waits} will never be answered")
        self.standings = standings


class MismatchError(RuntimeError):
    """Ranks brought to one operation what does not fit together; the message says who brought what."""


class Board:
    """One case's part of the store, as one rank sees it. `file` is the learner's, to name its lines."""

    def __init__(self, rank: int, world_size: int, prefix: str, file: Path | None = None) -> None:
        self.rank = rank
        self.world_size = world_size
        self.file = file
        self.moves = 0
        self.waits = ""
        self._store = PrefixStore(prefix, dist.distributed_c10d._get_default_store())
        self._pending: list[Callable[[], bool]] = []
        self._looks = 0
        self._stand(Standing())

    def announce(self, key: str, text: str) -> None:
        """Write what this rank brings, for its partners."""
        self._store.set(key, text)

    def announced(self, keys: Sequence[str]) -> bool:
        """Whether all of the keys are written; does not wait."""
        return bool(self._store.check(list(keys)))

    def read(self, keys: Sequence[str]) -> list[str]:
        """Return what was announced under keys that are written."""
        return [value.decode() for value in self._store.multi_get(list(keys))]

    def pursue(self, attempt: Callable[[], bool]) -> None:
        """Try an operation again whenever this rank waits, until `attempt` says that it went through."""
        if not attempt():
            self._pending.append(attempt)
        else:
            self.moves += 1

    def wait(self, ready: Callable[[], bool], waits: str, missing: Callable[[], list[int]]) -> None:
        """Return when `ready()`, and pursue everything that is under way meanwhile.

        `missing` gives the ranks of the world whose part is still to come.

        Raises:
            Stuck: it is proved that it never will be.
        """
        if self._look(ready):
            return
        self.waits = waits
        nap, began, next_look = SHORTEST_NAP_S, time.monotonic(), FIRST_LOOK_S
        first: list[Standing] | None = None
        shown = False
        while not self._look(ready):
            time.sleep(nap)
            nap = min(nap * 1.5, LONGEST_NAP_S)
            if time.monotonic() - began < next_look:
                continue
            next_look = time.monotonic() - began + LOOK_EVERY_S
            shown = True
            self._looks += 1
            self._stand(self._standing("waiting", waits, missing()))
            first = self._prove(first)
        self.waits = ""
        if shown:
            self._stand(self._standing("running"))

    def end(self, status: Literal["returned", "raised"]) -> None:
        """Say that the learner's function is over on this rank."""
        self._stand(self._standing(status))

    def gather(self, key: str, text: str, patience_s: float) -> list[str | None]:
        """Return every rank's text; None for those that have written none within `patience_s`."""
        self._store.set(f"{key}/{self.rank}", text)
        keys = [f"{key}/{rank}" for rank in range(self.world_size)]
        deadline, nap = time.monotonic() + patience_s, SHORTEST_NAP_S
        while not self.announced(keys) and time.monotonic() < deadline:
            time.sleep(nap)
            nap = min(nap * 1.5, LONGEST_NAP_S)
        there = [each for each in keys if self.announced([each])]
        found = dict(zip(there, self.read(there), strict=True))
        return [found.get(each) for each in keys]

    def learners_line(self) -> str:
        """Return the innermost line of the learner's file that is running now, `file.py:12`."""
        return line_of(self.file, sys._getframe())

    def _look(self, ready: Callable[[], bool]) -> bool:
        """Let what is under way go on as far as it can; says whether `ready`."""
        open_ones, self._pending = self._pending, []
        for number, attempt in enumerate(open_ones):
            try:
                done = attempt()
            except BaseException:
                self._pending += open_ones[number + 1 :]
                raise
            if done:
                self.moves += 1
            else:
                self._pending.append(attempt)
        if ready():
            self.moves += 1
            return True
        return False

    def _prove(self, first: list[Standing] | None) -> list[Standing] | None:
        """Compare all ranks now with how they stood at a common moment before.

        Raises:
            Stuck: each has ended, or has looked in vain twice since, and nothing moved.
        """
        now = self._standings()
        if any(standing.status == "running" for standing in now):
            return None
        if first is None or [s.moves for s in first] != [s.moves for s in now]:
            return now
        if all(
            then.status in ("returned", "raised") or standing.looks >= min(then.looks + 2, FOR_GOOD)
            for then, standing in zip(first, now, strict=True)
        ):
            self._stand(msgspec.structs.replace(now[self.rank], looks=FOR_GOOD))
            raise Stuck(now, self.rank)
        return first

    def _standing(self, status: Status, waits: str = "", peers: Sequence[int] = ()) -> Standing:
        line = self.learners_line() if status == "waiting" else ""
        return Standing(
            status=status, looks=self._looks, moves=self.moves, waits=waits, peers=list(peers), line=line
        )

    def _stand(self, standing: Standing) -> None:
        self._store.set(f"standing/{self.rank}", msgspec.json.encode(standing).decode())

    def _standings(self) -> list[Standing]:
        texts = self.read([f"standing/{rank}" for rank in range(self.world_size)])
        return [msgspec.json.decode(text, type=Standing) for text in texts]


def line_of(file: Path | None, frame: object) -> str:
    """Return the innermost line of `file` in a frame and its callers, `file.py:12`, or an empty string."""
    while frame is not None:
        code = frame.f_code  # type: ignore[attr-defined]
        if file is not None and code.co_filename == str(file):
            return f"{file.name}:{frame.f_lineno}"  # type: ignore[attr-defined]
        frame = frame.f_back  # type: ignore[attr-defined]
    return ""

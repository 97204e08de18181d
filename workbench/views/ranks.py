"""The rank grid: each rank's phase and step, what it waits for, whether its parameters equal the others'."""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.events import AnyEvent, End, Failure, Hello, Phase, PhaseName, Tensor
from launcher.rundir import Manifest, Result
from workbench.views.base import View

Sync = Literal["unknown", "equal", "differs"]
KEPT_STEPS = 4
PARAMETERS = "parameters"
"""The tensor whose hash a lab tells after each step, for replicas that must stay equal."""


class RankRow(msgspec.Struct, frozen=True):
    """One rank: `detail` says what it waits for or why it died; `digest` is the hash of its parameters."""

    rank: int
    phase: PhaseName = "starting"
    step: int = -1
    total_steps: int = -1
    detail: str = ""
    device: str = ""
    pid: int = 0
    sync: Sync = "unknown"
    digest: str = ""
    stopped: bool = False
    """The run is over and this rank had not come to its end."""


class RanksSnapshot(msgspec.Struct, frozen=True):
    """All ranks in order, and the step at which their parameters were last compared."""

    rows: tuple[RankRow, ...]
    sync: Sync = "unknown"
    sync_step: int = -1
    heard: bool = False


class RanksView(View[RanksSnapshot]):
    """Takes what ranks say of themselves and the hashes of their parameters after each step."""

    takes = (Hello, Phase, Failure, End, Tensor)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._rows = {rank: RankRow(rank) for rank in range(manifest.world_size)}
        self._digests: dict[int, dict[int, str]] = {}
        self._compared: dict[int, str] = {}
        self._compared_step = -1
        self._heard = False

    def fold(self, event: AnyEvent) -> None:
        """Take one event of one rank."""
        row = self._rows.get(event.rank)
        if row is None:
            return
        self._heard = True
        match event:
            case Hello():
                self._change(row, device=event.device, pid=event.pid)
            case Phase():
                self._phase(row, event)
            case Failure():
                why = event.message.splitlines()[0] if event.message else event.kind
                self._change(row, phase="failed", detail=f"victim: {why}" if event.victim else why)
            case End():
                if event.status in ("passed", "failed"):
                    self._change(row, phase="done", detail="")
                elif row.phase != "failed":
                    self._change(row, phase="failed", detail=event.status)
            case Tensor():
                self._digest(event)

    def finish(self, result: Result) -> None:
        """Mark the rank that failed first, and those that never came to their end."""
        super().finish(result)
        failure = result.failure
        for row in list(self._rows.values()):
            if failure is not None and row.rank == failure.rank:
                self._change(row, phase="failed", detail=failure.message.split("\n", 1)[0])
            elif row.phase not in ("done", "failed"):
                self._change(row, stopped=True)

    def _change(self, row: RankRow, **changes: object) -> None:
        self._rows[row.rank] = msgspec.structs.replace(self._rows[row.rank], **changes)

    def _phase(self, row: RankRow, event: Phase) -> None:
        if row.phase == "failed":
            return
        detail = ""
        if event.phase == "waiting":
            where = f" in {event.group}" if event.group else ""
            detail = f"{event.name or 'collective'}{f' #{event.seq}' if event.seq >= 0 else ''}{where}"
        step = event.step if event.step >= 0 else row.step
        total = event.total_steps if event.total_steps >= 0 else row.total_steps
        if event.phase == "done" and total > 0:
            step = total
        self._change(row, phase=event.phase, step=step, total_steps=total, detail=detail)

    def _digest(self, event: Tensor) -> None:
        if event.name != PARAMETERS or not event.hash or event.step < 0:
            return
        found = self._digests.setdefault(event.step, {})
        found[event.rank] = event.hash
        if len(found) == len(self._rows) and event.step >= self._compared_step:
            self._compared, self._compared_step = dict(found), event.step
        for step in sorted(self._digests)[:-KEPT_STEPS]:
            del self._digests[step]

    def build(self) -> RanksSnapshot:
        """Return the grid: a rank is in sync if it has the hash that most ranks have."""
        hashes = list(self._compared.values())
        common = max(set(hashes), key=lambda digest: (hashes.count(digest), digest)) if hashes else ""
        rows = [self._with_sync(row, common) for row in self._rows.values()]
        sync: Sync = "unknown" if not hashes else "equal" if len(set(hashes)) == 1 else "differs"
        return RanksSnapshot(tuple(rows), sync, self._compared_step, self._heard)

    def _with_sync(self, row: RankRow, common: str) -> RankRow:
        digest = self._compared.get(row.rank, "")
        if not digest:
            return row
        return msgspec.structs.replace(row, digest=digest, sync="equal" if digest == common else "differs")

"""The loss of every rank over the steps, and the mean of the ranks that report one."""

from __future__ import annotations

import msgspec

from launcher.events import AnyEvent, Scalar
from launcher.rundir import Manifest
from workbench.views.base import View
from workbench.views.series import Points, Series

MAX_OPEN_STEPS = 8


class RankLoss(msgspec.Struct, frozen=True):
    """One rank's curve; `last` is None for a rank that has reported none (a stage that is not the last)."""

    rank: int
    points: Points
    last: float | None


class LossSnapshot(msgspec.Struct, frozen=True):
    """The curves, and the mean at each step that is complete."""

    ranks: tuple[RankLoss, ...]
    mean: Points = ()
    step: int = -1
    first_mean: float | None = None
    last_mean: float | None = None
    over: bool = False

    @property
    def silent(self) -> tuple[int, ...]:
        """The ranks without a loss, while others have one."""
        return tuple(r.rank for r in self.ranks if r.last is None) if self.step >= 0 else ()


class LossView(View[LossSnapshot]):
    """Takes scalars named `loss`."""

    takes = (Scalar,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._series = {rank: Series() for rank in range(manifest.world_size)}
        self._mean = Series()
        self._open: dict[int, dict[int, float]] = {}
        self._step = -1

    def fold(self, event: AnyEvent) -> None:
        """Take a loss; a step is complete once every rank reported or enough later steps began."""
        assert isinstance(event, Scalar)
        if event.name != "loss" or event.step < 0 or event.rank not in self._series:
            return
        self._series[event.rank].add(event.step, event.value)
        self._step = max(self._step, event.step)
        self._open.setdefault(event.step, {})[event.rank] = event.value
        if len(self._open[event.step]) == len(self._series) or len(self._open) > MAX_OPEN_STEPS:
            self._close(min(self._open))

    def _close(self, step: int) -> None:
        values = self._open.pop(step)
        self._mean.add(step, sum(values.values()) / len(values))

    def build(self) -> LossSnapshot:
        """Return the curves; with the run over, steps that not every rank reported are closed too."""
        if self.result is not None:
            for step in sorted(self._open):
                self._close(step)
        return LossSnapshot(
            ranks=tuple(RankLoss(rank, s.points(), s.last) for rank, s in self._series.items()),
            mean=self._mean.points(),
            step=self._step,
            first_mean=self._mean.first,
            last_mean=self._mean.last,
            over=self.result is not None,
        )

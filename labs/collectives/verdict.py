"""How far a result is from its definition, counted on every rank and judged on rank 0."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labs.comms import Comms
from labs.context import Context

_RELATIVE = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 2.0**-7}


class Judge:
    """Compares results with what they must be, and tells it once for all ranks."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        # A group name of its own keeps what the proofs send apart from what the lab is about.
        self._comms = Comms(ctx.recorder, name="proof", ledger=ctx.comms.ledger)

    def compare(self, name: str, result: Tensor, expected: Sequence[float] | None, shows: str) -> None:
        """Check this rank's `result` element by element; `expected` None: nothing is defined here.

        Every rank calls this. Sums may be rounded, so floats have a tolerance of one rounding a rank.
        """
        wrong = 0 if expected is None else count_wrong(result, expected, self.ctx.world_size)
        counts = self.gather([wrong, 0 if expected is None else len(expected)])
        if self.ctx.rank != 0:
            return
        total = sum(count for _, count in counts)
        bad = [f"{wrong} on rank {rank}" for rank, (wrong, _) in enumerate(counts) if wrong]
        self.ctx.check(
            name,
            not bad,
            measured=", ".join(bad) or 0,
            expected=0,
            unit=f"wrong of {total} elements",
            shows=shows,
        )

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return every rank's whole numbers, by rank."""
        mine = torch.tensor(list(numbers), dtype=torch.int64, device=self.ctx.device)
        everyone = mine.new_empty(len(numbers) * self.ctx.world_size)
        self._comms.all_gather(everyone, mine)
        return everyone.view(self.ctx.world_size, len(numbers)).tolist()


def count_wrong(result: Tensor, expected: Sequence[float], world_size: int) -> int:
    """Return how many elements differ; all of them where the lengths do. NaN differs from everything."""
    if result.numel() != len(expected):
        return max(result.numel(), len(expected))
    wanted = torch.tensor(list(expected), dtype=torch.float64, device=result.device)
    allowed = _RELATIVE.get(result.dtype, 0.0) * world_size * wanted.abs()
    close = (result.to(torch.float64) - wanted).abs() <= allowed
    return int((~close).sum())

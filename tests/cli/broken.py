"""Entrypoints of ranks that run a lab with something broken, for tests of the headless command."""

from __future__ import annotations

from typing import Any


def no_broadcast(argument: dict[str, Any]) -> None:
    """Run `dp` whose replicas are never made equal: its checks must say so."""
    from labs import worker
    from labs.parallel import replica

    replica.broadcast_module = lambda module, comms: None
    worker.main(argument)


def rank_1_raises(argument: dict[str, Any]) -> None:
    """Run `dp` in which rank 1 raises in its third step."""
    from labs import worker
    from labs.context import Context

    step = Context.step

    def raising(ctx: Context, number: int, total: int) -> None:
        if ctx.rank == 1 and number == 2:
            raise ValueError("the third batch is bad")
        step(ctx, number, total)

    Context.step = raising  # type: ignore[method-assign, assignment]
    worker.main(argument)

"""Call a function with the communicator of real gloo ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labs.comms import Comms
from labs.context import Context
from tests import ranks


def on_ranks(world_size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call `function(comms, *args)` on every rank; return the results by rank.

    Raises:
        AssertionError: a rank raised (with its traceback) or did not return in time.
    """
    return ranks.values(ranks.on_ranks(world_size, _with_comms, function, *args, timeout_s=30.0))


def _with_comms(ctx: Context, function: Callable[..., Any], *args: Any) -> Any:
    comms: Comms = ctx.comms
    return function(comms, *args)

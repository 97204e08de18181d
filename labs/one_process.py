"""Let rank 0 compute by itself, however long it takes, while the other ranks wait outside of any collective.

A rank that stands in a collective gives up at its group's time limit, and one process on a whole batch may
well compute for longer than that in a single call. So the others ask the store for rank 0's word instead,
or for a sign that it failed; how long a run may take at all is for `--timeout` to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from labs import alignment
from labs.context import Context

T = TypeVar("T")
POLL_S = 0.02


def on_rank_0(ctx: Context, name: str, work: Callable[[], T]) -> T | None:
    """Return what `work` returns, on rank 0; the others return None when it is done. All ranks call this.

    `name` says what rank 0 does, and is used once in a run.

    Raises:
        RuntimeError: rank 0 ended without having done it.
    """
    store = dist.distributed_c10d._get_default_store()
    key = f"worldsize/rank 0/{name}"
    if ctx.rank == 0:
        result = work()
        store.set(key, "done")
        return result
    with ctx.comms.pending(f"the end of {name} on rank 0", -1):
        while not store.check([key]):
            # It gives its word before it ends, so it may have done both between the two questions.
            if alignment.has_ended(0) and not store.check([key]):
                raise RuntimeError("rank 0 is no longer connected")
            time.sleep(POLL_S)
    return None

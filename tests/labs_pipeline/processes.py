"""Run a function on real gloo ranks and bring back what each returns, for the engine's tests."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore

TIMEOUT_S = 60


class GlooWire:
    """The engine's wire on the default group."""

    def isend(self, tensor: Tensor, dst: int, **fields: Any) -> dist.Work:
        work = dist.isend(tensor, dst)
        assert work is not None
        return work

    def irecv(self, tensor: Tensor, src: int, **fields: Any) -> dist.Work:
        work = dist.irecv(tensor, src)
        assert work is not None
        return work


def on_ranks(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return `function(rank, *arguments)` of each rank; `function` lies at the top of a module.

    Raises:
        AssertionError: a rank raised (with its traceback) or did not end in time.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "pytest", "labs.parallel.pipeline"])
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_rank, args=(rank, world_size, folder, function, arguments), daemon=True)
            for rank in range(world_size)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(TIMEOUT_S)
        late = [rank for rank, process in enumerate(ranks) if process.is_alive()]
        for process in ranks:
            process.kill()
        errors = "\n".join(path.read_text() for path in sorted(Path(folder).glob("error*")))
        assert not errors, errors
        assert not late, f"ranks {late} did not end in {TIMEOUT_S} s"
        return [torch.load(Path(folder, f"result{rank}"), weights_only=False) for rank in range(world_size)]


def _rank(
    rank: int, world_size: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    os.environ["GLOO_SOCKET_IFNAME"] = loopback
    torch.set_num_threads(1)
    try:
        store = FileStore(str(Path(folder, "store")), world_size)
        timeout = timedelta(seconds=30)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
        torch.save(function(rank, *arguments), Path(folder, f"result{rank}"))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        Path(folder, f"error{rank}").write_text(f"rank {rank}:\n{traceback.format_exc()}")
        os._exit(1)

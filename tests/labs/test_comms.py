"""The communicator on real ranks: results, spans, bytes, sequence numbers, handles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from labs.comms import REDUCE_OPS, Traffic
from labs.context import Context
from launcher.events import Span
from tests.ranks import Run, on_ranks, values


def spans(run: Run, rank: int) -> list[Span]:
    """The communication that a rank told, without the worker's first barrier."""
    return [e for e in run.ranks[rank].events if isinstance(e, Span) and e.lane == "comm"][1:]


def every_call(ctx: Context, async_op: bool) -> dict[str, list[float]]:
    """Each op once, on two elements a piece."""
    comms, rank, size = ctx.comms, ctx.rank, ctx.world_size
    mine = torch.tensor([10.0 * (rank + 1), 10.0 * (rank + 1) + 1])
    results: dict[str, torch.Tensor] = {}
    handles = []
    for op in ("broadcast", "reduce", "all_reduce"):
        results[op] = mine.clone()
        arguments: dict[str, Any] = {"broadcast": {"src": 1}, "reduce": {"dst": 1}, "all_reduce": {}}[op]
        handles.append(getattr(comms, op)(results[op], async_op=async_op, **arguments))
    whole = torch.cat([mine + 100 * peer for peer in range(size)])
    results["all_gather"], results["all_to_all"] = torch.empty(2 * size), torch.empty(2 * size)
    results["reduce_scatter"], results["scatter"] = torch.empty(2), torch.empty(2)
    handles.append(comms.all_gather(results["all_gather"], mine, async_op))
    handles.append(comms.all_to_all(results["all_to_all"], whole, async_op))
    handles.append(comms.reduce_scatter(results["reduce_scatter"], whole, async_op=async_op))
    pieces = list(torch.split(whole, 2)) if rank == 0 else None
    handles.append(comms.scatter(results["scatter"], pieces, 0, async_op))
    gathered = [torch.empty(2) for _ in range(size)] if rank == 0 else None
    handles.append(comms.gather(gathered, mine, 0, async_op))
    handles.append(comms.barrier(async_op))
    for handle in handles:
        assert (handle is not None) == async_op
        if handle is not None:
            handle.wait()
            handle.wait()
            assert handle.is_completed()
    results["gather"] = torch.cat(gathered) if gathered else torch.empty(0)
    return {op: tensor.tolist() for op, tensor in results.items()}


@pytest.mark.parametrize("async_op", [False, True])
def test_every_call(async_op: bool) -> None:
    """Both ranks' results by hand; one span each, numbered alike, with S by nccl-tests' rule."""
    run = on_ranks(2, every_call, async_op)
    first, second = values(run)
    assert first["broadcast"] == second["broadcast"] == [20, 21]
    assert second["reduce"] == [30, 32]
    assert first["all_reduce"] == second["all_reduce"] == [30, 32]
    assert first["all_gather"] == second["all_gather"] == [10, 11, 20, 21]
    assert first["all_to_all"] == [10, 11, 20, 21]
    assert second["all_to_all"] == [110, 111, 120, 121]
    assert (first["reduce_scatter"], second["reduce_scatter"]) == ([30, 32], [230, 232])
    assert (first["scatter"], second["scatter"]) == ([10, 11], [110, 111])
    assert first["gather"] == [10, 11, 20, 21]
    bytes_of = {"broadcast": 8, "reduce": 8, "all_reduce": 8, "barrier": 0}
    for rank in range(2):
        told = spans(run, rank)
        assert {e.name: e.bytes for e in told} == {**dict.fromkeys(first, 16), **bytes_of}
        assert sorted(e.seq for e in told) == list(range(1, 10))
        assert {e.group for e in told} == {"world"}
        assert all(e.t <= e.t1 for e in told)
    assert [(e.name, e.seq) for e in spans(run, 0)] == [(e.name, e.seq) for e in spans(run, 1)]


def reduce_with(ctx: Context, op: str, async_op: bool) -> list[float]:
    """The same op by all three reducing calls; `avg` also where the backend itself cannot."""
    ctx.comms._sum_for_avg = op == "avg"
    single = torch.tensor([2.0 + ctx.rank])
    to_root, piece = single.clone(), torch.empty(1)
    handles = [
        ctx.comms.all_reduce(single, op, async_op),
        ctx.comms.reduce(to_root, 0, op, async_op),
        ctx.comms.reduce_scatter(piece, torch.tensor([2.0 + ctx.rank] * 2), op, async_op),
    ]
    for handle in handles:
        if handle is not None:
            handle.wait()
    return [single.item(), piece.item(), to_root.item() if ctx.rank == 0 else single.item()]


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize(
    ("op", "expected"), [("sum", 5), ("avg", 2.5), ("min", 2), ("max", 3), ("product", 6)]
)
def test_reduce_ops(op: str, expected: float, async_op: bool) -> None:
    """Of 2 and 3; a mean by sum and division has to wait for the sum."""
    assert op in REDUCE_OPS
    assert values(on_ranks(2, reduce_with, op, async_op)) == [[expected] * 3] * 2


def point_to_point(ctx: Context) -> list[float]:
    """Blocking, in flight, and exchanged; returns what came."""
    comms, peer = ctx.comms, 1 - ctx.rank
    mine, came = torch.full((3,), float(ctx.rank)), torch.empty(3)
    if ctx.rank == 0:
        comms.send(mine, peer)
        comms.recv(came, peer)
    else:
        comms.recv(came, peer)
        comms.send(mine, peer)
    later = torch.empty(3)
    sending, receiving = comms.isend(mine + 10, peer, micro_batch=4), comms.irecv(later, peer)
    receiving.wait()
    sending.wait()
    swapped = torch.empty(3)
    for handle in comms.exchange([(mine + 20, peer)], [(swapped, peer)]):
        handle.wait()
    assert comms.exchange([], []) == []
    return [came[0].item(), later[0].item(), swapped[0].item()]


def test_point_to_point() -> None:
    """Sends name their peer, and take no sequence number of the group's."""
    run = on_ranks(2, point_to_point)
    assert values(run) == [[1, 11, 21], [0, 10, 20]]
    told = spans(run, 0)
    assert [e.name for e in told].count("send") == [e.name for e in told].count("recv") == 3
    assert {(e.peer, e.seq, e.bytes) for e in told} == {(1, -1, 12)}
    assert [e.micro_batch for e in told if e.micro_batch >= 0] == [4]


def in_two_groups(ctx: Context) -> tuple[list[int], int, int]:
    """Ranks 0, 1 and ranks 2, 3; the second pair works twice as often."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    comms = ctx.comms.over(pairs[ctx.rank // 2], "pair")
    value = torch.ones(1)
    for _ in range(1 + ctx.rank // 2):
        comms.all_reduce(value)
    return comms.ranks, comms.rank, ctx.comms.traffic.total("all_reduce", "pair")


def test_groups_count_by_themselves() -> None:
    """Two groups may share a name; they are told apart by their members, so no rank seems to lag."""
    run = on_ranks(4, in_two_groups)
    assert values(run) == [([0, 1], 0, 4), ([0, 1], 1, 4), ([2, 3], 0, 8), ([2, 3], 1, 8)]
    assert not run.red


def test_traffic_sums_by_op_and_group() -> None:
    """Without any process."""
    traffic = Traffic()
    traffic.bytes["send", "a"] = 3
    traffic.bytes["send", "b"] = 4
    traffic.bytes["recv", "a"] = 5
    assert traffic.total("send") == 7
    assert traffic.total("send", "b") == 4

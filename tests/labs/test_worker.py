"""A rank that ends early says so, and who skipped a collective is told by a check."""

from __future__ import annotations

import datetime
import sys
import time

import pytest
import torch
import torch.distributed as dist

from labs.alignment import Account, difference
from labs.context import Context
from labs.diagnosis import diagnose, disagreement
from labs.one_process import on_rank_0
from labs.worker import LATER_GROUPS, Argument, patient
from launcher.events import End, Hello, Phase
from tests.ranks import GROUP_TIMEOUT_S, Run, on_ranks, values

NAME = "same collectives on every rank"


def add(ctx: Context, times: int = 1) -> float:
    """All-reduce a one so many times."""
    value = torch.ones(1)
    for _ in range(times):
        ctx.comms.all_reduce(value)
    return value.item()


def compute_long() -> str:
    """Take longer than a collective may."""
    time.sleep(0.5)
    return "made"


def turns(ctx: Context) -> tuple[float, str | None, float, list[str]]:
    """Let rank 0 compute for longer than a collective may take, and wait for another group's limit.

    Returns a sum over the ranks, what rank 0 made, a later group's time limit, and what this rank waited for.
    """
    told: list[str] = []
    ctx.emit.waiting = lambda name, group, seq: told.append(name)  # type: ignore[method-assign]
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=0.2))
    made = on_rank_0(ctx, "a long computation", compute_long)
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=GROUP_TIMEOUT_S))
    later = dist.new_group()._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    return add(ctx, times=2), made, later, told[:1]


def phases(run: Run, rank: int) -> list[str]:
    """The phases of a rank, in order."""
    return [e.phase for e in run.ranks[rank].events if isinstance(e, Phase)]


def test_a_run_that_comes_to_its_end() -> None:
    """Starting, ready after the first barrier, running, done; a hello, the check, an end.

    Who waits for rank 0 alone has patience, and no group waits as long as torch would let it.
    """
    run = on_ranks(2, turns)
    waited = "the end of a long computation on rank 0"
    limit = LATER_GROUPS * GROUP_TIMEOUT_S
    assert values(run) == [(4.0, "made", limit, ["all_reduce"]), (4.0, None, limit, [waited])]
    for rank in range(2):
        assert phases(run, rank) == ["starting", "ready", "running", "done"]
    assert [(e.rank, e.world_size, e.backend) for e in run.of(Hello)] == [(0, 2, "gloo"), (1, 2, "gloo")]
    assert [e.status for e in run.of(End)] == ["passed", "passed"]
    assert run.checks[NAME].measured == "3 on each rank"


@pytest.mark.parametrize(
    ("lab", "params", "seconds"),
    [
        ("pp", {"pace_ms": 6000.0}, 15 + 4 * 6 * 3),
        (
            "pp",
            {"pace_ms": 1000.0, "schedule": "zbv", "backward_ratio": 4.0, "checkpoint": "full"},
            15 + 8 * 6,
        ),
        ("3d", {"pace_ms": 1000.0, "pp": 2}, 15 + 2 * 3),
        ("3d", {}, 15),
        ("dp", {"pace_ms": 6000.0}, 15),
    ],
)
def test_a_rank_may_wait_as_long_as_the_pace_wants(
    lab: str, params: dict[str, object], seconds: float
) -> None:
    """For a micro-batch to go through all stages and back; replicas keep one pace and wait for nobody."""
    assert patient(Argument(lab=lab, params=params), 4).pg_timeout_s == seconds


def raises(ctx: Context) -> None:
    """Rank 1 raises before a collective that rank 0 waits in."""
    add(ctx)
    if ctx.rank == 1:
        raise ValueError("a mistake of rank 1")
    add(ctx)


def test_a_rank_that_raises_tells_its_own_traceback() -> None:
    """The other one lost its peer: a victim. Nobody is accused of having skipped a collective."""
    run = on_ranks(2, raises, timeout_s=5)
    own = next(f for f in run.failures if f.rank == 1)
    assert (own.kind, own.message, own.victim) == ("exception", "ValueError: a mistake of rank 1", False)
    assert "in raises" in own.traceback
    other = next(f for f in run.failures if f.rank == 0)
    assert other.victim
    assert (other.collective, other.group, other.seq) == ("all_reduce", "world", 2)
    assert all(rank.exit_code == 1 for rank in run.ranks)
    assert phases(run, 1)[-1] == "failed"
    assert NAME not in run.checks


def exits(ctx: Context) -> None:
    """Rank 0 leaves as if all were well."""
    if ctx.rank == 0:
        sys.exit(0)
    add(ctx)


def test_a_rank_that_exits_early_is_told() -> None:
    """torch would keep it alive and the others waiting without end."""
    run = on_ranks(2, exits, timeout_s=5)
    own = next(f for f in run.failures if f.rank == 0)
    assert own.kind == "early_exit"
    assert "sys.exit(0)" in own.message
    assert run.ranks[0].exit_code == 70
    assert next(f for f in run.failures if f.rank == 1).victim


def skips_in_the_middle(ctx: Context) -> None:
    """Rank 2 leaves out the second of three."""
    add(ctx)
    if ctx.rank != 2:
        add(ctx)
    add(ctx)


def skips_the_end(ctx: Context) -> None:
    """Rank 2 leaves out the last."""
    add(ctx, 2 if ctx.rank == 2 else 3)


@pytest.mark.parametrize("function", [skips_in_the_middle, skips_the_end])
def test_a_rank_that_skips_a_collective_is_named_by_a_check(function: object) -> None:
    """With the numbers of both sides."""
    run = on_ranks(3, function, timeout_s=3)  # type: ignore[arg-type]
    assert run.red == {NAME}
    assert "rank 2" in str(run.checks[NAME].measured)
    assert any(f.kind == "mismatch" for f in run.failures)


def waits_for_nobody(ctx: Context) -> None:
    """All but rank 0 are done long before it."""
    add(ctx)
    if ctx.rank == 0:
        ctx.comms.recorder.settle(wait=True)
        raise MemoryError


def test_a_failure_at_the_end_is_not_taken_for_a_skipped_collective() -> None:
    """The others have nothing to complain about."""
    run = on_ranks(2, waits_for_nobody)
    assert [f.rank for f in run.failures] == [0]
    assert "smaller" in run.failures[0].advice
    assert NAME not in run.checks


def run_out_of_memory() -> None:
    """Fail in what rank 0 does alone."""
    raise MemoryError


def test_who_waits_for_rank_0_alone_hears_that_it_failed() -> None:
    """Not for ever, and as its victim."""
    run = on_ranks(2, on_rank_0, "a computation", run_out_of_memory)
    assert {f.rank: (f.kind, f.victim) for f in run.failures} == {
        0: ("exception", False),
        1: ("exception", True),
    }
    assert run.failures[1].message.startswith(
        "lost a peer in the end of a computation on rank 0 of group world: "
    )
    assert NAME not in run.checks


def account(count: int, pending: tuple[str, str, int] | None = None, world: int = 3) -> Account:
    """What a rank of one group did."""
    return Account({"world": count}, {"world": list(range(world))}, pending)


def test_differences() -> None:
    """Pure: who lags, who is missing, who waits elsewhere, and nothing where all agree."""
    assert difference({0: account(5), 1: account(5), 2: account(5)}, 3) == ""
    lagging = difference({0: account(5), 1: account(4), 2: account(5)}, 3)
    assert lagging == "rank 1 issued 4 collectives of group world, the others 5: rank 1 skipped 1"
    assert "ranks 0, 2 did not" in difference({1: account(5)}, 3)
    same = ("all_reduce", "world", 4)
    assert difference({0: account(5, same, 2), 1: account(5, same, 2)}, 2) == ""
    other = ("broadcast", "world", 4)
    assert difference({0: account(5, same, 2), 1: account(5, other, 2)}, 2) == (
        "rank 0 waits in all_reduce of world; rank 1 waits in broadcast of world"
    )


PENDING = ("all_reduce", "world", 7)


@pytest.mark.parametrize(
    ("error", "kind", "victim"),
    [
        (ValueError("Timeout of my own"), "exception", False),
        (SystemExit(0), "early_exit", False),
        (MemoryError(), "exception", False),
    ],
)
def test_diagnosis_outside_of_a_collective(error: BaseException, kind: str, victim: bool) -> None:
    """What is raised while nothing is pending is the rank's own fault."""
    found = diagnose(error, None)
    assert (found.kind, found.victim) == (kind, victim)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1", "exception"),
        ("[pair.cc:534] Read error [127.0.0.1]:43113: Connection reset by peer", "exception"),
        ("[unbound_buffer.cc:78] Timed out waiting 15000ms for recv operation to complete", "timeout"),
        ("[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 5000 ms", "timeout"),
        ("Rank 2 successfully reached monitoredBarrier, but received errors while waiting", "timeout"),
    ],
)
def test_diagnosis_of_victims(text: str, kind: str) -> None:
    """Messages of gloo in torch 2.13, as they were seen."""
    found = diagnose(RuntimeError(text), PENDING)
    assert (found.kind, found.victim) == (kind, True)
    assert "all_reduce number 7 of group world" in found.message


def fingerprint(rank: int, seq: int, op: str, shape: str = "4", dtype: str = "Float") -> str:
    """One rank's part of torch's message."""
    return (
        f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, "
        f"TensorShape=[{shape}], TensorDtypes={dtype}, TensorDeviceTypes=TensorOptions(...))"
    )


@pytest.mark.parametrize(
    ("one", "other", "sentence"),
    [
        (
            fingerprint(3, 1, "ALLREDUCE", "4, 5"),
            fingerprint(0, 1, "ALLREDUCE", "4"),
            "in all_reduce rank 0 brings a tensor of shape [4] and rank 3 one of shape [4, 5]",
        ),
        (
            fingerprint(0, 1, "_ALLGATHER_BASE"),
            fingerprint(1, 1, "BROADCAST"),
            "rank 0 calls all_gather while rank 1 calls broadcast",
        ),
        (
            fingerprint(0, 1, "REDUCE"),
            fingerprint(1, 1, "REDUCE", dtype="Long"),
            "in reduce rank 0 brings Float and rank 1 Long",
        ),
        (
            fingerprint(0, 9, "REDUCE"),
            fingerprint(1, 8, "REDUCE"),
            "in reduce rank 0 is at its operation 9 of the group and rank 1 at 8: "
            "one of them skipped an operation or issued one too many",
        ),
        ("something else", "entirely", ""),
    ],
)
def test_disagreements(one: str, other: str, sentence: str) -> None:
    """Both ranks, and what they differ in."""
    assert disagreement(f"Detected mismatch between collectives on ranks. {one}, but {other}.") == sentence

"""The bootstrap lab: sleeps, who is who, the store by hand, four ways to a group, and what goes wrong.

The worker has joined its group before a lab runs. This lab leaves it, starts groups of its own, and joins
again at the end; meanwhile the ranks agree through the store that the launcher serves.
"""

from __future__ import annotations

import os
import sys
import time

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from labs.bootstrap import byhand, faults, groups, sleeps, theory
from labs.bootstrap.meeting import Meeting
from labs.bootstrap.spec import Params, ways_of
from labs.context import Context
from launcher.events import Log, Scalar

WORKERS: tuple[theory.Worker, ...] = ("sequential", "threads", "processes")
TELLING = 2.0
"""Sleeps that take so many seconds in turn are long enough to tell how they ran."""


def run(ctx: Context, params: Params) -> None:
    """Bring a job to life, stage by stage."""
    store = dist.distributed_c10d._get_default_store()
    meeting = Meeting(store, ctx.rank, ctx.world_size)
    ways = ways_of(params)
    total = 3 + len(ways) + (len(faults.FAULTS) if params.faults else 0)
    ctx.step(0, total)
    sleep_three_ways(ctx, meeting, params)
    ctx.step(1, total)
    introduce(ctx, meeting)
    ctx.step(2, total)
    byhand.use_a_store(ctx, meeting, lambda line: say(ctx, line))
    leave_group(ctx, meeting)
    for number, way in enumerate(ways):
        ctx.step(3 + number, total)
        start_a_group(ctx, meeting, way)
    if params.faults:
        for number, fault in enumerate(faults.FAULTS):
            ctx.step(3 + len(ways) + number, total)
            go_wrong(ctx, meeting, fault(ctx, meeting, params.fault_timeout), params.fault_timeout)
    join_again(ctx, store)


def sleep_three_ways(ctx: Context, meeting: Meeting, params: Params) -> None:
    """On rank 0, sleep in turn, in threads, in processes; the others wait for the word that it is done."""
    if ctx.rank != 0:
        ctx.emit.waiting("the end of the sleeps on rank 0", "", -1)
        meeting.hear("slept")
        ctx.emit.arrived()
        return
    took = {}
    for how in WORKERS:
        with ctx.span("compute", f"{params.jobs} sleeps, {how}"):
            took[how] = sleeps.measure(how, params.jobs, params.sleep)
        predicted = theory.predicted_seconds(how, params.jobs, params.sleep)
        ctx.metric(f"sleeps.{how}", took[how], "s")
        what = f"{params.jobs} sleeps of {params.sleep:g} s, {how}"
        say(ctx, f"{what}: {took[how]:.2f} s, predicted {predicted:.2f} s")
    in_turn = theory.predicted_seconds("sequential", params.jobs, params.sleep)
    ctx.check(
        "sleeps in turn take as long as all together",
        took["sequential"] >= in_turn,
        measured=took["sequential"],
        expected=in_turn,
        unit="s",
        shows="one after another, waiting adds up",
    )
    if in_turn >= TELLING and params.jobs > 3:
        for how in WORKERS[1:]:
            ctx.check(
                f"sleeps in {how} run at once",
                took[how] < in_turn / 2,
                measured=took[how],
                expected=theory.predicted_seconds(how, params.jobs, params.sleep),
                tolerance=in_turn / 2,
                unit="s",
                shows="who waits needs no core: all sleep at the same time, plus what starting them costs",
            )
    meeting.tell("slept", True)


def introduce(ctx: Context, meeting: Meeting) -> None:
    """Say who this rank is, by torchrun's variables, and check that all the numbers fit together."""
    for name, purpose in theory.VARIABLES.items():
        if name in os.environ:
            say(ctx, f"{name}={os.environ[name]}  ({purpose})")
    say(
        ctx,
        f"rank {ctx.rank} of {ctx.world_size} on {ctx.node}, pid {os.getpid()}, {ctx.device}, {ctx.backend}",
    )
    place = _place(ctx)
    fits = place.consistent and (place.rank, place.world_size) == (dist.get_rank(), dist.get_world_size())
    places = meeting.collect("place", [place.rank, place.local_rank, place.group_rank, ctx.node, fits])
    if ctx.rank == 0:
        ctx.check(
            "ranks are numbered once each, node by node",
            [p[0] for p in places] == list(range(ctx.world_size)) and all(p[4] for p in places),
            measured=" ".join(f"{p[0]}={p[2]}.{p[1]}" for p in places),
            expected=f"ranks 0 to {ctx.world_size - 1}, each as node.local",
            shows="rank = node x ranks per node + local rank, and torch agrees with the environment",
        )


def _place(ctx: Context) -> theory.Place:
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", ctx.world_size))
    return theory.Place(
        rank=int(os.environ["RANK"]),
        local_rank=ctx.local_rank,
        group_rank=int(os.environ.get("GROUP_RANK", ctx.rank // local_world_size)),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_world_size=local_world_size,
    )


def leave_group(ctx: Context, meeting: Meeting) -> None:
    """End the group that the worker made: from here on this process is nobody's peer."""
    ctx.comms.barrier()
    meeting.barrier("left")
    dist.destroy_process_group()
    say(ctx, f"destroy_process_group(): is_initialized() is {dist.is_initialized()}")


def start_a_group(ctx: Context, meeting: Meeting, way: theory.Way) -> None:
    """Start one group, tell the milliseconds of each stage of this rank; rank 0 checks that all came."""
    seconds, added = groups.start(ctx, meeting, way)
    for stage, took in seconds.items():
        _stage(ctx, way, stage, took)
    told = ", ".join(f"{stage} {took * 1e3:.1f} ms" for stage, took in seconds.items())
    say(ctx, f"{way}: {told}")
    everyone = meeting.collect(f"{way}/seen", [sum(seconds.values()), added])
    if ctx.rank == 0:
        say(ctx, f"{way}: {theory.HOW[way]}")
        ctx.metric(f"init.{way}", max(took for took, _ in everyone), "s")
        ctx.check(
            f"a group started by {way}",
            all(total == ctx.world_size for _, total in everyone),
            measured=" ".join(f"{total:g}" for _, total in everyone),
            expected=" ".join([str(ctx.world_size)] * ctx.world_size),
            unit="ranks",
            shows=f"an all-reduce of ones counts the ranks: {theory.HOW[way]}",
        )


def go_wrong(ctx: Context, meeting: Meeting, fault: faults.Fault, limit_s: float) -> None:
    """Tell a failed start in words, on each rank that saw it; rank 0 checks that it was seen and named."""
    mine = fault.told[ctx.rank]
    if mine.words:
        say(ctx, f"{fault.name}: after {mine.seconds:.1f} s: {mine.words}")
    if ctx.rank != 0:
        return
    say(ctx, f"{fault.name}: to blame: {fault.blamed}; {fault.reads}. What to do: {fault.advice}")
    unhurt = [rank for rank in fault.failing if not fault.told[rank].words]
    slowest = max(fault.told[rank].seconds for rank in fault.failing)
    ctx.check(
        f"{fault.name}: named",
        not unhurt and fault.blamed.startswith(fault.expected),
        measured=f"nothing failed on rank {unhurt}" if unhurt else fault.blamed,
        expected=fault.expected,
        shows=fault.reads,
    )
    ctx.check(
        f"{fault.name}: noticed in time",
        not unhurt and slowest <= limit_s + GRACE_S,
        measured=slowest,
        expected=limit_s,
        tolerance=GRACE_S,
        unit="s",
        shows="a start that cannot succeed ends by its time limit, not never",
    )


GRACE_S = 10.0
"""What a busy machine may add to a time limit of seconds."""


def join_again(ctx: Context, store: Store) -> None:
    """Make the group anew in the launcher's store, under keys that the first one did not use."""
    groups.connect(ctx, PrefixStore("again", store))
    ctx.comms.group = dist.group.WORLD
    ctx.comms.barrier()


def say(ctx: Context, line: str) -> None:
    """Tell one line as this rank's output; where nobody records the run, print it with the rank before it."""
    if ctx.emit.connected:
        ctx.emit.emit(Log(t=time.monotonic_ns(), rank=ctx.rank, stream="stdout", line=line))
    else:
        sys.stdout.write(f"[{ctx.rank}] {line}\n")
        sys.stdout.flush()


def _stage(ctx: Context, way: theory.Way, stage: str, seconds: float) -> None:
    ctx.emit.emit(
        Scalar(
            t=time.monotonic_ns(),
            rank=ctx.rank,
            name=f"init/{way}/{stage}",
            value=seconds * 1e3,
            step=theory.STAGES.index(stage),
            unit="ms",
        )
    )

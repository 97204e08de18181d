"""The bootstrap lab's declaration: sleeps, ways of starting a group, failures to see. Loads no torch."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.bootstrap.theory import WAYS, Way, predicted_seconds
from labs.params import LabSpec, ParameterError

LONGEST_S = 10.0
"""Most seconds that the sleeps may take one after another: the other ranks wait meanwhile."""


class Params(msgspec.Struct, frozen=True):
    """What a person can set."""

    sleep: Annotated[
        float, Meta(ge=0.0, le=5.0, description="seconds that one job sleeps", extra={"unit": "s"})
    ] = 0.5
    jobs: Annotated[
        int, Meta(ge=1, le=64, description="sleeps: one after another, in threads, in processes")
    ] = 10
    init: Annotated[
        Literal["all", "env", "tcp", "file", "store"],
        Meta(description="how the process group is started, or each way in turn"),
    ] = "all"
    faults: Annotated[
        bool, Meta(description="also see what goes wrong, contained: rank, port, world size")
    ] = True
    fault_timeout: Annotated[
        float, Meta(ge=0.5, le=10.0, description="how long a failing start waits", extra={"unit": "s"})
    ] = 2.0


def ways_of(params: Params) -> tuple[Way, ...]:
    """Return the ways of starting a group that are to be run."""
    return tuple(way for way in WAYS if params.init in ("all", way))


def validate(params: Params, world_size: int) -> None:
    """Refuse sleeps that together take too long.

    Raises:
        ParameterError: naming `--jobs`, how long they would take, and how many would do.
    """
    total = predicted_seconds("sequential", params.jobs, params.sleep)
    if total > LONGEST_S:
        raise ParameterError(
            "--jobs",
            f"{params.jobs} sleeps of {params.sleep:g} s take {total:g} s one after another; "
            f"allowed: up to {LONGEST_S:g} s, so {int(LONGEST_S / params.sleep)} jobs, or a shorter --sleep",
        )


SPEC = LabSpec(
    id="bootstrap",
    title="Bootstrap",
    summary="a job comes to life: processes, ranks, the store where they meet, the process group",
    group="communication",
    params=Params,
    panes=("bootstrap", "ranks", "timeline", "log", "checks"),
    teaches=(
        "why one waits for ten sleeps in turn but only for one of ten at once",
        "world size, rank, local rank and node, and the variables that torchrun sets",
        "the rendezvous: a store with set, get, wait and a counter",
        "four ways to start a process group, and where the time goes in each",
        "how a missing rank, a taken port and a wrong world size read",
    ),
    min_ranks=2,
    default_ranks=4,
    debug_detail=False,
    tells=True,
    validate=validate,
)

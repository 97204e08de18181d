"""The mesh lab on real gloo ranks: every check holds, and each goes red when its algorithm is broken."""

from __future__ import annotations

from typing import Any

import pytest

from labs.mesh import theory
from launcher.events import Hello, Scalar, Span
from tests.ranks import run_lab, values


@pytest.mark.parametrize(
    ("world_size", "params"),
    [
        (1, {}),
        (3, {}),
        (4, {"shape": "2x2", "names": "flat,tp", "sync_axis": "tp", "dim": 1}),
        (6, {"shape": "3x2"}),
        (8, {"shape": "2x2x2", "ranks_per_node": 4}),
    ],
)
def test_every_check_holds(world_size: int, params: dict[str, Any]) -> None:
    run = run_lab("mesh", world_size, params)
    values(run)
    assert not run.red
    assert "same collectives on every rank" in run.checks


def test_each_rank_tells_its_place_and_its_groups_carry_names() -> None:
    run = run_lab("mesh", 4, {"shape": "2x2"})
    placed = {hello.rank: hello.coordinates for hello in run.of(Hello) if hello.coordinates}
    assert placed == {
        rank: dict(zip(("replicate", "model_parallel"), theory.coordinates(rank, (2, 2)), strict=True))
        for rank in range(4)
    }
    groups = {(span.name, span.group) for span in run.of(Span) if span.lane == "comm"}
    assert ("all_reduce", "replicate") in groups
    assert ("send", "model_parallel") in groups


def average_over_the_world() -> None:
    from labs.comms import Comms
    from labs.mesh import lab

    honest = lab.sync_model

    def broken(ctx: Any, comms: Any, axis: int, shape: tuple[int, ...], dim: int) -> Any:
        world = Comms(ctx.recorder, None, comms.name, ctx.comms.ledger)
        return honest(ctx, world, axis, shape, dim)

    lab.sync_model = broken


def forget_to_divide() -> None:
    import torch

    def keep(self: torch.Tensor, *_: object) -> torch.Tensor:
        return self

    torch.Tensor.div_ = keep  # type: ignore[method-assign, assignment]


def lay_columns_first() -> None:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    from labs.mesh import lab

    def broken(kind: str, shape: tuple[int, ...], mesh_dim_names: tuple[str, ...]) -> DeviceMesh:
        return DeviceMesh(kind, torch.arange(4).reshape(shape).T.contiguous(), mesh_dim_names=mesh_dim_names)

    lab.__dict__["init_device_mesh"] = broken


def send_the_wrong_batch() -> None:
    from labs.comms import Comms

    honest = Comms.send

    def broken(self: Comms, tensor: Any, dst: int) -> None:
        honest(self, tensor * 0, dst)

    Comms.send = broken  # type: ignore[method-assign]


def lose_the_places() -> None:
    """Everyone is the first of its group, and a slice flattened is its last axis alone."""
    from torch.distributed.device_mesh import DeviceMesh

    DeviceMesh.get_local_rank = lambda *_: 0  # type: ignore[method-assign]
    DeviceMesh._flatten = lambda mesh, *_: mesh["model_parallel"]  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("broken", "red"),
    [
        (average_over_the_world, {"sync_model averages over replicate alone"}),
        (forget_to_divide, {"sync_model averages over replicate alone"}),
        (lay_columns_first, {"groups of axis replicate", "groups of axis model_parallel"}),
        (
            lose_the_places,
            {
                "local ranks of axis replicate",
                "local ranks of axis model_parallel",
                "replicate and model_parallel flattened",
            },
        ),
        (send_the_wrong_batch, {"a forward along model_parallel"}),
    ],
)
def test_a_broken_algorithm_turns_its_check_red(broken: Any, red: set[str]) -> None:
    run = run_lab("mesh", 4, {"shape": "2x2", "ranks_per_node": 2}, broken=broken)
    assert red <= run.red
    assert not run.failures
    # Told of the groups that torch made, not of the shape: laid by columns, the replicas are neighbours.
    crosses = {s.name: s.value for s in run.of(Scalar) if s.name.endswith(".crosses_nodes")}
    by_columns = broken is lay_columns_first
    assert crosses == {"replicate.crosses_nodes": not by_columns, "model_parallel.crosses_nodes": by_columns}

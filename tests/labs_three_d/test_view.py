"""The cube view folds what ranks report, and its pane draws it at every width."""

from __future__ import annotations

import pytest

from labs.mesh import theory
from launcher.events import Hello, Phase, Scalar, Span
from tests.manifests import manifest
from workbench.panes.cube import CubePane
from workbench.views.cube import CubeView, Talk

NAMES = ("dp", "pp", "tp")


def comm(rank: int, name: str, group: str, t1: int, size: int, peer: int = -1, step: int = 0) -> Span:
    return Span(
        t=t1 - 1, t1=t1, rank=rank, lane="comm", name=name, group=group, bytes=size, peer=peer, step=step
    )


def cube(shape: tuple[int, int, int] = (2, 2, 2)) -> CubeView:
    """All ranks in their places, in step 1, with a step 0 behind them; tp talks last."""
    world_size = shape[0] * shape[1] * shape[2]
    view = CubeView(manifest("3d", world_size))
    for rank in range(world_size):
        place = dict(zip(NAMES, theory.coordinates(rank, shape), strict=True))
        hello = Hello(
            t=0,
            rank=rank,
            world_size=world_size,
            local_rank=rank,
            node="n",
            pid=1,
            device="cpu",
            backend="gloo",
            coordinates=place,
        )
        view.feed(hello)
    for name in (*NAMES, "embedding", "model"):
        view.feed(Scalar(t=0, rank=0, name=f"{name}.crosses_nodes", value=float(name == "dp")))
        view.feed(Scalar(t=0, rank=0, name=f"{name}.bytes_per_step_theory", value=100.0 * world_size))
    for rank in range(world_size):
        view.feed(comm(rank, "all_reduce", "dp", 1_000_000, 100))
        view.feed(comm(rank, "all_reduce", "world", 1_500_000, 7))
        view.feed(comm(rank, "recv", "pp", 400_000_000, 50, peer=0))
        view.feed(comm(rank, "all_reduce", "tp", 500_000_000, 100))
        view.feed(Span(t=0, t1=9, rank=rank, lane="compute", name="forward", action="1F3", step=0))
        view.feed(Phase(t=0, rank=rank, phase="running", step=1, total_steps=2))
    return view


def text(view: CubeView, width: int) -> str:
    lines = CubePane(ascii_only=True).lines(view.snapshot(), width, 20)
    assert max(sum(len(segment.text) for segment in line) for line in lines) <= width
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


def test_bytes_are_those_of_the_last_whole_step() -> None:
    view = cube()
    view.feed(comm(0, "all_reduce", "dp", 500_000_001, 999, step=1))
    traffic = {axis.name: axis for axis in view.snapshot().traffic}
    assert (traffic["dp"].bytes_step, traffic["dp"].theory, traffic["dp"].calls_step) == (800, 800, 1)
    assert (traffic["pp"].bytes_step, traffic["model"].bytes_step) == (0, 0)
    assert [traffic[name].size for name in ("dp", "pp", "tp", "model")] == [2, 2, 2, 4]
    assert "world" not in traffic


def test_now_is_what_ended_last_each_group_once() -> None:
    view = cube()
    view.feed(comm(0, "send", "pp", 510_000_000, 50, peer=2, step=1))
    now = {axis.name: axis.now for axis in view.snapshot().traffic}
    assert now["pp"] == (Talk("send", (0, 2)),)
    assert now["tp"] == tuple(Talk("all_reduce", (rank, rank + 1)) for rank in (0, 2, 4, 6))
    assert now["dp"] == ()
    for rank in (0, 1, 4, 6):
        view.feed(comm(rank, "all_reduce", "model", 520_000_000, 4, step=1))
        view.feed(comm(rank, "all_reduce", "embedding", 520_000_000, 4, step=1))
    members = {axis.name: [talk.ranks for talk in axis.now] for axis in view.snapshot().traffic}
    assert members["model"] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert members["embedding"] == [(0,), (1,), (4, 6)]


def test_before_anything_is_known_it_says_what_it_waits_for() -> None:
    assert "waiting for the ranks" in text(CubeView(manifest("3d", 8)), 60)


@pytest.mark.parametrize("width", [38, 76, 118])
def test_slices_actions_and_axes_are_drawn(width: int) -> None:
    drawn = text(cube(), width)
    assert drawn.count("pp 1") == 2
    assert "r7  1F3" in drawn
    assert "crosses" in drawn
    assert "800 B" in drawn
    assert "[0 1]" in drawn
    beside = "dp 0" in drawn.splitlines()[0] and "dp 1" in drawn.splitlines()[0]
    assert beside == (width > 38)
    assert len(drawn.splitlines()) <= 20


def test_many_ranks_still_have_their_tags() -> None:
    drawn = text(cube((2, 2, 16)), 76)
    assert "r0  r1  r2" in drawn
    assert "r63" in drawn


def test_a_tensor_group_across_nodes_is_a_warning() -> None:
    view = cube()
    assert "slow link" not in text(view, 76)
    view.feed(Scalar(t=0, rank=0, name="tp.crosses_nodes", value=1.0))
    assert "tp crosses nodes: it talks in every layer" in text(view, 76)

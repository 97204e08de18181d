"""The mesh view builds the grid from what ranks report, and its pane draws it at every width."""

from __future__ import annotations

import pytest

from labs.mesh import theory
from launcher.events import Hello, Scalar, Tensor
from tests.manifests import manifest
from workbench.panes.mesh import MeshPane
from workbench.views.mesh import MeshView

MANIFEST = manifest("mesh", world_size=8)


def _view(shape: tuple[int, ...], names: tuple[str, ...]) -> MeshView:
    view = MeshView(MANIFEST)
    for rank in range(8):
        place = dict(zip(names, theory.coordinates(rank, shape), strict=True))
        view.feed(
            Hello(
                t=0,
                rank=rank,
                world_size=8,
                local_rank=rank,
                node="n",
                pid=1,
                device="cpu",
                backend="gloo",
                coordinates=place,
            )
        )
        view.feed(
            Tensor(
                t=0, rank=rank, name="weight[0]", moment="before", shape=(1,), dtype="f", values=[float(rank)]
            )
        )
    view.feed(Scalar(t=0, rank=0, name=f"{names[0]}.crosses_nodes", value=1.0))
    return view


def _text(view: MeshView, width: int) -> str:
    pane = MeshPane(ascii_only=True)
    lines = pane.lines(view.snapshot(), width, 20)
    assert max(sum(len(segment.text) for segment in line) for line in lines) <= width
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


def test_groups_are_those_of_the_definition() -> None:
    snapshot = _view((2, 4), ("replicate", "model_parallel")).snapshot()
    assert [list(map(list, axis.groups)) for axis in snapshot.axes] == [
        theory.groups_along(0, (2, 4)),
        theory.groups_along(1, (2, 4)),
    ]
    assert [axis.crosses_nodes for axis in snapshot.axes] == [True, None]


def test_before_anything_is_known_it_says_what_it_waits_for() -> None:
    assert "waiting for the ranks" in _text(MeshView(MANIFEST), 60)


@pytest.mark.parametrize("width", [38, 76, 118])
def test_the_grid_and_its_groups_are_drawn(width: int) -> None:
    text = _text(_view((2, 4), ("replicate", "model_parallel")), width)
    assert "[0 4] [1 5] [2 6] [3 7]" in text
    assert "[0 1 2 3] [4 5 6 7]" in text
    assert "replicate 0   r0" in text
    assert "crosses nodes" in text


def test_three_axes_are_drawn_slice_by_slice() -> None:
    text = _text(_view((2, 2, 2), ("dp", "pp", "tp")), 76)
    assert "dp 0" in text
    assert "dp 1" in text
    assert text.count("pp 0") == 2

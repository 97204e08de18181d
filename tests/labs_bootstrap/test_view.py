"""The bootstrap view folds a job's beginning, and its pane draws it."""

from __future__ import annotations

import pytest

from launcher.events import Hello, Phase, Scalar
from tests.manifests import manifest
from workbench.panes.bootstrap import BootstrapPane
from workbench.views.bootstrap import BootstrapView

STAGES = ("rendezvous", "connect", "first all-reduce", "destroy")


def _view(ranks: int = 2, *, begun: bool = True) -> BootstrapView:
    view = BootstrapView(manifest("bootstrap", ranks))
    for rank in range(ranks if begun else 0):
        view.feed(Phase(t=1_000_000, rank=rank, phase="starting"))
        view.feed(
            Hello(
                t=2,
                rank=rank,
                world_size=ranks,
                local_rank=rank,
                node="host",
                pid=100 + rank,
                device="cpu",
                backend="gloo",
            )
        )
        view.feed(Phase(t=41_000_000, rank=rank, phase="ready"))
    return view


def _scalar(name: str, value: float, rank: int = 0, step: int = -1) -> Scalar:
    return Scalar(t=0, rank=rank, name=name, value=value, step=step)


def _text(view: BootstrapView, width: int = 76, *, ascii_only: bool = False) -> list[str]:
    pane = BootstrapPane(ascii_only=ascii_only)
    return ["".join(part.text for part in line) for line in pane.lines(view.snapshot(), width, 20)]


def test_waits_for_the_first_rank() -> None:
    assert "waiting for the first rank" in "\n".join(_text(_view(begun=False)))


def test_ranks_are_told_with_the_time_until_they_had_joined() -> None:
    assert _text(_view())[1] == "r1   local 1 on host, pid 101  joined in 40.0 ms"


def test_sleeps_are_bars_in_the_order_they_were_measured() -> None:
    view = _view()
    for how, seconds in (("sequential", 5.0), ("threads", 0.5), ("processes", 0.86)):
        view.feed(_scalar(f"sleeps.{how}", seconds))
    rows = [line for line in _text(view, ascii_only=True) if line.endswith(" s")]
    assert [row.split()[0] for row in rows] == ["sequential", "threads", "processes"]
    assert rows[0].endswith("5.00 s")
    assert all(row.isascii() for row in rows)


def test_stages_stand_in_their_order_with_a_row_a_rank() -> None:
    view = _view()
    for step, stage in reversed(list(enumerate(STAGES))):
        view.feed(_scalar(f"init/tcp/{stage}", step + 0.5, rank=1, step=step))
    view.feed(_scalar("init/tcp/connect", 7.0, rank=0, step=1))
    (start,) = view.snapshot().starts
    assert start.stages == STAGES
    assert start.ranks == ((None, 7.0, None, None), (0.5, 1.5, 2.5, 3.5))
    assert start.slowest(1) == 7.0
    assert start.slowest(0) == 0.5
    text = _text(view)
    assert text[-2].split() == ["r0", "-", "7.0", "ms", "-", "-"]


@pytest.mark.parametrize("width", [40, 60])
def test_where_columns_do_not_fit_the_slowest_rank_of_each_stage_is_told(width: int) -> None:
    view = _view()
    for rank in (0, 1):
        view.feed(_scalar("init/env/rendezvous", 1.0 + rank, rank=rank, step=0))
        for step, stage in enumerate(STAGES[1:], 1):
            view.feed(_scalar(f"init/env/{stage}", 3.0, rank=rank, step=step))
    assert "  rendezvous 2.0 ms" in _text(view, width)
    assert all(len(line) <= width for line in _text(view, width)[3:])


def test_keys_of_the_store_are_counted() -> None:
    view = _view()
    view.feed(_scalar("store/keys", 3, step=2))
    view.feed(_scalar("store/keys", 5, step=2))
    assert any(line.endswith("5") and "keys in the store" in line for line in _text(view))

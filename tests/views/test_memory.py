"""The memory view keeps each rank's newest bytes beside theory, and its pane draws them at every width."""

from __future__ import annotations

import pytest

from launcher.events import Scalar
from tests.manifests import manifest
from workbench.panes.memory import MemoryPane
from workbench.views.memory import MemoryView

MANIFEST = manifest("zero", world_size=2)


def _view() -> MemoryView:
    view = MemoryView(MANIFEST)
    metrics = {
        "parameters_init_bytes_theory": 500.0,
        "gradients_before_step_bytes_theory": 100.0,
        "sent_bytes_per_step_theory": 3000.0,
        "parameters_init_bytes": 999.0,
    }
    told = [Scalar(t=0, rank=0, name=name, value=value, unit="B") for name, value in metrics.items()]
    for step, factor in ((0, 7.0), (1, 1.0)):
        for rank in (0, 1):
            for name, value in (
                ("parameters init", 500.0 + rank),
                ("parameters before step", 500.0),
                ("gradients before step", 300.0 * factor),
                ("optimizer before step", 1000.0),
                ("sent in a step", 3100.0 + rank),
            ):
                told.append(Scalar(t=0, rank=rank, name=name, value=value, step=step, unit="B"))
    told.append(Scalar(t=0, rank=0, name="loss", value=1.0, step=1))
    for event in told:
        view.feed(event)
    return view


def _text(view: MemoryView, width: int) -> str:
    pane = MemoryPane(ascii_only=True)
    lines = pane.lines(view.snapshot(), width, 20)
    assert max(sum(len(segment.text) for segment in line) for line in lines) <= width
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


def test_the_newest_bytes_stand_beside_theory() -> None:
    snapshot = _view().snapshot()
    held = {(holding.kind, holding.moment): holding for holding in snapshot.holdings}
    assert len(held) == 4
    first = held["parameters", "init"]
    assert (first.least, first.most, first.theory) == (500.0, 501.0, 500.0)
    assert held["gradients", "before step"].most == 300.0
    assert held["optimizer", "before step"].theory == -1
    assert (snapshot.sent, snapshot.sent_theory) == (3101.0, 3000.0)
    assert [rank.total for rank in snapshot.ranks] == [1800.0, 1800.0]


@pytest.mark.parametrize("width", [30, 50, 76, 118])
def test_the_pane_draws_a_row_a_kind_and_a_bar_a_rank(width: int) -> None:
    text = _text(_view(), width)
    rows = [line for line in text.splitlines() if "300 B" in line]
    assert len(rows) == 1
    assert rows[0].split()[-1] == MemoryPane(ascii_only=True).glyphs.failed
    assert "sent a step 3.10 kB" in text
    bar = next(line for line in text.splitlines() if line.startswith("r1"))
    assert bar.count("o") > bar.count("p") > bar.count("g") > 0
    assert bar.endswith("1.80 kB")


def test_before_anything_is_told_it_says_what_it_waits_for() -> None:
    assert "waiting for the first measurement" in _text(MemoryView(MANIFEST), 60)

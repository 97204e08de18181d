"""The shards pane says in its frame how many tensors some rank has whole for now."""

from __future__ import annotations

from typing import Literal

from launcher.events import Shard
from tests.manifests import manifest
from workbench.panes.shards import ShardsPane
from workbench.views.shards import ShardsView

MANIFEST = manifest("zero", world_size=2)


def _tell(view: ShardsView, name: str, rank: int, state: Literal["held", "gathered"]) -> None:
    whole, part = (0, 8), (4 * rank, 4 * rank + 4)
    held = whole if state == "gathered" else part
    view.feed(
        Shard(t=0, rank=rank, tensor=name, kind="parameter", global_shape=(8,), slices=(held,), state=state)
    )


def _frame(view: ShardsView) -> str:
    pane = ShardsPane(ascii_only=True)
    pane.lines(view.snapshot(), 60, 20)
    return str(pane.border_subtitle)


def test_what_is_gathered_is_counted_until_it_is_let_go() -> None:
    view = ShardsView(MANIFEST)
    for name in ("first", "second", "third"):
        for rank in (0, 1):
            _tell(view, name, rank, "held")
    assert _frame(view) == "3 tensors"
    _tell(view, "first", 0, "gathered")
    _tell(view, "second", 1, "gathered")
    assert _frame(view) == "3 tensors, 2 gathered now"
    _tell(view, "first", 0, "held")
    assert _frame(view) == "3 tensors, 1 gathered now"

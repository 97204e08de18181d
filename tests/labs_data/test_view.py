"""What each rank reads stands in the shards pane, a line a rank."""

from __future__ import annotations

from launcher.events import Shard
from tests.app.recording import manifest_of
from workbench.panes.shards import ShardsPane
from workbench.views.shards import ShardsView


def test_the_newest_word_of_each_rank_is_a_line() -> None:
    """Cut to the pane's width, and only that of the rank in focus."""
    view = ShardsView(manifest_of("dp", 2))
    for epoch in range(2):
        for rank in range(2):
            view.feed(
                Shard(
                    t=1,
                    rank=rank,
                    tensor="batch",
                    kind="data",
                    global_shape=(4, 8),
                    slices=((2 * rank, 2 * rank + 2), (0, 8)),
                    note=f"epoch {epoch}, 4 of 8 examples: {rank}, 5, 2, 7",
                )
            )
    pane = ShardsPane(ascii_only=True)
    assert [line.rstrip() for line in drawn(pane, view, 40)[-2:]] == [
        "  r0  epoch 1, 4 of 8 examples: 0, 5, 2~",
        "  r1  epoch 1, 4 of 8 examples: 1, 5, 2~",
    ]
    pane.rank = 1
    assert [line for line in drawn(pane, view, 60) if "epoch" in line] == [
        "  r1  epoch 1, 4 of 8 examples: 1, 5, 2, 7".ljust(60)
    ]


def drawn(pane: ShardsPane, view: ShardsView, width: int) -> list[str]:
    """The pane's lines as text."""
    return ["".join(part.text for part in line) for line in pane.lines(view.snapshot(), width, 20)]

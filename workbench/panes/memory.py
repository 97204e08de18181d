"""The memory table: parameters, gradients, optimizer state by moment beside theory, and a bar a rank."""

from __future__ import annotations

from rich.segment import Segment

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, faint, fit, ink, muted, rank_tag, right, table
from workbench.views.memory import FULLEST, KINDS, Holding, MemorySnapshot, RankMemory
from workbench.views.units import size

WIDE = 60
COLOURS = {
    "parameters": palette.LANES["compute"],
    "gradients": palette.LANES["comm"],
    "optimizer": palette.LANES["optimizer"],
}
TOLERANCE = 0.05


class MemoryPane(Pane[MemorySnapshot]):
    """What each rank holds, by kind, and what theory says of it."""

    NAME = "memory"
    TITLE = "memory"
    MAX_HZ = 1.0

    def lines(self, snapshot: MemorySnapshot, width: int, height: int) -> list[Line]:
        """Return a row a kind and moment, what a step sends, and a bar a rank."""
        if not snapshot.holdings:
            self.say("")
            return self.waiting(
                "no memory was told" if snapshot.over else "waiting for the first measurement"
            )
        fullest = max((rank.total for rank in snapshot.ranks), default=0.0)
        self.say(f"{size(fullest)} a rank {FULLEST}" if fullest else "")
        lines = self._table(snapshot.holdings, width)
        if snapshot.sent >= 0:
            beside = f", theory {size(snapshot.sent_theory)}" if snapshot.sent_theory >= 0 else ""
            lines.append([muted(fit(f"sent a step {size(snapshot.sent)}{beside}", width))])
        if snapshot.ranks:
            lines += [[], [muted(fit(f"{FULLEST}, by kind ({', '.join(kind[0] for kind in KINDS)})", width))]]
            lines += [self._bar(rank, fullest, width) for rank in snapshot.ranks]
        return lines

    def _table(self, holdings: tuple[Holding, ...], width: int) -> list[Line]:
        wide = width >= WIDE
        widths = [12, 11, 19, 9, 2] if wide else [max(4, width - 22), 8, 8, 2]
        rows = [
            [
                ink(holding.moment),
                *([ink(holding.kind, COLOURS[holding.kind])] if wide else []),
                ink(_range(holding) if wide else size(holding.most)),
                muted(size(holding.theory)),
                self._light(holding),
            ]
            for holding in holdings
        ]
        header = ["moment", "kind", "a rank", "theory", ""] if wide else ["moment", "a rank", "theory", ""]
        if not wide:
            for row, holding in zip(rows, holdings, strict=True):
                row[0] = ink(f"{holding.kind[0]} {holding.moment}", COLOURS[holding.kind])
        return table(header, rows, widths, frozenset({2, 3} if wide else {1, 2}))

    def _light(self, holding: Holding) -> Segment:
        if holding.theory < 0:
            return muted(self.glyphs.unknown)
        near = abs(holding.most - holding.theory) <= TOLERANCE * holding.theory
        return ink(
            self.glyphs.passed if near else self.glyphs.failed,
            palette.GOOD if near else palette.BAD,
            bold=True,
        )

    def _bar(self, rank: RankMemory, fullest: float, width: int) -> Line:
        """One rank's kinds end to end, each as long as its share of the fullest rank."""
        room = max(1, width - 4 - 10)
        line: Line = [rank_tag(rank.rank, 4)]
        place, sum_so_far = 0, 0.0
        for kind in KINDS:
            sum_so_far += rank.bytes.get(kind, 0.0)
            end = round(sum_so_far / fullest * room) if fullest else 0
            letters = kind[0] * (end - place)
            line.append(ink(letters, palette.ON_COLOUR, on=COLOURS[kind]))
            place = end
        line.append(faint(" " * (room - place)))
        line.append(ink(right(size(rank.total), 10)))
        return line


def _range(holding: Holding) -> str:
    if holding.least == holding.most:
        return size(holding.most)
    return f"{size(holding.least)} - {size(holding.most)}"

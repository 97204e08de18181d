"""The GPU-to-GPU matrix, or on a node without GPUs the loopback and the measured rate of a memory copy."""

from __future__ import annotations

from rich.segment import Segment

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, faint, ink, muted, rank_tag, wrap
from workbench.views.topology import Pair, TopologySnapshot
from workbench.views.units import ranks_text

CELL = 7


class TopologyPane(Pane[TopologySnapshot]):
    """Who reaches whom, over what, and how fast at best."""

    NAME = "topology"
    TITLE = "topology"
    SPAN = 2
    WEIGHT = 10
    MAX_HZ = 1.0

    def lines(self, snapshot: TopologySnapshot, width: int, height: int) -> list[Line]:
        """Return the matrix or the loopback, and below it the rates to hold a collective against."""
        if not snapshot.places:
            self.say("")
            return self.waiting("waiting for the ranks")
        if snapshot.gpus:
            self.say(f"{len(snapshot.gpus)} GPUs")
            lines = [*self._matrix(snapshot), *_words(snapshot, width)]
        else:
            self.say("no GPU")
            lines = self._loopback(snapshot, width)
        if snapshot.memcpy is not None:
            lines.append(
                [muted("memory copy "), ink(f"{snapshot.memcpy:.3g} GB/s", palette.STRONG, bold=True)]
            )
            lines += [[muted(line)] for line in wrap("measured by rank 0, each byte counted once", width)]
        return lines

    def _matrix(self, snapshot: TopologySnapshot) -> list[Line]:
        gpus = [gpu for gpu, _ in snapshot.gpus]
        lines: list[Line] = [[muted("", CELL), *(muted(f"GPU{gpu}", CELL) for gpu in gpus)]]
        for a in gpus:
            row: Line = [muted(f"GPU{a}", CELL)]
            row += [_cell(snapshot.pair(a, b)) if a != b else faint("X", CELL) for b in gpus]
            lines.append(row)
        return lines

    def _loopback(self, snapshot: TopologySnapshot, width: int) -> list[Line]:
        lines: list[Line] = []
        for node in snapshot.nodes:
            here = [place.rank for place in snapshot.places if place.node == node]
            tags = [segment for rank in here[:8] for segment in (rank_tag(rank), ink(" "))]
            lines += [[ink(node, palette.STRONG, bold=True)], [ink("  "), *tags]]
            if len(here) > 8:
                lines.append([muted(f"  ranks {ranks_text(here)}")])
        how = (
            "over the loopback of this node, through its memory"
            if len(snapshot.nodes) == 1
            else "over the network"
        )
        lines += [[muted(line)] for line in wrap(f"no GPU: ranks talk {how}", width)]
        return lines


def _cell(pair: Pair | None) -> Segment:
    if pair is None:
        return faint("?", CELL)
    return ink(pair.name, palette.GOOD if pair.nvlinks else palette.WARN, width=CELL)


def _words(snapshot: TopologySnapshot, width: int) -> list[Line]:
    lines: list[Line] = [[]]
    peaks = sorted({pair.peak for pair in snapshot.pairs if pair.peak is not None})
    if peaks:
        low, high = peaks[0], peaks[-1]
        text = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
        lines.append([muted("peak of a pair, each way "), ink(f"{text} GB/s", palette.STRONG, bold=True)])
    slots = sorted({peak for _, peak in snapshot.gpus if peak is not None})
    if slots:
        lines.append([muted(f"PCIe slot, each way {slots[0]:.4g} GB/s")])
    key = "NVn: n NVLinks; PIX: a PCIe switch; PXB: several; PHB: host bridge; NODE: NUMA node; SYS: across"
    return [*lines, *([faint(line)] for line in wrap(key, width))]

"""Utilisation: node, GPUs and ranks, the CPU of a rank with its recent past."""

from __future__ import annotations

from launcher.events import GpuSample
from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, ink, muted, rank_tag, right
from workbench.views.units import count, size
from workbench.views.utilisation import NodeUse, RankUse, UtilisationSnapshot

FULL = 100.0


class UtilisationPane(Pane[UtilisationSnapshot]):
    """CPU, memory and GPU, a rank and in all."""

    NAME = "utilisation"
    TITLE = "utilisation"
    SHORT = "use"
    WEIGHT = 11
    MAX_HZ = 1.0

    def lines(self, snapshot: UtilisationSnapshot, width: int, height: int) -> list[Line]:
        """Return the nodes, their GPUs, then one line a rank."""
        if not snapshot.nodes:
            self.say("")
            ended = "it ended before its first sample"
            return self.waiting(ended if snapshot.over else "waiting for the first sample")
        if not any(node.gpus for node in snapshot.nodes):
            self.say(snapshot.nodes[0].note or "no GPU")
        else:
            self.say("")
        lines: list[Line] = []
        for node in snapshot.nodes:
            lines.append(self._node(node, width))
            lines += [self._gpu(gpu) for gpu in node.gpus]
        return [*lines, *(self._rank(rank, width) for rank in snapshot.ranks)]

    def _node(self, node: NodeUse, width: int) -> Line:
        load = right(f"{node.cpu_percent:.0f}%", 4)
        facts = f" of {count(node.cores, 'core')}  {size(node.memory_used)}"
        total = f" of {size(node.memory_total)}"
        if len(f"all {load}{facts}{total}") > width:
            total = ""
        return [muted("all "), ink(load, bold=True), muted(f"{facts}{total}")]

    def _gpu(self, gpu: GpuSample) -> Line:
        facts = [f"{gpu.utilisation:.0f}%" if gpu.utilisation is not None else "-"]
        if gpu.memory_used is not None:
            of = f" of {size(gpu.memory_total)}" if gpu.memory_total is not None else ""
            facts.append(f"{size(gpu.memory_used)}{of}")
        if gpu.power_w is not None:
            facts.append(f"{gpu.power_w:.0f} W")
        if gpu.temperature_c is not None:
            facts.append(f"{gpu.temperature_c:.0f} C")
        for name, rate in (
            ("NVLink in", gpu.nvlink_rx_bytes_s),
            ("out", gpu.nvlink_tx_bytes_s),
            ("PCIe in", gpu.pcie_rx_bytes_s),
            ("out", gpu.pcie_tx_bytes_s),
        ):
            if rate is not None:
                facts.append(f"{name} {size(rate)}/s")
        if gpu.note:
            facts.append(gpu.note)
        return [ink(f"gpu{gpu.index} ", palette.ACCENT), ink("  ".join(facts))]

    def _rank(self, rank: RankUse, width: int) -> Line:
        tail = f" {size(rank.rss)}"
        if rank.gpu is not None:
            held = f" {size(rank.gpu_memory)}" if rank.gpu_memory is not None else ""
            tail += f"  gpu{rank.gpu}{held}"
        room = max(0, width - 9 - max(len(tail), 9))
        return [
            rank_tag(rank.rank, 4),
            ink(right(f"{rank.cpu_percent:.0f}%", 4)),
            ink(f" {self._spark(rank.history, room)}", palette.rank_colour(rank.rank)),
            muted(right(tail, max(len(tail), 9))),
        ]

    def _spark(self, history: tuple[float, ...], width: int) -> str:
        """Return the past as one glyph a sample, the newest at the right; a full core is the highest."""
        levels = self.glyphs.spark
        top = max(FULL, *history) if history else FULL
        newest = history[-width:] if width else ()
        text = "".join(levels[min(len(levels) - 1, int(value / top * len(levels)))] for value in newest)
        return " " * (width - len(text)) + text

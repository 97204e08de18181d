"""One pass over a record for the formats that draw: the app's own view models, and memory over time."""

from __future__ import annotations

from typing import Any

from launcher.events import Log, Sample
from workbench.exports.stream import Source
from workbench.views.bandwidth import BandwidthSnapshot, BandwidthView
from workbench.views.base import View
from workbench.views.communication import CommunicationSnapshot, CommunicationView
from workbench.views.gantt import GanttSnapshot, GanttView
from workbench.views.log import LogSnapshot, LogView
from workbench.views.loss import LossSnapshot, LossView
from workbench.views.run import RunSnapshot, RunView
from workbench.views.series import Points, Series
from workbench.views.shards import ShardsSnapshot, ShardsView
from workbench.views.timeline import TimelineSnapshot, TimelineView


class Gathered:
    """What a run came to, for drawing. `memory` is resident MB by rank over seconds."""

    def __init__(self, source: Source) -> None:
        manifest = source.manifest
        self.source = source
        failure = source.result.failure if source.result is not None else None
        self.failing = failure.rank if failure is not None and failure.rank >= 0 else None
        run, gantt, loss = RunView(manifest), GanttView(manifest), LossView(manifest)
        bandwidth, shards = BandwidthView(manifest), ShardsView(manifest)
        timeline, communication, log = TimelineView(manifest), CommunicationView(manifest), LogView(manifest)
        views: list[View[Any]] = [run, gantt, loss, bandwidth, shards, timeline, communication]
        memory: dict[int, Series] = {}
        origin: int | None = None
        for event in source.events():
            origin = event.t if origin is None else origin
            for view in views:
                view.feed(event)
            if isinstance(event, Log) and self.failing in (None, event.rank):
                log.feed(event)
            elif isinstance(event, Sample):
                for rank in event.ranks:
                    series = memory.setdefault(rank.rank, Series())
                    series.add((event.t - origin) / 1e9, rank.rss / 1e6)
        if source.result is not None:
            for view in (*views, log):
                view.finish(source.result)
        self.run: RunSnapshot = run.snapshot()
        self.gantt: GanttSnapshot = gantt.snapshot()
        self.loss: LossSnapshot = loss.snapshot()
        self.bandwidth: BandwidthSnapshot = bandwidth.snapshot()
        self.shards: ShardsSnapshot = shards.snapshot()
        self.timeline: TimelineSnapshot = timeline.snapshot()
        self.communication: CommunicationSnapshot = communication.snapshot()
        self.log: LogSnapshot = log.snapshot()
        self.memory: dict[int, Points] = {rank: memory[rank].points() for rank in sorted(memory)}

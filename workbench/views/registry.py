"""The view models by the names that `LabSpec.panes` uses; each has a pane of the same name."""

from __future__ import annotations

from typing import Any

from workbench.views.bandwidth import BandwidthView
from workbench.views.base import View
from workbench.views.bootstrap import BootstrapView
from workbench.views.buffers import BuffersView
from workbench.views.checks import ChecksView
from workbench.views.communication import CommunicationView
from workbench.views.cube import CubeView
from workbench.views.failure import FailureView
from workbench.views.gantt import GanttView
from workbench.views.log import LogView
from workbench.views.loss import LossView
from workbench.views.memory import MemoryView
from workbench.views.mesh import MeshView
from workbench.views.ranks import RanksView
from workbench.views.shards import ShardsView
from workbench.views.timeline import TimelineView
from workbench.views.topology import TopologyView
from workbench.views.utilisation import UtilisationView

VIEWS: dict[str, type[View[Any]]] = {
    "bandwidth": BandwidthView,
    "bootstrap": BootstrapView,
    "buffers": BuffersView,
    "checks": ChecksView,
    "communication": CommunicationView,
    "cube": CubeView,
    "failure": FailureView,
    "gantt": GanttView,
    "log": LogView,
    "loss": LossView,
    "memory": MemoryView,
    "mesh": MeshView,
    "ranks": RanksView,
    "shards": ShardsView,
    "timeline": TimelineView,
    "topology": TopologyView,
    "utilisation": UtilisationView,
}

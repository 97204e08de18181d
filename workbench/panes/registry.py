"""The panes by the names that `LabSpec.panes` uses: adding a pane is adding its view and its widget here."""

from __future__ import annotations

from typing import Any

from workbench.panes.bandwidth import BandwidthPane
from workbench.panes.base import Pane
from workbench.panes.bootstrap import BootstrapPane
from workbench.panes.buffers import BuffersPane
from workbench.panes.checks import ChecksPane
from workbench.panes.communication import CommunicationPane
from workbench.panes.cube import CubePane
from workbench.panes.failure import FailurePane
from workbench.panes.gantt import GanttPane
from workbench.panes.log import LogPane
from workbench.panes.loss import LossPane
from workbench.panes.memory import MemoryPane
from workbench.panes.mesh import MeshPane
from workbench.panes.ranks import RanksPane
from workbench.panes.shards import ShardsPane
from workbench.panes.timeline import TimelinePane
from workbench.panes.topology import TopologyPane
from workbench.panes.utilisation import UtilisationPane

PANES: dict[str, type[Pane[Any]]] = {
    pane.NAME: pane
    for pane in (
        BandwidthPane,
        BootstrapPane,
        BuffersPane,
        ChecksPane,
        CommunicationPane,
        CubePane,
        FailurePane,
        GanttPane,
        LogPane,
        LossPane,
        MemoryPane,
        MeshPane,
        RanksPane,
        ShardsPane,
        TimelinePane,
        TopologyPane,
        UtilisationPane,
    )
}

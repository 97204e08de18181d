"""The view models by the names that `LabSpec.panes` uses; each has a pane of the same name."""

from __future__ import annotations

from typing import Any

from workbench.views.bandwidth import BandwidthView
from workbench.views.base import View
from workbench.views.checks import ChecksView
from workbench.views.failure import FailureView
from workbench.views.log import LogView
from workbench.views.loss import LossView
from workbench.views.ranks import RanksView
from workbench.views.topology import TopologyView

VIEWS: dict[str, type[View[Any]]] = {
    "loss": LossView,
    "ranks": RanksView,
    "log": LogView,
    "checks": ChecksView,
    "failure": FailureView,
    "bandwidth": BandwidthView,
    "topology": TopologyView,
}

"""What travels through the app: words of the agent, and wishes that a screen leaves to the app."""

from __future__ import annotations

from pathlib import Path

import msgspec
from textual.message import Message

from labs.params import LabSpec
from launcher.client import Lost
from launcher.protocol import Reply
from workbench.session import RunOptions


class AgentSaid(Message):
    """The agent replied, or was lost; posted from the client's reader thread."""

    def __init__(self, reply: Reply | Lost) -> None:
        super().__init__()
        self.reply = reply


class RunWanted(Message):
    """Start this lab with these parameters."""

    def __init__(
        self, spec: LabSpec, params: msgspec.Struct, options: RunOptions, *, guided: bool = False
    ) -> None:
        """`guided` where a step of the guide wants it, so that the run shows the guide beside its panes."""
        super().__init__()
        self.spec = spec
        self.params = params
        self.options = options
        self.guided = guided


class StopWanted(Message):
    """End this run."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id


class ReplayWanted(Message):
    """Open the run screen on this folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


class HistoryWanted(Message):
    """Open the list of all runs."""

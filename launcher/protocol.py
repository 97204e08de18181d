"""The control messages between the workbench and the agent: JSON lines on the agent's stdin and stdout."""

from __future__ import annotations

import signal
from typing import Any, Literal

import msgspec

STOP_SIGNAL = signal.SIGUSR1
"""Sent to an agent by a process that is not its workbench: end the run in progress, and serve on."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="op"):
    """Start a run. The folder exists already and holds its `manifest.json`.

    `entrypoint` is `module:function`; each rank imports it and calls it with `argument` (plain JSON).
    `timeout_s` counts from the moment the agent reads this request; 0 means no limit.
    """

    run_id: str
    folder: str
    entrypoint: str
    argument: dict[str, Any]
    world_size: int
    launcher: Literal["warm", "torchrun"] = "warm"
    command: list[str] = []
    """With launcher `torchrun`: the command as a person would type it, `torchrun` first, which the agent runs
    with its own interpreter; `entrypoint` and `argument` are not used then."""
    environment: dict[str, str] = {}
    timeout_s: float = 0.0
    listen: str = ""
    """Empty: a unix socket. `HOST:PORT`: TCP for ranks on other nodes (port 0: given by the system)."""


class StopRequest(msgspec.Struct, frozen=True, kw_only=True, tag="stop", tag_field="op"):
    """End the run that is in progress: SIGTERM to the ranks, SIGKILL after the grace time.

    `reason` becomes part of the result; `exit_code` is what the run ends with (130, 143, 129).
    """

    run_id: str
    reason: str = "stopped"
    exit_code: int = 130


class DetachRequest(msgspec.Struct, frozen=True, kw_only=True, tag="detach", tag_field="op"):
    """Outlive the end of stdin: finish the run in progress, then leave."""


class QuitRequest(msgspec.Struct, frozen=True, kw_only=True, tag="quit", tag_field="op"):
    """Leave now; a run in progress is stopped first."""


Request = RunRequest | StopRequest | DetachRequest | QuitRequest


class Warm(msgspec.Struct, frozen=True, kw_only=True, tag="warm", tag_field="reply"):
    """torch is loaded in the forkserver: the next run starts fast. `seconds` since the agent began."""

    seconds: float
    torch_version: str = ""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started", tag_field="reply"):
    """The collector listens and the ranks are being started."""

    run_id: str


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished", tag_field="reply"):
    """Every process of the run has ended and `result.json` is written."""

    run_id: str
    exit_code: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field="reply"):
    """A request that cannot be served (another run in progress, unreadable line, folder missing)."""

    message: str
    run_id: str = ""


Reply = Warm | Started | Finished | Refused

encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_reply = msgspec.json.Decoder(Reply).decode

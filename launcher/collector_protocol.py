"""The control messages between the agent and its collector: JSON lines on its stdin and stdout."""

from __future__ import annotations

import msgspec

from launcher.events import Status


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open", tag_field="op"):
    """Begin a run's record. `requested_ns` is when the run was asked for (monotonic clock)."""

    run_id: str
    folder: str
    world_size: int
    listen: str = ""
    requested_ns: int = 0


class Exits(msgspec.Struct, frozen=True, kw_only=True, tag="exits", tag_field="op"):
    """Exit codes of ranks that ended by themselves, as strings to numbers; negative ones are signals."""

    codes: dict[str, int]


class Stacks(msgspec.Struct, frozen=True, kw_only=True, tag="stacks", tag_field="op"):
    """Ask every connected rank where its main thread is."""


class Ending(msgspec.Struct, frozen=True, kw_only=True, tag="ending", tag_field="op"):
    """The run is being ended for this reason: how to seal it, should the agent not come to do so itself."""

    status: Status
    exit_code: int
    reason: str


class Seal(msgspec.Struct, frozen=True, kw_only=True, tag="seal", tag_field="op"):
    """Drain the sockets, write `result.json`, close the record.

    `status` and `exit_code` are given where the launcher ended the run; `timed_out` says by which limit.
    """

    status: Status | None = None
    exit_code: int | None = None
    reason: str = ""
    timed_out: str = ""


Command = Open | Exits | Stacks | Ending | Seal


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag="opened", tag_field="reply"):
    """The socket listens."""

    address: str
    secret: str = ""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused", tag_field="reply"):
    """The record cannot be opened."""

    message: str


class RankFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", tag_field="reply"):
    """A rank reported a failure, or went without a word (rank -1: the disk refused)."""

    rank: int


class Sealed(msgspec.Struct, frozen=True, kw_only=True, tag="sealed", tag_field="reply"):
    """`result.json` is written."""

    exit_code: int
    events: int
    dropped: int


Answer = Opened | Refused | RankFailed | Sealed

encode = msgspec.json.Encoder().encode
decode_command = msgspec.json.Decoder(Command).decode
decode_answer = msgspec.json.Decoder(Answer).decode

"""What is known of a run that may not have ended well: the facts from which `launcher.blame` tells why.

Times are monotonic nanoseconds of one node. `launcher.verdict` gathers most of it from the events; how
processes ended, and when connections did, comes from the launcher and the collector.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from launcher.events import Failure, Phase

LEFT_WITH_COLLECTOR = 77
"""Exit code of a rank that found its collector gone (`launcher.emitter`)."""
ORPHANED = 78
"""Exit code of a rank that found its parent gone (`launcher.lifeline`)."""

_TIMED_OUT = re.compile(r"timed? ?out|timeout|watchdog caught", re.IGNORECASE)
_LOST_PEER = re.compile(
    r"connection (was )?(closed|reset|refused|aborted)|broken ?pipe|socket closed|end of file|"
    r"remote process exited|no(t| longer) connected|lost a peer|ncclremoteerror|recvvalue failed",
    re.IGNORECASE,
)


class Evidence(msgspec.Struct, kw_only=True):
    """The facts of one run."""

    world_size: int
    failures: list[Failure] = []
    """Failure events in the order of their arrival."""
    vanished: dict[int, int] = {}
    """Ranks whose connection ended without `end` or `failure`, and when."""
    exit_codes: dict[int, int] = {}
    """Exit codes by rank; negative ones are signals. Ranks that the launcher itself ended are absent."""
    ended: set[int] = set()
    """Ranks that sent `end`."""
    waiting: dict[int, Phase] = {}
    """The collective that each rank was still pending in."""
    sequence: dict[tuple[int, str], int] = {}
    """The last collective (number) that each rank came back from in each group."""
    members: dict[str, list[int]] = {}
    """Ranks that ever showed a span, or waited, in a group."""
    stacks: dict[int, str] = {}
    """Stacks that ranks sent when they were asked."""
    stderr: dict[int, list[str]] = {}
    """The last lines that ranks printed there."""
    connected: set[int] = set()
    """Ranks that ever sent an event."""
    timed_out: str = ""
    """The launcher's time limit in words, where it passed."""
    agent_lost: bool = False
    disk: str = ""
    """The error of the record's disk, where it refused."""
    environment: str = ""
    """Why the launcher itself could not go on, in words."""


@dataclass(frozen=True)
class Wait:
    """A collective that a rank has entered and not come back from; `seq` -1: a send, a recv, or unknown."""

    name: str
    group: str
    seq: int

    def __str__(self) -> str:
        """`all_reduce number 4 of group world`."""
        return collective_text(self.name, self.group, self.seq)


def collective_text(name: str, group: str, seq: int) -> str:
    """Say which collective: `all_reduce number 4 of group world`, as much of it as is known."""
    if not name:
        return ""
    number = f" number {seq}" if seq >= 0 else ""
    return f"{name}{number} of group {group}" if group else f"{name}{number}"


def ranks_text(ranks: Sequence[int]) -> str:
    """Say `rank 1`, or `ranks 0, 2 and 3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def is_victim(failure: Failure) -> bool:
    """Whether the rank only noticed that another one failed or never arrived."""
    if failure.victim:
        return True
    if failure.kind not in ("exception", "timeout") or not failure.collective:
        return False
    return waited_in_vain(failure) or bool(_LOST_PEER.search(failure.message))


def waited_in_vain(failure: Failure) -> bool:
    """Whether it is a collective's timeout, and not a lost connection."""
    return failure.kind == "timeout" or bool(_TIMED_OUT.search(failure.message))

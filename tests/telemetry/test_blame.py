"""The rank that failed first is named, whatever the order in which ranks complain."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.blame import SERVER_GONE, first_failure
from launcher.events import Failure, FailureKind, Phase
from launcher.evidence import Evidence, is_victim
from launcher.rundir import FailureResult

MS = 1_000_000


def failure(
    rank: int,
    at_ms: float,
    message: str = "ValueError: wrong",
    *,
    kind: FailureKind = "exception",
    victim: bool = False,
    seq: int = -1,
) -> Failure:
    """A failure event; with `seq` it happened in that all-reduce of the world."""
    name, group = ("all_reduce", "world") if seq >= 0 else ("", "")
    return Failure(
        t=int(at_ms * MS),
        rank=rank,
        kind=kind,
        message=message,
        traceback=f"traceback of {rank}",
        victim=victim,
        collective=name,
        group=group,
        seq=seq,
    )


def lost_peer(rank: int, at_ms: float, seq: int = 3) -> Failure:
    """What a rank reports that notices another one's end."""
    return failure(rank, at_ms, "Connection closed by peer [127.0.0.1]:4711", victim=True, seq=seq)


def in_vain(rank: int, at_ms: float, seq: int = 3) -> Failure:
    """What a rank reports whose collective timed out."""
    return failure(rank, at_ms, "Timed out waiting 15000ms", kind="timeout", victim=True, seq=seq)


def waiting(rank: int, seq: int, name: str = "all_reduce", group: str = "world") -> Phase:
    """A rank that waits in a collective."""
    return Phase(t=0, rank=rank, phase="waiting", name=name, group=group, seq=seq)


def evidence(world_size: int = 3, **facts: Any) -> Evidence:
    """Evidence of a run in which every rank had connected."""
    return Evidence(world_size=world_size, connected=set(range(world_size)), **facts)


def found(facts: Evidence) -> FailureResult:
    """The failure that must be there."""
    result = first_failure(facts)
    assert result is not None
    return result


CASES: dict[str, tuple[Evidence, int, str, list[int]]] = {
    "a rank raises, the others lose it": (
        evidence(failures=[lost_peer(0, 12), failure(1, 10), lost_peer(2, 13)]),
        1,
        "exception",
        [0, 2],
    ),
    "its own exception arrives after those of its victims": (
        evidence(failures=[lost_peer(0, 9), failure(1, 10)]),
        1,
        "exception",
        [0],
    ),
    "two raise: the earlier": (
        evidence(failures=[failure(2, 30), failure(0, 20)]),
        0,
        "exception",
        [2],
    ),
    "the launcher ends the others a second later": (
        evidence(failures=[failure(1, 10)], vanished={0: 1100 * MS, 2: 1101 * MS}),
        1,
        "exception",
        [],
    ),
    "killed, and noticed by its victims before": (
        evidence(failures=[lost_peer(0, 99), lost_peer(1, 98)], vanished={2: 110 * MS}, exit_codes={2: -9}),
        2,
        "signal",
        [0, 1],
    ),
    "killed before its first event was sent, the others ended by the launcher": (
        evidence(vanished={0: 1100 * MS, 1: 1101 * MS}, exit_codes={2: -9}),
        2,
        "signal",
        [],
    ),
    "killed, and the victims do not call themselves so": (
        evidence(
            failures=[failure(0, 99, "RuntimeError: Connection reset by peer", seq=2)],
            vanished={2: 110 * MS},
            exit_codes={2: -9},
        ),
        2,
        "signal",
        [0],
    ),
    "killed, then another raises because of it": (
        evidence(failures=[failure(0, 300)], vanished={1: 100 * MS}, exit_codes={1: -11}),
        1,
        "signal",
        [0],
    ),
    "killed long after another raised": (
        evidence(failures=[failure(0, 100)], vanished={1: 130 * MS}, exit_codes={1: -9}),
        0,
        "exception",
        [],
    ),
    "all vanish at once, one by a signal": (
        evidence(vanished={0: 100 * MS, 1: 101 * MS, 2: 103 * MS}, exit_codes={1: -6}),
        1,
        "signal",
        [],
    ),
    "early exit, said": (
        evidence(failures=[failure(1, 10, "sys.exit(0)", kind="early_exit"), lost_peer(0, 11)]),
        1,
        "early_exit",
        [0],
    ),
    "early exit without a word": (
        evidence(vanished={1: 10 * MS}, exit_codes={1: 0}, failures=[lost_peer(0, 9)]),
        1,
        "early_exit",
        [0],
    ),
    "hang: the others run into their timeout": (
        evidence(
            failures=[in_vain(0, 100), in_vain(2, 101)],
            sequence={(0, "world"): 2, (1, "world"): 2, (2, "world"): 2},
        ),
        1,
        "hang",
        [0, 2],
    ),
    "hang: the launcher then ends the one that hangs, at once": (
        evidence(failures=[in_vain(0, 100), in_vain(2, 101)], vanished={1: 120 * MS}),
        1,
        "hang",
        [0, 2],
    ),
    "hang: only one has noticed yet, the others wait": (
        evidence(failures=[in_vain(0, 100)], waiting={2: waiting(2, 3)}),
        1,
        "hang",
        [0, 2],
    ),
    "hang: the one that hangs is not in the group of those that wait, who wait for one that waits": (
        evidence(
            world_size=4,
            failures=[in_vain(2, 100), in_vain(3, 100)],
            waiting={0: waiting(0, 7, group="tp")},
            members={"tp": [0, 1], "world": [0, 1, 2, 3]},
        ),
        1,
        "hang",
        [0, 2, 3],
    ),
    "hang: a rank has ended without that collective": (
        evidence(
            failures=[in_vain(0, 100), in_vain(2, 100)],
            ended={1},
            sequence={(1, "world"): 2, (0, "world"): 2},
        ),
        1,
        "hang",
        [0, 2],
    ),
    "hang: all wait, one elsewhere": (
        evidence(failures=[in_vain(0, 100), in_vain(2, 100)], waiting={1: waiting(1, 1, "broadcast", "tp")}),
        1,
        "hang",
        [0, 2],
    ),
    "mismatch": (
        evidence(
            failures=[
                failure(2, 11, "Detected mismatch between collectives", kind="mismatch", seq=3),
                failure(0, 10, "Detected mismatch between collectives", kind="mismatch", seq=3),
                lost_peer(1, 12),
            ]
        ),
        0,
        "mismatch",
        [1, 2],
    ),
    "the time limit, one rank does not wait": (
        evidence(timed_out="the time limit of 3 s has passed", waiting={0: waiting(0, 3), 2: waiting(2, 3)}),
        1,
        "timeout",
        [0, 2],
    ),
    "the time limit, nobody waits": (
        evidence(timed_out="the time limit of 3 s has passed", ended={0}, vanished={1: 1, 2: 2}),
        1,
        "timeout",
        [],
    ),
    "the time limit just after a failure": (
        evidence(timed_out="the time limit of 3 s has passed", failures=[failure(2, 10)]),
        2,
        "exception",
        [],
    ),
    "the agent was killed": (
        evidence(agent_lost=True, vanished={0: 1, 1: 2, 2: 3}),
        -1,
        "signal",
        [0, 1, 2],
    ),
    "the agent was killed after a rank had failed": (
        evidence(agent_lost=True, vanished={0: 1, 1: 2}, failures=[failure(2, 0)]),
        2,
        "exception",
        [],
    ),
    "the forkserver was killed": (
        evidence(exit_codes={1: SERVER_GONE}, vanished={1: 1, 0: 2}, failures=[lost_peer(2, 0)]),
        -1,
        "signal",
        [0, 1, 2],
    ),
    "the forkserver was killed after a rank had failed": (
        evidence(exit_codes=dict.fromkeys(range(3), SERVER_GONE), failures=[failure(2, 0)]),
        2,
        "exception",
        [],
    ),
    "every rank left by itself with -1, which is 255": (
        evidence(exit_codes=dict.fromkeys(range(3), 255), vanished={1: 1, 0: 2, 2: 3}),
        1,
        "early_exit",
        [],
    ),
    "the disk is full": (
        evidence(disk="No space left on device", failures=[failure(0, 10)]),
        -1,
        "environment",
        [],
    ),
    "the recorder is gone": (
        evidence(environment="the recorder ended", exit_codes={0: 77, 1: 77, 2: 77}),
        -1,
        "environment",
        [],
    ),
    "exit codes alone": (
        Evidence(world_size=3, exit_codes={2: 1, 0: 0}),
        2,
        "early_exit",
        [],
    ),
    "only a victim spoke": (
        evidence(failures=[lost_peer(1, 10)]),
        1,
        "exception",
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_failure(case: str) -> None:
    facts, rank, kind, victims = CASES[case]
    result = found(facts)
    assert (result.rank, result.kind, result.victims) == (rank, kind, victims)


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_arrival_does_not_matter(case: str) -> None:
    facts, rank, kind, _ = CASES[case]
    facts.failures = facts.failures[::-1]
    result = found(facts)
    assert (result.rank, result.kind) == (rank, kind)


def test_nothing_failed() -> None:
    assert first_failure(evidence(ended={0, 1, 2})) is None
    assert first_failure(evidence(ended={0, 1, 2}, exit_codes={0: 0, 1: 0, 2: 0})) is None
    assert first_failure(evidence(ended={0, 1, 2}, agent_lost=True)) is None


def test_the_traceback_is_that_of_the_first_and_once() -> None:
    result = found(evidence(failures=[lost_peer(0, 1), failure(1, 2)]))
    assert result.traceback == "traceback of 1"


def test_a_hang_is_told_with_its_stack_and_place() -> None:
    facts = evidence(
        failures=[in_vain(0, 100), in_vain(2, 101)],
        sequence={(1, "world"): 1},
        stacks={1: '  File "lab.py", line 7, in run\n'},
    )
    result = found(facts)
    assert "lab.py" in result.traceback
    assert result.collective == "all_reduce number 3 of group world"
    assert result.message == (
        "rank 1 never arrived at all_reduce number 3 of group world; ranks 0 and 2 waited there; "
        "the last one that rank 1 came to was number 1"
    )


def test_a_mismatch_names_both_ranks() -> None:
    result = found(CASES["mismatch"][0])
    assert "ranks 0 and 2" in result.message


def test_a_deadlock_says_who_waits_where() -> None:
    result = found(CASES["hang: all wait, one elsewhere"][0])
    assert "rank 1 in broadcast number 1 of group tp" in result.message
    assert "ranks 0 and 2 in all_reduce number 3 of group world" in result.message


def test_a_signal_is_named_and_one_without_a_name_too() -> None:
    killed = evidence(vanished={1: 5}, exit_codes={1: -9})
    assert found(killed).message == "rank 1 was killed by SIGKILL"
    assert "memory" in found(killed).advice
    assert "signal 99" in found(evidence(vanished={1: 5}, exit_codes={1: -99})).message


def test_what_a_silent_rank_printed_tells_why() -> None:
    printed = ["hello", "Traceback (most recent call last):", '  File "x.py"', "ImportError: no torch", ""]
    result = found(Evidence(world_size=2, exit_codes={1: 1}, stderr={1: printed}))
    assert (result.rank, result.kind) == (1, "exception")
    assert result.message.endswith("before it could say anything: ImportError: no torch")
    assert result.traceback.startswith("Traceback")


def test_faulthandler_output_is_shown_for_a_crash() -> None:
    printed = ["Fatal Python error: Segmentation fault", "Current thread 0x1:", '  File "x.py"']
    result = found(evidence(vanished={1: 5}, exit_codes={1: -11}, stderr={1: printed}))
    assert result.kind == "signal"
    assert "Segmentation fault" in result.traceback


@pytest.mark.parametrize(
    ("message", "seq", "victim"),
    [
        ("Connection closed by peer", 3, True),
        ("[/gloo/transport/tcp/pair.cc:553] Connection reset by peer", 3, True),
        ("Timed out waiting 1000ms for recv operation to complete", 3, True),
        ("Broken pipe", 3, True),
        ("Connection refused", -1, False),  # outside of a collective it is the rank's own
        ("shapes do not match", 3, False),
    ],
)
def test_who_is_a_victim_without_saying_so(message: str, seq: int, victim: bool) -> None:
    assert is_victim(failure(0, 1, message, seq=seq)) is victim

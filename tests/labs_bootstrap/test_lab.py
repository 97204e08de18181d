"""The bootstrap lab on real ranks: every stage right, every failure named, and red where it is broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labs.bootstrap import faults, theory
from launcher.events import Log, Scalar, Span
from tests.labs_bootstrap import mutants
from tests.ranks import Run, run_lab

QUICK: dict[str, Any] = {"sleep": 0.05, "jobs": 4, "fault_timeout": 0.5}


@pytest.fixture(scope="module")
def whole() -> Run:
    """One run of the whole lab on three ranks, looked at by many tests."""
    return run_lab("bootstrap", 3, QUICK)


def _lines(run: Run, rank: int) -> list[str]:
    return [log.line for log in run.of(Log) if log.rank == rank]


class TestWholeLab:
    def test_passes_with_every_stage_and_every_fault_checked(self, whole: Run) -> None:
        assert not whole.failures
        assert whole.red == set()
        assert {f"a group started by {way}" for way in theory.WAYS} <= set(whole.checks)
        named = {name for name in whole.checks if name.endswith(": named")}
        assert named == {
            "a rank is missing: named",
            "the port is in use: named",
            "the world size is too large: named",
            "the world size is too small: named",
        }

    def test_each_stage_of_each_way_is_timed_on_each_rank(self, whole: Run) -> None:
        told = {(s.name, s.rank) for s in whole.of(Scalar) if s.name.startswith("init/")}
        assert told == {
            (f"init/{way}/{stage}", rank)
            for way in theory.WAYS
            for stage in theory.STAGES
            for rank in range(3)
        }

    def test_the_store_is_seen_at_work(self, whole: Run) -> None:
        names = {span.name for span in whole.of(Span) if span.name.startswith("store ")}
        assert {"store set hello/0", "store wait hello/1", "store get hello/2", "store add counter"} <= names
        assert "5 keys: counter, go, hello/0, hello/1, hello/2" in _lines(whole, 0)

    def test_every_rank_says_who_it_is(self, whole: Run) -> None:
        for rank in range(3):
            assert any(line.startswith(f"RANK={rank} ") for line in _lines(whole, rank))
            assert any(line.startswith(f"rank {rank} of 3 on ") for line in _lines(whole, rank))

    def test_failures_are_told_in_words(self, whole: Run) -> None:
        text = "\n".join(_lines(whole, 0))
        assert "a rank is missing: to blame: rank 2" in text
        assert "the port is in use: to blame: port " in text
        assert "the world size is too large: to blame: rank 3" in text
        assert "the world size is too small: to blame: rank 2" in text

    def test_the_variables_of_the_launcher_are_put_back(self, whole: Run) -> None:
        # The group joined again at the end, in the launcher's store: the worker's own check went through it.
        assert whole.checks["same collectives on every rank"].passed

    @pytest.mark.parametrize("way", theory.WAYS)
    def test_one_way_alone_without_faults(self, way: str) -> None:
        run = run_lab("bootstrap", 2, {**QUICK, "init": way, "faults": False})
        assert not run.failures
        assert run.red == set()
        assert {name for name in run.checks if name.startswith("a group")} == {f"a group started by {way}"}
        assert not any("named" in name for name in run.checks)

    def test_leaves_no_meeting_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = run_lab("bootstrap", 2, {**QUICK, "init": "file", "faults": False}, broken=_Here(tmp_path))
        assert not run.failures
        assert list(tmp_path.iterdir()) == []


class _Here:
    """Makes a folder the place of temporary files, in each rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> None:
        import tempfile

        os.environ["TMPDIR"] = str(self.folder)
        tempfile.tempdir = str(self.folder)


BEGINNING = {
    "sleeps in turn take as long as all together",
    "sleeps in threads run at once",
    "sleeps in processes run at once",
    "ranks are numbered once each, node by node",
    "a group started by store",
}
STORE = {
    "store: get returns what another rank set",
    "store: the counter counts every rank once",
    "store: wait blocks until the key is set",
}
FAULTS = {
    f"{name}: {what}"
    for name in (
        "a rank is missing",
        "the port is in use",
        "the world size is too large",
        "the world size is too small",
    )
    for what in ("named", "noticed in time")
}


class TestBroken:
    """Each break turns the checks meant for it red, and no other; it is a result, not an exception."""

    @pytest.mark.parametrize(
        ("broken", "params", "checks"),
        [
            (mutants.wrong_beginning, {"sleep": 0.5, "jobs": 4}, BEGINNING),
            (mutants.store_that_lies, {}, STORE),
            (mutants.nothing_goes_wrong, {"faults": True}, FAULTS),
        ],
    )
    def test_is_noticed(self, broken: Callable[[], None], params: dict[str, Any], checks: set[str]) -> None:
        run = run_lab("bootstrap", 3, {**QUICK, "init": "store", "faults": False, **params}, broken=broken)
        assert not run.failures
        assert run.red == checks


class TestWarnings:
    def test_torch_s_own_of_a_timeout_go_and_all_else_stays(self, capfd: pytest.CaptureFixture[str]) -> None:
        with faults.without_wait_warnings():
            os.write(2, b"[W1 socket.cpp] [c10d] waitForInput: timed out after 500ms\n[W2 other.cpp] kept\n")
        assert capfd.readouterr().err == "[W2 other.cpp] kept\n"

"""The doctor's findings on machines that lack something: each says what to do."""

from __future__ import annotations

import resource
import shutil
import socket
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.nvml import Gpus
from tests.telemetry.nvml_standin import Card, Nvml
from tests.terminal import Terminal
from workbench import doctor
from workbench.machine import Gpu, Machine

MACHINE = Machine(hostname="n", system="s", cores=2, memory=3 << 30, gpu_note="no GPU", torch="2.13.0")
Usage = namedtuple("Usage", "total used free")


def test_no_torch() -> None:
    finding = doctor._torch(msgspec.structs.replace(MACHINE, torch=""))
    assert finding.advice == f"install it: {sys.executable} -m pip install torch"
    assert doctor._torch(MACHINE).value == "2.13.0, built for CPUs"


def test_every_gpu_has_a_line() -> None:
    gpus = (Gpu(index=0, name="H", memory=1 << 30), Gpu(index=1, name="H", memory=1 << 29))
    findings = doctor._gpus(msgspec.structs.replace(MACHINE, gpus=gpus))
    assert [(found.name, found.value) for found in findings] == [
        ("GPU 0", "H, 1.07 GB"),
        ("GPU 1", "H, 537 MB"),
    ]
    assert [found.value for found in doctor._gpus(MACHINE)] == ["no GPU"]


def test_localhost_that_cannot_be_looked_up() -> None:
    def fails(*_arguments: Any, **_options: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    def only_ipv6(*_arguments: Any, **_options: Any) -> list[Any]:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))]

    for look_up in (fails, only_ipv6):
        finding = doctor._loopback(look_up)
        assert "127.0.0.1 localhost" in finding.advice
    assert not doctor._loopback(socket.getaddrinfo).advice


def test_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, 4096))
    finding = doctor._files()
    assert finding.value == "256 (may be raised to 4096)"
    assert finding.advice == "raise it: ulimit -n 1024"
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, 512))
    assert "--ulimit nofile=1024" in doctor._files().advice


def test_a_small_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: Usage(64 << 20, 32 << 20, 32 << 20))
    (finding,) = doctor._shm(tmp_path)
    assert finding.value == "33.6 MB free of 67.1 MB"
    assert "--shm-size=1g" in finding.advice
    full = doctor._folder("runs", tmp_path, "give another")
    assert full.advice == "free space there, or give another"


def test_no_shared_memory_folder_is_no_problem(tmp_path: Path) -> None:
    assert doctor._shm(tmp_path / "none") == []


def test_the_page_counts_the_problems() -> None:
    good = doctor.Finding(name="a", value="1")
    bad = doctor.Finding(name="bb", value="2", advice="mend it")
    assert doctor.page([good]).splitlines() == ["ok  a  1", "", "no problem found"]
    assert doctor.page([good, bad]).splitlines() == [
        "ok  a   1",
        "!!  bb  2",
        "        mend it",
        "",
        "1 to mend, marked !!",
    ]


class TestGpuLinks:
    def test_a_card_alone_has_none(self) -> None:
        assert doctor._links(Gpus(Nvml(Card("GPU-0"))).links(), {}) == []

    def test_pairs_by_what_connects_them(self) -> None:
        cards = [Card(f"GPU-{index}", nvlinked=index < 2, bridge=40) for index in range(3)]
        (finding,) = doctor._links(Gpus(Nvml(*cards)).links(), {})
        assert (finding.value, finding.advice) == ("NVLink (0-1), one NUMA node (0-2, 1-2)", "")
        (finding,) = doctor._links(Gpus(Nvml(*cards)).links(), {"NCCL_P2P_DISABLE": "1"})
        assert "unset it" in finding.advice

    def test_cards_that_cannot_reach_each_other(self) -> None:
        cards = [Card("GPU-0"), Card("GPU-1", direct=False), Card("GPU-2", bridge=None)]
        (finding,) = doctor._links(Gpus(Nvml(*cards)).links(), {})
        assert finding.value == "the link between CPU sockets (0-1), not told (0-2, 1-2)"
        assert finding.advice.startswith("no direct access between 0-1, 1-2")


def test_an_own_name_that_cannot_be_looked_up() -> None:
    def fails(*_arguments: Any, **_options: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    assert doctor._own_name("node7", fails).advice == "add it to /etc/hosts: 127.0.1.1 node7"


def test_a_folder_too_deep_for_a_socket() -> None:
    assert not doctor._sockets(Path("/tmp")).advice
    assert "set TMPDIR" in doctor._sockets(Path("/" + "a" * 90)).advice


@pytest.mark.parametrize(
    ("term", "columns", "value", "advice"),
    [
        ("xterm-256color", 40, "40x10, xterm-256color, 256 colours", "make it 80x24"),
        ("xterm", 100, "100x30, xterm, 16 colours", ""),
        ("dumb", 100, "TERM=dumb", "set TERM to what yours is"),
    ],
)
def test_a_terminal_is_told_as_it_is_though_the_page_goes_into_a_pipe(
    term: str, columns: int, value: str, advice: str
) -> None:
    """The size is that of the terminal, not of the pipe, which has none."""
    code = "from workbench import doctor; f = doctor._terminal(); print(f.value, '/', f.advice)"
    command = ["sh", "-c", f'{sys.executable} -c "{code}" | cat']
    environment = {"TERM": term, "COLORTERM": "", "NO_COLOR": ""}
    with Terminal(command, columns, 10 if columns == 40 else 30, environment) as terminal:
        terminal.until(value, 30)
        terminal.until(f"/ {advice}", 30)


def test_an_encoding_without_the_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda _: "ANSI_X3.4-1968")
    assert "--ascii" in doctor._locale().advice


def test_settings_that_do_not_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORLDSIZE_CONFIG_DIR", str(tmp_path))
    assert doctor._settings().value == f"{tmp_path}/config.toml: nothing set"
    (tmp_path / "config.toml").write_text("mouse = 1\n")
    finding = doctor._settings()
    assert "line 1" in finding.value
    assert finding.advice


def test_the_folder_of_runs_is_that_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORLDSIZE_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("WORLDSIZE_RUNS_DIR", raising=False)
    (tmp_path / "config.toml").write_text('runs_dir = "/proc/none"\nquiet = true\n')
    found = {finding.name: finding for finding in doctor.examine("")}
    assert found["settings"].value.endswith(": runs_dir = /proc/none, quiet = true")
    assert found["runs"].value.startswith("/proc/none: ")
    assert found["runs"].advice

"""`workbench --doctor`: what this machine has and, for each thing that is wrong, what to do about it.

Each check is a function that returns one finding; none of them changes anything or loads torch.
"""

from __future__ import annotations

import locale
import os
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from labs.params import ParameterError
from launcher.channel import LONGEST_SOCKET, SOCKET_PATH_BYTES, temporary_root
from launcher.nvml import Gpus, Link
from workbench import settings
from workbench.console import SET_TERM, is_terminal, say
from workbench.course import data_dir
from workbench.machine import Machine, backend_for, probe
from workbench.session import runs_dir_of
from workbench.views.units import size

MIN_PYTHON = (3, 11)
MIN_FILES = 1024
MIN_SHM = 64 << 20
MIN_COLUMNS, MIN_ROWS = 80, 24
MIN_FREE = 256 << 20
MAX_NAMES = 4
MORE_COLOURS = "TERM=xterm-256color, inside tmux tmux-256color, gives shades if the terminal can"
OK, PROBLEM = 0, 2


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the page; `advice` is empty where all is well."""

    name: str
    value: str
    advice: str = ""


def show(runs_dir: str, as_json: bool) -> int:
    """Print the page; returns 2 where something must be mended before a run can work, else 0."""
    findings = examine(runs_dir)
    if as_json:
        say(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        say(page(findings))
    return PROBLEM if any(finding.advice for finding in findings) else OK


def examine(runs_dir: str) -> list[Finding]:
    """Look at everything."""
    machine = probe()
    return [
        _python(),
        _torch(machine),
        *_gpus(machine),
        *_links(Gpus().links(), os.environ),
        _backend(machine),
        Finding(name="cores", value=str(machine.cores)),
        Finding(name="memory", value=size(machine.memory)),
        *_shm(Path("/dev/shm")),
        _loopback(socket.getaddrinfo),
        _own_name(socket.gethostname(), socket.getaddrinfo),
        _files(),
        _sockets(Path(temporary_root())),
        _terminal(),
        _locale(),
        _settings(),
        _folder(
            "runs",
            runs_dir_of(runs_dir or _runs_dir_set()),
            "give another: --runs-dir DIR or WORLDSIZE_RUNS_DIR",
        ),
        _folder("progress", data_dir(), "set WORLDSIZE_DATA_DIR to a folder that can be written"),
        _folder("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder that can be written"),
    ]


def page(findings: list[Finding]) -> str:
    """The findings as text; those with a problem are marked and followed by what to do."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{'!!' if finding.advice else 'ok'}  {finding.name:<{width}}  {finding.value}")
        if finding.advice:
            lines.append(f"    {'':<{width}}  {finding.advice}")
    problems = sum(bool(finding.advice) for finding in findings)
    last = "no problem found" if not problems else f"{problems} to mend, marked !!"
    return "\n".join([*lines, "", last])


def _python() -> Finding:
    version = f"{sys.version.split()[0]} ({sys.executable})"
    old = sys.version_info < MIN_PYTHON
    return Finding(name="python", value=version, advice="install Python 3.11 or newer" if old else "")


def _torch(machine: Machine) -> Finding:
    if not machine.torch:
        advice = f"install it: {sys.executable} -m pip install torch"
        return Finding(name="torch", value="not installed", advice=advice)
    build = f"built for CUDA {machine.torch_cuda}" if machine.torch_cuda else "built for CPUs"
    return Finding(name="torch", value=f"{machine.torch}, {build}")


def _gpus(machine: Machine) -> list[Finding]:
    if not machine.gpus:
        return [Finding(name="GPUs", value=machine.gpu_note)]
    return [Finding(name=f"GPU {gpu.index}", value=f"{gpu.name}, {size(gpu.memory)}") for gpu in machine.gpus]


def _links(links: list[Link], environment: Mapping[str, str]) -> list[Finding]:
    """How the GPUs reach each other: pairs by what connects them; NCCL goes by host memory without P2P."""
    if not links:
        return []
    ways: dict[str, list[str]] = {}
    for link in links:
        ways.setdefault(link.way or "not told", []).append(f"{link.first}-{link.second}")
    parts = [f"{way} ({'all pairs' if len(ways) == 1 else _some(pairs)})" for way, pairs in ways.items()]
    blocked = [f"{link.first}-{link.second}" for link in links if link.direct is False]
    advice = ""
    if blocked:
        advice = f"no direct access between {_some(blocked)}: turn off ACS/IOMMU for them, else NCCL is slow"
    if environment.get("NCCL_P2P_DISABLE") == "1":
        advice = "NCCL_P2P_DISABLE=1 keeps NCCL from using the links: unset it"
    return [Finding(name="GPU links", value=", ".join(parts), advice=advice)]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (
        f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    )


def _backend(machine: Machine) -> Finding:
    return Finding(name="backend", value=backend_for(machine, max(1, len(machine.gpus)))[2])


def _shm(folder: Path) -> list[Finding]:
    """Shared memory, which NCCL and DataLoader workers use; macOS has no such folder."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return []
    advice = f"make it larger: docker run --shm-size=1g, or remount {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return [Finding(name=str(folder), value="cannot be written", advice=f"chmod 1777 {folder}, as root")]
    small = usage.free < MIN_SHM
    value = f"{size(usage.free)} free of {size(usage.total)}"
    return [Finding(name=str(folder), value=value, advice=advice if small else "")]


def _loopback(look_up: Callable[..., Any]) -> Finding:
    """Whether this machine's own name can be looked up; gloo and the rendezvous use addresses."""
    advice = "add the name to /etc/hosts: 127.0.0.1 localhost"
    try:
        found = sorted({str(entry[4][0]) for entry in look_up("localhost", None, type=socket.SOCK_STREAM)})
    except OSError as error:
        return Finding(name="localhost", value=f"cannot be looked up: {error}", advice=advice)
    if "127.0.0.1" not in found:
        return Finding(name="localhost", value=", ".join(found), advice=advice)
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as error:
        blocked = "let processes listen on 127.0.0.1: the rendezvous and gloo need it"
        return Finding(name="localhost", value=f"cannot listen on 127.0.0.1: {error}", advice=blocked)
    return Finding(name="localhost", value=", ".join(found))


def _own_name(name: str, look_up: Callable[..., Any]) -> Finding:
    """Whether this machine knows its own name: torch looks it up when it starts a process group."""
    try:
        found = sorted({str(entry[4][0]) for entry in look_up(name, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        advice = f"add it to /etc/hosts: 127.0.1.1 {name}"
        return Finding(name="own name", value=f"{name} cannot be looked up: {error}", advice=advice)
    return Finding(name="own name", value=f"{name}: {', '.join(found)}")


def _sockets(folder: Path) -> Finding:
    """Whether the path of a unix socket in the folder of temporary files fits the kernel's bound."""
    length = len(os.fsencode(folder)) + LONGEST_SOCKET
    advice = f"set TMPDIR to a shorter path: a unix socket's path holds {SOCKET_PATH_BYTES} bytes"
    value = f"paths of {length} bytes in {folder}"
    return Finding(name="unix sockets", value=value, advice=advice if length > SOCKET_PATH_BYTES else "")


def _locale() -> Finding:
    """Whether the terminal's encoding has the characters that panes are drawn with."""
    encoding = locale.getpreferredencoding(False)
    wide = encoding.lower().replace("-", "") == "utf8"
    advice = "" if wide else "set LANG=C.UTF-8, or give --ascii to the app"
    return Finding(name="encoding", value=encoding, advice=advice)


def _settings() -> Finding:
    """Whether the settings file can be read and fits."""
    try:
        found = settings.load()
    except ParameterError as error:
        return Finding(name="settings", value=str(error), advice="mend that line, or remove it")
    values = found.values.items()
    shown = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values}
    said = ", ".join(f"{name} = {value}" for name, value in shown.items())
    return Finding(name="settings", value=f"{found.path}: {said or 'nothing set'}")


def _runs_dir_set() -> str:
    """Where the settings file wants the runs; empty where it says nothing, or cannot be read."""
    try:
        return str(settings.load().values.get("runs_dir", ""))
    except ParameterError:
        return ""


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft != resource.RLIM_INFINITY and soft < MIN_FILES
    value = "no limit" if soft == resource.RLIM_INFINITY else f"{soft} (may be raised to {hard})"
    advice = f"raise it: ulimit -n {MIN_FILES}"
    if hard != resource.RLIM_INFINITY and hard < MIN_FILES:
        advice = f"have the hard limit raised: limits.conf, or docker run --ulimit nofile={MIN_FILES}"
    return Finding(name="open files", value=value, advice=advice if low else "")


def _terminal() -> Finding:
    """What the app would open on; asked of stderr, since the page itself may go into a pipe."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return Finding(name="terminal", value="none here: the app needs one, --run does not")
    if not is_terminal(sys.stderr):
        return Finding(name="terminal", value=f"TERM={os.environ.get('TERM', '')}", advice=SET_TERM)
    columns, rows = os.get_terminal_size(sys.stderr.fileno())
    colours = "no colours (NO_COLOR)" if os.environ.get("NO_COLOR") else _colours()
    value = f"{columns}x{rows}, {os.environ.get('TERM')}, {colours}"
    small = columns < MIN_COLUMNS or rows < MIN_ROWS
    advice = f"make it {MIN_COLUMNS}x{MIN_ROWS} or larger for the app" if small else ""
    return Finding(name="terminal", value=value, advice=advice)


def _colours() -> str:
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return "16 million colours"
    return "256 colours" if "256" in os.environ.get("TERM", "") else f"16 colours; {MORE_COLOURS}"


def _folder(name: str, folder: Path, advice: str) -> Finding:
    """Whether a folder, or the nearest one above it that exists, takes a file, and has space."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".worldsize-doctor-"):
            pass
        free = shutil.disk_usage(existing).free
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(name=name, value=f"{folder}: {reason}", advice=advice)
    full = free < MIN_FREE
    return Finding(
        name=name,
        value=f"{folder}, {size(free)} free",
        advice=f"free space there, or {advice}" if full else "",
    )

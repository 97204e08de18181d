"""Records the small runs under `tests/data/runs/` anew: `python -m tests.data.record [NAME ...]`.

What belongs to one machine (paths, host name) is taken out, so that the records are the same story anywhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from launcher.events import Hello, Phase
from launcher.record import Tail
from launcher.rundir import EVENTS, MANIFEST, RESULT, read_manifest, to_json

RUNS = Path(__file__).parent / "runs"
DEADLINE_S = 120.0
KILLED_RANK = 3


def headless(lab: str, *flags: str, runs_dir: Path) -> subprocess.Popen[bytes]:
    """Start a run without the app."""
    command = [
        sys.executable,
        "-m",
        "workbench",
        "--run",
        lab,
        *flags,
        "--quiet",
        "--runs-dir",
        str(runs_dir),
    ]
    return subprocess.Popen(command)


def folder_in(runs_dir: Path, process: subprocess.Popen[bytes]) -> Path:
    """Return the folder of the run that `process` started, as soon as it is there."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        found = [path.parent for path in runs_dir.glob(f"*/{MANIFEST}")]
        if found:
            return found[0]
        time.sleep(0.05)
    raise SystemExit(f"no run began in {runs_dir}")


def kill_a_rank(folder: Path) -> None:
    """SIGKILL to one rank once it has begun its third step."""
    tail = Tail(folder / EVENTS)
    pid = 0
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for event in tail.read():
            if isinstance(event, Hello) and event.rank == KILLED_RANK:
                pid = event.pid
            if isinstance(event, Phase) and event.rank == KILLED_RANK and event.step >= 3:
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.01)
    raise SystemExit(f"rank {KILLED_RANK} did not begin its third step")


def keep(folder: Path, name: str) -> None:
    """Copy what the app reads to `tests/data/runs/NAME`, without the machine's own names."""
    target = RUNS / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    manifest = read_manifest(folder)
    manifest = msgspec.structs.replace(
        manifest, run_id=name, machine={**manifest.machine, "hostname": "node0"}, owner=None
    )
    texts = {MANIFEST: to_json(manifest).decode()}
    for file in (EVENTS, RESULT):
        texts[file] = (folder / file).read_text()
    replacements = {
        f" --runs-dir {folder.parent}": "",
        str(folder): name,
        folder.name: name,
        str(Path(sys.executable).with_name("torchrun")): "torchrun",
        sys.executable: "python",
        f"{Path(__file__).resolve().parents[2]}/": "",
        f"{sys.prefix}/": "",
        f'"{socket.gethostname()}"': '"node0"',
    }
    for file, text in texts.items():
        for old, new in replacements.items():
            text = text.replace(old, new)
        (target / file).write_text(text)


def record(name: str, lab: str, *flags: str, kill: bool = False) -> None:
    """Run a lab and keep its record as `name`."""
    with tempfile.TemporaryDirectory() as temp:
        process = headless(lab, *flags, runs_dir=Path(temp))
        folder = folder_in(Path(temp), process)
        if kill:
            kill_a_rank(folder)
        process.wait(DEADLINE_S)
        keep(folder, name)


STORIES: dict[str, tuple[str, ...]] = {
    "dp": ("dp", "--nproc", "8", "--steps", "12"),
    "dp-killed": ("dp", "--nproc", "8", "--steps", "12"),
    "collectives": ("collectives", "--nproc", "4"),
    "collectives-ring": ("collectives", "--nproc", "8", "--algorithm", "ring", "--op", "all_reduce"),
    "bootstrap": ("bootstrap", "--nproc", "4", "--sleep", "0.1"),
    "bandwidth": ("bandwidth", "--nproc", "4", "-b", "1K", "-e", "4M", "-f", "4"),
    "mesh": ("mesh", "--nproc", "8"),
    "zero": ("zero", "--nproc", "4", "--stage", "hsdp", "--steps", "2", "--accumulate", "2"),
    "pp": ("pp", "--nproc", "4", "--steps", "3"),
    "3d": ("3d", "--steps", "2"),
}
"""What is recorded under which name: the lab and its flags."""


def main() -> None:
    """Record the runs that the words name, or all of them."""
    for name in sys.argv[1:] or STORIES:
        record(name, *STORIES[name], kill=name.endswith("-killed"))


if __name__ == "__main__":
    main()

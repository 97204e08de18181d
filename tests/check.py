"""Every check and test in one command, from nothing but Python and pip: `python3 tests/check.py`.

Makes `.venv` in the repository where it lacks one, installs the package with its development tools, then runs
each step and stops at the first that fails, with its exit code. Words behind the command go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
OLDEST = (3, 11)
USAGE = 2
STEPS = (
    ("ruff", "format", "--check"),
    ("ruff", "check"),
    ("mypy",),
    ("lint-imports", "--no-logo"),
    ("pytest", "-n", "2", "--dist", "loadfile"),
)


def run(*command: str | Path) -> None:
    """Run one step in the repository's root, without stdin; leave with its exit code where it fails."""
    words = [str(word) for word in command]
    print("$ " + " ".join([Path(words[0]).name, *words[1:]]), flush=True)
    began = time.monotonic()
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(VENV), "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONHOME", None)
    code = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, env=environment, check=False).returncode
    if code:
        print(f"failed after {time.monotonic() - began:.0f} s, exit code {code}", flush=True)
        raise SystemExit(code if code > 0 else 128 - code)


def main() -> None:
    """Set up, then check."""
    if sys.version_info < OLDEST:
        print(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]} ({sys.executable})")
        raise SystemExit(USAGE)
    if not (BIN / "pip").exists():
        run(sys.executable, "-m", "venv", VENV)
    run(BIN / "python", "-m", "pip", "install", "-q", "-e", ".[dev]")
    *checks, (pytest, *options) = STEPS
    for tool, *arguments in checks:
        run(BIN / tool, *arguments)
    run(BIN / pytest, *options, *sys.argv[1:])


if __name__ == "__main__":
    main()

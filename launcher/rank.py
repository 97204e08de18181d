"""What runs first in the process of a rank: lifeline, environment, log files, then the entrypoint.

torchrun's elastic agent calls `run` in a process that the forkserver has forked, with the rank's variables
(`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, ...) already set. This module does not import torch; where the
forkserver has preloaded it, what torch read from the environment at import is applied anew.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.lifeline import arm_rank

LEFT_EARLY = 70
"""Exit code of a rank whose entrypoint ended with `sys.exit(0)`: it has not finished."""


def resolve(entrypoint: str) -> Callable[[dict[str, Any]], object]:
    """Return the function that `module:function` names.

    Raises:
        ImportError: there is no such module.
        AttributeError: the module has no such function.
    """
    module, _, function = entrypoint.partition(":")
    found: Callable[[dict[str, Any]], object] = getattr(importlib.import_module(module), function)
    return found


def log_path(folder: Path, rank: int, stream: str) -> Path:
    """Where what a rank prints is kept: `rank<N>.log`, and `rank<N>.err.log` for its stderr."""
    return folder / (f"rank{rank}.log" if stream == "stdout" else f"rank{rank}.err.log")


def _redirect(folder: Path, rank: int) -> None:
    """Point file descriptors 1 and 2 at the rank's files; at nothing where they cannot be made."""
    for descriptor, stream in ((1, "stdout"), (2, "stderr")):
        try:
            target = os.open(log_path(folder, rank, stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError:  # the disk is full: the run says so by its record, not by this rank's end
            target = os.open(os.devnull, os.O_WRONLY)
        os.dup2(target, descriptor)
        os.close(target)
    for printed in (sys.stdout, sys.stderr):
        printed.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _apply_environment(environment: dict[str, str]) -> None:
    os.environ.update(environment)
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if "OMP_NUM_THREADS" in environment:
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    if "TORCH_DISTRIBUTED_DEBUG" in environment:
        torch.distributed.set_debug_level_from_env()


def run(entrypoint: str, argument: str, environment: dict[str, str], folder: str) -> None:
    """Be one rank: call `entrypoint` with the dict that `argument` holds as JSON.

    Returns only when the entrypoint did. Every other way out ends this process at once with a non-zero
    code: torch would catch a `SystemExit` and keep the process, its sockets open, waiting for the others.
    """
    arm_rank()
    _redirect(Path(folder), int(os.environ["RANK"]))
    _apply_environment(environment)
    code = 1
    try:
        resolve(entrypoint)(json.loads(argument))
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) and leaving.code else LEFT_EARLY
    except BaseException:
        traceback.print_exc()
    else:
        return
    for printed in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            printed.flush()
    os._exit(code)


def probe() -> None:
    """Do nothing, in a process of the forkserver: when it has run, the preload is complete."""

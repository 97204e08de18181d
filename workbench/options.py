"""The options that shape the app, from the command line to `workbench.app.run_app`; free of textual."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

MIN_REFRESH_HZ = 0.5
MAX_REFRESH_HZ = 20.0


class AppOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the app draws, where runs lie (None: the default place), and what a lab's form begins with."""

    ascii: bool = False
    mouse: bool = True
    refresh_hz: float = 4.0
    theme: str = "worldsize"
    runs_dir: Path | None = None
    nproc: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = 0
    timeout_s: float = 0.0
    launcher: Literal["warm", "torchrun"] = "warm"

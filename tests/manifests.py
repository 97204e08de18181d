"""The manifest of a run that exists only in a test."""

from __future__ import annotations

from launcher.rundir import Manifest


def manifest(lab: str, world_size: int, run_id: str = "r") -> Manifest:
    """A run of `lab` with gloo ranks on the CPU, without parameters."""
    return Manifest(
        run_id=run_id,
        lab=lab,
        params={},
        world_size=world_size,
        backend="gloo",
        device="cpu",
        launcher="warm",
        seed=0,
        command="",
        torchrun_command="",
        created="",
    )

"""The runs that are kept: listing them, and finding the one that a person means."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from labs.params import ParameterError, nearest
from launcher.lifeline import alive
from launcher.rundir import MANIFEST, Manifest, Result, read_manifest, read_result, run_folders

LATEST = "latest"
State = Literal["ended", "running", "lost", "elsewhere"]


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run in the list; `result` is None while it runs, or where it was lost with its machine."""

    folder: Path
    manifest: Manifest
    result: Result | None

    @property
    def status(self) -> str:
        """`passed`, `failed`, `error`, `interrupted`; without a result `running`, `lost` or `no result`."""
        if self.result is not None:
            return self.result.status
        state = state_of(self.manifest, None)
        return "no result" if state == "elsewhere" else state


def state_of(manifest: Manifest, result: Result | None) -> State:
    """Tell whether a run ended, still runs, was lost with its agent, or runs where it cannot be seen."""
    if result is not None:
        return "ended"
    host = str(manifest.machine.get("hostname", ""))
    if manifest.owner is None or (host and host != platform.node()):
        return "elsewhere"
    return "running" if alive(manifest.owner) else "lost"


def load(folder: Path) -> KeptRun:
    """Read a run's manifest and result.

    Raises:
        OSError, msgspec.DecodeError: the manifest is missing or damaged.
    """
    try:
        result = read_result(folder)
    except (OSError, msgspec.DecodeError):
        result = None
    return KeptRun(folder=folder, manifest=read_manifest(folder), result=result)


def kept_runs(runs_dir: Path) -> list[KeptRun]:
    """Return all runs, the newest first; folders with a damaged manifest are left out."""
    found = []
    for folder in run_folders(runs_dir):
        try:
            found.append(load(folder))
        except (OSError, msgspec.DecodeError):
            continue
    return found


def resolve(name: str, runs_dir: Path, flag: str) -> Path:
    """Return the folder of the run that `name` means: an id, a unique prefix, `latest`, or a folder.

    Raises:
        ParameterError: none or several fit, or its manifest is damaged; `flag` is the one that was given.
    """
    folder = _find(name, runs_dir, flag)
    try:
        read_manifest(folder)
    except (OSError, msgspec.DecodeError) as error:
        raise ParameterError(flag, f"{folder}: its {MANIFEST} cannot be read: {error}") from None
    return folder


def _find(name: str, runs_dir: Path, flag: str) -> Path:
    if Path(name).joinpath(MANIFEST).is_file():
        return Path(name).absolute()
    folders = list(run_folders(runs_dir))
    if not folders:
        raise ParameterError(flag, f"no runs in {runs_dir}; make one: workbench --run LAB")
    if name == LATEST:
        return folders[0]
    matching = [folder for folder in folders if folder.name.startswith(name)]
    exact = [folder for folder in matching if folder.name == name]
    if len(matching) == 1 or exact:
        return (exact or matching)[0]
    if matching:
        raise ParameterError(
            flag, f"{name} fits {len(matching)} runs: {_some(matching)}; give more of the id"
        )
    hint = nearest(name, [folder.name for folder in folders])
    raise ParameterError(
        flag, f"no run {name!r} in {runs_dir}; {hint}allowed: an id, a unique prefix, {LATEST}, a folder"
    )


def _some(folders: Sequence[Path]) -> str:
    names = [folder.name for folder in folders[:3]]
    return ", ".join(names) + (", ..." if len(folders) > len(names) else "")


def page(runs: Sequence[KeptRun], runs_dir: Path) -> str:
    """The page of `workbench --runs`; a run goes by its folder, which may have been renamed."""
    if not runs:
        return f"no runs in {runs_dir}"
    width = max(len(run.folder.name) for run in runs)
    lines = [f"{'run':<{width}}  status       ranks  seconds  checks"]
    for run in runs:
        wall = checks = ""
        if run.result is not None:
            wall = f"{run.result.wall_s:.1f}"
            passed = sum(check.passed for check in run.result.checks)
            checks = f"{passed} of {len(run.result.checks)} passed" if run.result.checks else "none made"
        ranks = run.manifest.world_size
        lines.append(f"{run.folder.name:<{width}}  {run.status:<11}  {ranks:>5}  {wall:>7}  {checks}")
    return "\n".join([*lines, "", f"in {runs_dir}"])


def as_json(runs: Sequence[KeptRun]) -> str:
    """The runs as one JSON array, each with its folder, status and creation time."""
    listed = [
        {
            "run_id": run.manifest.run_id,
            "lab": run.manifest.lab,
            "status": run.status,
            "exit_code": run.result.exit_code if run.result is not None else None,
            "world_size": run.manifest.world_size,
            "created": run.manifest.created,
            "wall_s": run.result.wall_s if run.result is not None else None,
            "folder": str(run.folder),
        }
        for run in runs
    ]
    return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode()

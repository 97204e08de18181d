"""One run before it starts: its options, its folder and manifest, its request, its commands.

Used by the headless command and by the app, so that both start the same thing.
"""

from __future__ import annotations

import datetime
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Literal

import msgspec

from labs import pacing
from labs.flags import to_flags
from labs.params import LabSpec, ParameterError, check_ranks
from launcher.protocol import RunRequest
from launcher.rundir import Manifest, ProcessId, new_run_id, write_manifest
from workbench.console import is_text
from workbench.machine import Machine, backend_for, version_of

ENTRYPOINT = "labs.worker:main"
WORKER_MODULE = "labs.worker"
GROUP_TIMEOUT_S = 15.0
RUNS_DIR_VARIABLE = "WORLDSIZE_RUNS_DIR"
Launcher = Literal["warm", "torchrun"]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What every lab's run can be told. `nproc` 0 means the lab's own default, `timeout_s` 0 no limit."""

    nproc: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = 0
    timeout_s: float = 0.0
    runs_dir: str = ""
    """Empty: `WORLDSIZE_RUNS_DIR`, else the user's data folder."""
    launcher: Launcher = "warm"

    def world_size(self, spec: LabSpec) -> int:
        """Number of ranks: the one asked for, else the lab's default."""
        return self.nproc or spec.default_ranks


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A run that can be requested: its folder exists and holds the manifest."""

    folder: Path
    manifest: Manifest
    request: RunRequest


def default_runs_dir() -> Path:
    """Where runs are kept: `WORLDSIZE_RUNS_DIR`, else `worldsize/runs` in the user's data folder."""
    if chosen := os.environ.get(RUNS_DIR_VARIABLE):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("worldsize") / "runs"


def runs_dir_of(runs_dir: str) -> Path:
    """Return the folder of runs that `--runs-dir` names, or the default."""
    return Path(runs_dir).expanduser().absolute() if runs_dir else default_runs_dir()


def check(spec: LabSpec, params: msgspec.Struct, options: RunOptions, machine: Machine) -> None:
    """Refuse a run that cannot work, before anything is made or started.

    Raises:
        ParameterError: ranks, parameters, device, folder of runs or torch do not fit.
    """
    world_size = options.world_size(spec)
    check_ranks(spec, world_size)
    if spec.validate is not None:
        spec.validate(params, world_size)
    _, device, _ = backend_for(machine, world_size, options.device)
    if spec.validate_device is not None:
        spec.validate_device(params, device)
    if not machine.torch:
        raise ParameterError(
            "torch",
            f"is not installed for {sys.executable}; install it: {sys.executable} -m pip install torch",
        )
    _check_folder(runs_dir_of(options.runs_dir), options)


def _check_folder(runs_dir: Path, options: RunOptions) -> None:
    """Refuse a folder of runs that cannot be written, without making it."""
    existing = _existing(runs_dir, options.runs_dir)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise _folder_error(runs_dir, options.runs_dir, f"{existing} cannot be written by this user")


def check_readable(runs_dir: Path, given: str) -> None:
    """Refuse a folder of runs that cannot be read; one that is not there yet has no runs. `given`: by a flag.

    Raises:
        ParameterError: it is something else, or not this user's to read.
    """
    existing = _existing(runs_dir, given)
    if not os.access(existing, os.R_OK | os.X_OK):
        raise _folder_error(runs_dir, given, f"{existing} cannot be read by this user")


def _existing(runs_dir: Path, given: str) -> Path:
    """The folder itself, or the nearest above it that is there."""
    if not is_text(str(runs_dir)):
        raise _folder_error(runs_dir, given, f"is not text in {sys.getfilesystemencoding()}")
    existing = runs_dir
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        what = "is a link that leads nowhere" if existing.is_symlink() else "is not a folder"
        raise _folder_error(runs_dir, given, f"{existing} {what}")
    return existing


def _folder_error(runs_dir: Path, given: str, why: str) -> ParameterError:
    flag = "--runs-dir"
    if not given:
        flag = RUNS_DIR_VARIABLE if os.environ.get(RUNS_DIR_VARIABLE) else "folder of runs"
    return ParameterError(flag, f"{runs_dir}: {why}; give a folder that can be written: --runs-dir DIR")


def prepare(
    spec: LabSpec,
    params: msgspec.Struct,
    options: RunOptions,
    machine: Machine,
    owner: ProcessId | None = None,
) -> Prepared:
    """Check the run, make its folder with `manifest.json`, and return it with its request.

    `owner` is the agent that will serve it (`AgentClient.identity`).

    Raises:
        ParameterError: see `check`; also where the folder cannot be made or the manifest not written. No
            folder is left behind then.
    """
    check(spec, params, options, machine)
    manifest = _manifest(spec, params, options, machine, owner)
    runs_dir = runs_dir_of(options.runs_dir)
    folder = runs_dir / manifest.run_id
    try:
        folder.mkdir(parents=True)
        write_manifest(folder, manifest)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise _folder_error(runs_dir, options.runs_dir, error.strerror or str(error)) from None
    return Prepared(
        folder=folder,
        manifest=manifest,
        request=_request(spec, params, options, manifest, folder),
    )


def adopt(prepared: Prepared, owner: ProcessId | None) -> Prepared:
    """Note in the manifest which agent serves the run.

    Raises:
        ParameterError: the manifest cannot be written.
    """
    manifest = msgspec.structs.replace(prepared.manifest, owner=owner)
    try:
        write_manifest(prepared.folder, manifest)
    except OSError as error:
        raise ParameterError("folder of runs", f"{prepared.folder}: {error.strerror}") from None
    return msgspec.structs.replace(prepared, manifest=manifest)


def _manifest(
    spec: LabSpec,
    params: msgspec.Struct,
    options: RunOptions,
    machine: Machine,
    owner: ProcessId | None,
) -> Manifest:
    world_size = options.world_size(spec)
    backend, device, why = backend_for(machine, world_size, options.device)
    values = msgspec.to_builtins(params)
    return Manifest(
        run_id=new_run_id(spec.id),
        lab=spec.id,
        params=values,
        world_size=world_size,
        backend=backend,
        device=device,
        launcher=options.launcher,
        seed=options.seed,
        command=workbench_command(spec, params, options),
        torchrun_command=torchrun_command(spec, params, options, device),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions=machine.versions,
        machine=machine.summary,
        why_backend=why,
        paced_ms=pacing.resolve(values.get("pace_ms", 0.0), world_size, machine.cores, device),
        steps=int(values.get("steps", 0)),
        owner=owner,
    )


def _request(
    spec: LabSpec, params: msgspec.Struct, options: RunOptions, manifest: Manifest, folder: Path
) -> RunRequest:
    by_torchrun = options.launcher == "torchrun"
    return RunRequest(
        run_id=manifest.run_id,
        folder=str(folder),
        entrypoint=ENTRYPOINT,
        argument={
            "lab": spec.id,
            "params": manifest.params,
            "seed": options.seed,
            "device": manifest.device,
            "backend": manifest.backend,
            "pg_timeout_s": GROUP_TIMEOUT_S,
            "pace_ms": manifest.paced_ms,
        },
        world_size=manifest.world_size,
        launcher=options.launcher,
        command=_torchrun_words(spec, params, options, manifest.device) if by_torchrun else [],
        environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if spec.debug_detail else {},
        timeout_s=options.timeout_s,
    )


def workbench_command(spec: LabSpec, params: msgspec.Struct, options: RunOptions) -> str:
    """Return the `workbench` command that does the same run headless."""
    words = ["workbench", "--run", spec.id, "--nproc", str(options.world_size(spec))]
    words += to_flags(spec, params)
    if options.device != "auto":
        words += ["--device", options.device]
    if options.seed:
        words += ["--seed", str(options.seed)]
    if options.timeout_s:
        words += ["--timeout", f"{options.timeout_s:g}"]
    if options.launcher != "warm":
        words += ["--launcher", options.launcher]
    if options.runs_dir:
        words += ["--runs-dir", options.runs_dir]
    return shlex.join(words)


def torchrun_command(spec: LabSpec, params: msgspec.Struct, options: RunOptions, device: str = "") -> str:
    """Return the plain `torchrun` command of the same run; it works when pasted into a shell here."""
    words = _torchrun_words(spec, params, options, device)
    if words[0] == str(Path(sys.executable).with_name("torchrun")) == shutil.which("torchrun"):
        words[0] = "torchrun"
    before = "" if version_of("worldsize") else f"PYTHONPATH={shlex.quote(str(_root()))} "
    return before + shlex.join(words)


def _torchrun_words(spec: LabSpec, params: msgspec.Struct, options: RunOptions, device: str) -> list[str]:
    """The command as a list: torchrun of this very Python, so that it finds the same torch and labs."""
    beside = Path(sys.executable).with_name("torchrun")
    torchrun = [str(beside)] if beside.exists() else [sys.executable, "-m", "torch.distributed.run"]
    words = [*torchrun, "--standalone", "--nproc-per-node", str(options.world_size(spec))]
    words += ["-m", WORKER_MODULE, spec.id, *to_flags(spec, params), "--seed", str(options.seed)]
    chosen = device or (options.device if options.device != "auto" else "")
    return [*words, "--device", chosen] if chosen else words


def _root() -> Path:
    return Path(__file__).resolve().parent.parent

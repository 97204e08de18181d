"""What this machine has, found without torch: cores, memory, GPUs; and which backend that means for a run.

The app's header, `--doctor`, the manifest and the choice of the backend all read it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from labs.params import ParameterError
from launcher.nvml import MIG_NOTE, Gpus

Device = Literal["cpu", "cuda"]
Backend = Literal["gloo", "nccl"]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU: its number, its model, its memory in bytes."""

    index: int
    name: str
    uuid: str = ""
    memory: int = 0


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a run can use here. Memory in bytes; `gpus` holds only those that CUDA will see."""

    hostname: str
    system: str
    cores: int
    memory: int
    gpus: tuple[Gpu, ...] = ()
    gpu_note: str = ""
    """Why there is no GPU, in words; empty where there is one."""
    python: str = ""
    torch: str = ""
    """Version of the torch that is installed; empty: none."""
    torch_cuda: str = ""
    """CUDA version that torch was built for; empty: a build for the CPU alone."""

    @property
    def summary(self) -> dict[str, str | int]:
        """The machine as the manifest keeps it."""
        names = sorted({gpu.name for gpu in self.gpus})
        return {
            "hostname": self.hostname,
            "system": self.system,
            "cores": self.cores,
            "memory_bytes": self.memory,
            "gpus": len(self.gpus),
            "gpu": ", ".join(names),
        }

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what computes, as the manifest keeps them."""
        return {"worldsize": version_of("worldsize"), "python": self.python, "torch": self.torch}


def version_of(distribution: str) -> str:
    """Version of an installed distribution; empty where there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def probe() -> Machine:
    """Look at this machine. Loads neither torch nor a CUDA context."""
    torch_cuda = _torch_cuda()
    gpus, note = _gpus(torch_cuda)
    return Machine(
        hostname=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cores=cores(),
        memory=memory(),
        gpus=gpus,
        gpu_note=note,
        python=platform.python_version(),
        torch=version_of("torch"),
        torch_cuda=torch_cuda,
    )


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Memory of the machine, or of its container where that is limited, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def _torch_cuda() -> str:
    """CUDA version of the installed torch, read from its `version.py` without importing it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return ""
    try:
        text = Path(found.origin).with_name("version.py").read_text()
    except OSError:
        return ""
    match = re.search(r"^cuda\b[^=]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else ""


def _gpus(torch_cuda: str) -> tuple[tuple[Gpu, ...], str]:
    installed = _nvml_gpus()
    if not installed:
        return (), "no GPU"
    if not torch_cuda:
        return (
            (),
            f"{len(installed)} x {installed[0].name}, but torch {version_of('torch')} is built for CPUs",
        )
    visible = _visible(installed, os.environ)
    return visible, "" if visible else "CUDA_VISIBLE_DEVICES hides all GPUs"


def _visible(gpus: tuple[Gpu, ...], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves, in its order; CUDA stops at the first unknown entry."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    found: list[Gpu] = []
    for entry in chosen.split(","):
        name = entry.strip()
        match = [gpu for gpu in gpus if name and (name == str(gpu.index) or gpu.uuid.startswith(name))]
        if not match:
            break
        found.append(match[0])
    return tuple(found)


def _nvml_gpus() -> tuple[Gpu, ...]:
    """The GPUs that NVML knows. Of MIG slices CUDA shows a process one alone, whatever their number."""
    found = Gpus()
    samples = found.sample()
    found.close()
    whole = [sample for sample in samples if sample.note != MIG_NOTE]
    slices = [sample for sample in samples if sample.note == MIG_NOTE]
    return tuple(
        Gpu(index=sample.index, name=sample.name, uuid=sample.uuid, memory=sample.memory_total or 0)
        for sample in whole or slices[:1]
    )


def backend_for(machine: Machine, nproc: int, device: str = "auto") -> tuple[Backend, Device, str]:
    """Choose backend and device for `nproc` ranks; the third part says why, for the header.

    One GPU a rank: NCCL. Fewer GPUs than ranks, or none: gloo on the CPU.

    Raises:
        ParameterError: `cuda` was asked for and there is not one GPU a rank.
    """
    count = len(machine.gpus)
    if device == "cpu":
        return "gloo", "cpu", "gloo on the CPU: asked for by --device cpu"
    if count >= nproc:
        return "nccl", "cuda", f"NCCL: one GPU a rank ({nproc} of {_gpus_in_words(count)})"
    if device == "cuda":
        what = machine.gpu_note or f"{_gpus_in_words(count)} for {nproc} ranks"
        least = f"--nproc {count}, or " if count else ""
        raise ParameterError("--device", f"cuda needs one GPU a rank: {what}; allowed: {least}--device cpu")
    if count:
        return "gloo", "cpu", f"gloo on the CPU: {_gpus_in_words(count)} for {nproc} ranks"
    return "gloo", "cpu", f"gloo on the CPU: {machine.gpu_note or 'no GPU'}"


def _gpus_in_words(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"

"""Before the first step the stages agree on what will cross between them.

Each stage learns the shape that the one before gives it, tries one forward on zeros, and hands the shape of
its output on. So stages of different widths fit together, and a misfit is an error that names the stage. (The
meta device would need no computation, but its first use costs a rank seconds of imports.)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from labs.parallel.pipeline_mail import MAX_DIMS, Boundary, Wire, decode_boundary, encode_boundary
from labs.parallel.schedule_actions import Schedule


def agree(
    schedule: Schedule, rank: int, stages: Mapping[int, nn.Module], wire: Wire, first: Tensor | None
) -> dict[int, Boundary]:
    """Return for each stage that this rank holds, and the one behind it, what enters it.

    `first` is one micro-batch, on the rank that holds stage 0. Ranks call this together; it costs one small
    message a boundary, in the order of the stages.

    Raises:
        ValueError: a stage cannot take what the stage before gives; names both and the shape.
    """
    device = device_of(stages)
    boundaries: dict[int, Boundary] = {}
    for stage in schedule.stages_of(rank):
        if stage == 0:
            assert first is not None
            entering = first
        else:
            before = schedule.rank_of(stage - 1)
            if before != rank:
                boundaries[stage] = _receive(wire, before, device)
            entering = torch.zeros(boundaries[stage].shape, dtype=boundaries[stage].dtype, device=device)
        leaving = output_of(stages[stage], entering, stage)
        if stage == schedule.num_stages - 1:
            break
        boundaries[stage + 1] = Boundary(tuple(leaving.shape), leaving.dtype)
        behind = schedule.rank_of(stage + 1)
        if behind != rank:
            numbers = torch.tensor(encode_boundary(boundaries[stage + 1]), device=device)
            wire.isend(numbers, behind, stage=stage + 1).wait()
    return boundaries


def _receive(wire: Wire, peer: int, device: torch.device) -> Boundary:
    numbers = torch.zeros(MAX_DIMS + 2, dtype=torch.int64, device=device)
    wire.irecv(numbers, peer).wait()
    return decode_boundary([int(number) for number in numbers.tolist()])


def output_of(module: nn.Module, entering: Tensor, stage: int) -> Tensor:
    """Return the module's output for `entering`, leaving its buffers and the random numbers as they were.

    Raises:
        ValueError: the module does not take this input, or gives something else than one tensor.
    """
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    devices = [entering.device] if entering.is_cuda else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            output = functional_call(module, buffers, (entering,))
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        giver = f"stage {stage - 1} gives" if stage else "the data gives"
        shape = tuple(entering.shape)
        raise ValueError(f"stage {stage} does not take the {shape} that {giver}: {reason}") from error
    if not isinstance(output, Tensor):
        raise ValueError(f"stage {stage} gives a {type(output).__name__}, not one tensor")  # noqa: TRY004
    return output


def device_of(stages: Mapping[int, nn.Module]) -> torch.device:
    """Return the device of the stages' parameters; the CPU if they have none."""
    tensors = (tensor for module in stages.values() for tensor in module.parameters())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))

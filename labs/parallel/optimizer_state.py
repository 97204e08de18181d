"""Between the sharded optimizer's pieces and the unsharded optimizer's state format, both ways.

A state tensor that has the piece's shape (momentum, variance) is cut and joined like the parameter; anything
else (the step count) is the same for all pieces of a parameter and travels once.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labs.comms import Comms

Held = tuple[int, Tensor, int, int, nn.Parameter]
"""(number, parameter, start, stop, piece): the piece is elements start to stop of the numbered parameter."""


def assemble(
    held: Sequence[Held], state: Mapping[Tensor, Mapping[str, Any]], comms: Comms
) -> dict[int, dict[str, Any]]:
    """Join all ranks' pieces into whole states by parameter number, on every rank. Collective."""
    mine = [
        (number, tuple(parameter.shape), start, stop, dict(state[piece]))
        for number, parameter, start, stop, piece in held
        if piece in state
    ]
    gathered: list[Any] = [None] * comms.world_size
    dist.all_gather_object(gathered, mine, group=comms.group)
    whole: dict[int, dict[str, Any]] = {}
    for number, shape, start, stop, values in (entry for rank in gathered for entry in rank):
        entry = whole.setdefault(number, {})
        for key, value in values.items():
            if isinstance(value, Tensor) and value.shape == (stop - start,):
                target = entry.setdefault(key, torch.empty(shape, dtype=value.dtype, device=value.device))
                target.view(-1)[start:stop] = value
            else:
                entry.setdefault(key, value)
    return dict(sorted(whole.items()))


def cut(
    held: Sequence[Held], state: MutableMapping[Tensor, Any], whole: Mapping[int, Mapping[str, Any]]
) -> None:
    """Put this rank's pieces of the whole states into `state`."""
    for number, parameter, start, stop, piece in held:
        if number not in whole:
            state.pop(piece, None)
            continue
        state[piece] = {
            key: _cut_value(key, value, parameter, start, stop) for key, value in whole[number].items()
        }


def _cut_value(key: str, value: Any, parameter: Tensor, start: int, stop: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    if key == "step" or value.shape != parameter.shape:
        return value.clone()
    return value.reshape(-1)[start:stop].to(parameter.device).clone()

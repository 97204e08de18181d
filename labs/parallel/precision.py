"""Mixed precision as the data-parallel wrappers use it: autocast in forward, masters and gradients in fp32.

Parameters stay fp32, so the gradients that travel and the optimizer's state do too: autocast makes the matrix
products faster, not the communication smaller. bf16 has fp32's range and needs nothing else. fp16 has not:
small gradients would vanish, so the loss is scaled up before backward and the gradients down before the step,
which is left out where they overflowed (Micikevicius et al. 2018, "Mixed Precision Training").
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

Precision = Literal["fp32", "bf16", "fp16"]
BF16_UNIT = 2.0**-8
"""The most that rounding to bf16 changes a number by, relative to it: half a step of its 8 bits."""
DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return the context in which forward runs; nothing changes in it for fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


class Scaler:
    """Scales the loss for fp16 on GPUs; otherwise passes everything through.

    Call `backward`, then finish gradient synchronisation, then `step`. After synchronisation all ranks hold
    the same gradients, so all of them leave the same steps out.

    Args:
        device: where the parameters are.
        precision: what forward runs in.

    Raises:
        ValueError: fp16 without a GPU.
    """

    def __init__(self, device: torch.device, precision: Precision) -> None:
        if precision == "fp16" and device.type != "cuda":
            raise ValueError("fp16 with loss scaling needs a GPU; use bf16 or fp32 on the CPU")
        self._scaler = torch.amp.GradScaler("cuda") if precision == "fp16" else None

    def backward(self, loss: Tensor) -> None:
        """Run backward of the (scaled) loss."""
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        torch.autograd.backward(scaled)

    def unscale(self, optimizer: Optimizer) -> None:
        """Bring the gradients to their true size, to be looked at or clipped; at most once before `step`."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        """Take the optimizer's step, unless a gradient is not finite, and adapt the scale."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()

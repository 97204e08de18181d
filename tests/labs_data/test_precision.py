"""Autocast and loss scaling by themselves: what forward computes in, and that fp16 asks for a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from labs.parallel.precision import Precision, Scaler, autocast

CPU = torch.device("cpu")


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_products_in_their_type_and_masters_in_fp32(precision: Precision, dtype: torch.dtype) -> None:
    """On the CPU nothing is scaled: the scaler passes loss and step through."""
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    scaler = Scaler(CPU, precision)
    with autocast(CPU, precision):
        output = layer(torch.ones(2, 4))
    assert output.dtype == dtype
    scaler.backward(output.float().sum())
    scaler.unscale(optimizer)
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    assert torch.equal(layer.weight.grad, torch.full((4, 4), 2.0))
    scaler.step(optimizer)
    assert torch.equal(layer.weight, before - 2.0)


def test_fp16_asks_for_a_gpu() -> None:
    """Said at once, with what to use instead."""
    with pytest.raises(ValueError, match="fp16 with loss scaling needs a GPU; use bf16 or fp32 on the CPU"):
        Scaler(CPU, "fp16")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_fp16_scales_unscales_and_leaves_an_overflow_out() -> None:
    """Gradients come out at their true size; a step whose gradients are not finite changes nothing."""
    device = torch.device("cuda")
    layer = nn.Linear(4, 4).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    scaler = Scaler(device, "fp16")
    for factor, moves in ((1.0, True), (1e30, False)):
        before = layer.weight.detach().clone()
        optimizer.zero_grad()
        with autocast(device, "fp16"):
            output = layer(torch.ones(2, 4, device=device))
        assert output.dtype == torch.float16
        scaler.backward(output.float().sum() * factor * factor)
        scaler.unscale(optimizer)
        if moves:
            assert layer.weight.grad is not None
            assert torch.allclose(layer.weight.grad, torch.full((4, 4), 2.0, device=device))
        scaler.step(optimizer)
        assert torch.equal(layer.weight, before) is not moves

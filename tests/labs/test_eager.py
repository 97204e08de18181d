"""Optimizers and given gradients work without the compiler being loaded; asked in a fresh process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import torch
from torch import nn
from labs.eager import spare_the_compiler

def trained(kind, **options):
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    optimizer = kind(layer.parameters(), lr=0.1, **options)
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(layer(torch.ones(3)).square().sum())
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    assert all(p.grad_fn is None for p in layer.parameters())
    return layer.weight.detach().clone()

spare_the_compiler()
spare_the_compiler()
kinds = [(torch.optim.AdamW, {}), (torch.optim.Adam, {"amsgrad": True}), (torch.optim.SGD, {"momentum": 0.9})]
spared = [trained(kind, **options) for kind, options in kinds]
inner = torch.ones(2, 3, requires_grad=True)
outer = inner * 2
torch.autograd.backward([outer], [torch.full((2, 3), 5.0)])
edge = torch.autograd.graph.get_gradient_edge(inner.sin())
(through,) = torch.autograd.grad([edge], [inner], [torch.ones(2, 3)])
assert torch.equal(inner.grad, torch.full((2, 3), 10.0)) and torch.equal(through, inner.detach().cos())
assert "torch._dynamo" not in sys.modules
assert "sympy" not in sys.modules
try:
    torch.autograd.backward([inner * 2], [torch.ones(3, 2)])
except RuntimeError as error:
    assert "Mismatch in shape" in str(error)
else:
    raise AssertionError("a gradient of another shape was taken")
import torch._dynamo
assert all(torch.equal(a, trained(k, **o)) for a, (k, o) in zip(spared, kinds))
print("done")
"""


def test_the_compiler_stays_out() -> None:
    """Two seconds and 60 MB a rank that nobody needs; with the compiler loaded all goes as before."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr

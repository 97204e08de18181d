"""Masters in fp32 under a model in bf16, sharded and not; and shards that live on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import backward
from torch.optim import SGD, AdamW

from labs.comms import Comms
from labs.parallel.fully_sharded import FullyShardedDataParallel
from labs.parallel.master_weights import MasterWeights
from labs.parallel.shard_unit import at_home
from labs.parallel.sharded_optimizer import ShardedOptimizer
from tests.labs_zero import cases, layered
from tests.labs_zero.test_bucketed import farthest
from tests.ranks import with_comms


def model() -> nn.Module:
    """Odd sizes, the same values wherever it is made."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3))


def loss_of(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The forward pass in bf16, the loss in fp32."""
    loss: Tensor = (module(x.bfloat16()).float() - y).square().mean()
    return loss


def alone(world_size: int, steps: int) -> dict[str, Tensor]:
    """Masters after some steps of one process on whole batches."""
    module = model()
    optimizer = MasterWeights(module.parameters(), lambda p: AdamW(p, lr=0.01), torch.bfloat16)
    for step in range(steps):
        backward(loss_of(module, *cases.batch(step, world_size)))
        optimizer.step()
        optimizer.zero_grad()
    names = [name for name, _ in module.named_parameters()]
    return {name: master.detach().clone() for name, master in zip(names, optimizer.masters, strict=True)}


def test_small_steps_reach_the_masters() -> None:
    """A step that bf16 would round away is taken in fp32, and shows in the model once enough have gone by."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = MasterWeights([weight], lambda p: SGD(p, lr=1.0), torch.bfloat16)
    seen = []
    for _ in range(3):
        weight.grad = torch.full((1,), -0.0015, dtype=torch.bfloat16)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(weight.item())
    assert float(torch.ones(1, dtype=torch.bfloat16) + 0.0015) == 1.0
    assert optimizer.masters[0].item() == pytest.approx(1.0045, abs=1e-5)
    assert seen[0] == 1.0
    assert seen[2] > 1.0


def sharded_masters(comms: Comms, stage: int) -> tuple[dict[str, Tensor], list[torch.dtype], float]:
    """Train with sharded masters, save after two steps, resume: returns masters, dtypes, distance."""
    results = []
    saved: Any = None
    for resumed in (False, True):
        module = model()
        optimizer = ShardedOptimizer(
            module.parameters(),
            AdamW,
            comms,
            stage=2 if stage == 2 else 1,
            bucket_mb=1e-4,
            compute_dtype=torch.bfloat16,
            lr=0.01,
        )
        if resumed:
            module.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        for step in range(2 if resumed else 0, 4):
            if step == 2 and not resumed:
                weights = {name: value.clone() for name, value in module.state_dict().items()}
                saved = weights, optimizer.state_dict()
            backward(loss_of(module, *cases.part(comms, step)))
            optimizer.step()
            optimizer.zero_grad()
        results.append([whole for shard in optimizer.shards for whole in shard.assemble()])
    apart = max(float((a - b).abs().max()) for a, b in zip(*results, strict=True))
    names = {parameter: name for name, parameter in module.named_parameters()}
    order = [names[p] for shard in optimizer.shards for p in shard.parameters]
    dtypes = [*(p.dtype for p in module.parameters()), optimizer.shards[0].master.dtype]
    return dict(zip(order, results[1], strict=True)), dtypes, apart


def both_stages(comms: Comms) -> list[Any]:
    """Stages 1 and 2 on the same ranks."""
    return [sharded_masters(comms, stage) for stage in (1, 2)]


def test_sharded_masters_equal_one_process_and_resume_exactly() -> None:
    """bf16 gradients of parts round differently from the whole batch's; masters saved and loaded do not."""
    expected = alone(2, 4)
    start = dict(model().named_parameters())
    way = max(float((expected[name] - start[name]).abs().max()) for name in expected)
    for results in with_comms(2, both_stages):
        for masters, dtypes, apart in results:
            assert dtypes == [torch.bfloat16] * 4 + [torch.float32]
            assert farthest(masters, expected) < 0.1 * way
            assert apart == 0.0
            weight = masters["0.weight"]
            assert not torch.equal(weight, weight.bfloat16().float())


def offloaded(comms: Comms) -> tuple[float, set[str]]:
    """Fully sharded with its shards at home on the CPU, beside without: distance, and where they are."""
    (plain, _, _), (moved, _, _) = (layered.train(comms, offload=offload) for offload in (False, True))
    wrapped = FullyShardedDataParallel(layered.Layered(), comms, offload=True)
    return farthest(plain, moved), {unit.part.device.type for unit in wrapped.units}


def test_shards_on_the_cpu_train_the_same() -> None:
    """Without a GPU that is where they are anyway: the path is walked, no byte moves."""
    for apart, devices in with_comms(2, offloaded):
        assert apart == 0.0
        assert devices == {"cpu"}
    part = torch.ones(2)
    assert at_home(part, torch.device("cpu")) is part


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_part_from_a_gpu_lies_in_pinned_memory() -> None:
    """So that the copy to and fro may overlap with computation."""
    kept = at_home(torch.ones(2, device="cuda"), torch.device("cpu"))
    assert kept.device.type == "cpu"
    assert kept.is_pinned()

"""The small language model and its text: sizes, causality, learning, and examples dealt out once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from labs.language_model import (
    LanguageModel,
    LanguageModelConfig,
    WideEmbedding,
    next_byte_loss,
    parameter_count,
)
from labs.sharded_data import rank_loader
from labs.text_data import ByteDataset, whole_batch
from labs.text_files import DataError, corpus


@pytest.mark.parametrize("tie", [False, True])
def test_parameters_are_counted_and_ties_hold(tie: bool) -> None:
    """The formula against the module itself."""
    config = LanguageModelConfig(dim=32, layers=3, heads=2, tie_embeddings=tie)
    model = LanguageModel(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(config)
    assert (model.head.weight is model.embedding.weight) is tie


def test_heads_must_divide_the_width() -> None:
    """Said before a tensor is made."""
    with pytest.raises(ValueError, match="heads"):
        LanguageModelConfig(dim=30, heads=4)


def test_no_position_sees_a_later_one() -> None:
    """Changing the last byte changes the last position's logits alone."""
    torch.manual_seed(0)
    model = LanguageModel(LanguageModelConfig(dim=32, layers=2, heads=2, context=8))
    tokens = torch.arange(8)[None]
    changed = tokens.clone()
    changed[0, -1] = 200
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])


def test_positions_matter() -> None:
    """Without rotary angles a bag of equal bytes would look the same in any order."""
    torch.manual_seed(0)
    model = LanguageModel(LanguageModelConfig(dim=32, layers=2, heads=2, context=8))
    with torch.no_grad():
        one, other = model(torch.tensor([[1, 2, 3]])), model(torch.tensor([[2, 1, 3]]))
    assert not torch.allclose(one[:, -1], other[:, -1], atol=1e-6)


def test_loss_falls_on_the_library_s_own_text() -> None:
    """From ln 256 at the start to clearly below."""
    torch.manual_seed(0)
    model = LanguageModel(LanguageModelConfig(dim=32, layers=1, heads=2, context=32))
    loader, _ = rank_loader(ByteDataset(corpus(limit=1 << 16), 32, 320), 0, 1, 16, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _, inputs, targets in loader:
        loss = next_byte_loss(model(inputs), targets)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(5.545, abs=0.2)
    assert losses[-1] < 3.8


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_each_example_is_read_once_an_epoch(world_size: int) -> None:
    """Over all ranks, without repeats; another epoch deals them otherwise, but only if it is told."""
    dataset = ByteDataset(bytes(range(256)) * 8, 16, 24)
    samplers = [rank_loader(dataset, rank, world_size, 2, seed=7)[1] for rank in range(world_size)]
    first = [list(sampler) for sampler in samplers]
    assert sorted(index for dealt in first for index in dealt) == list(range(24))
    assert [list(sampler) for sampler in samplers] == first
    for sampler in samplers:
        sampler.set_epoch(1)
    second = [list(sampler) for sampler in samplers]
    assert second != first
    assert sorted(index for dealt in second for index in dealt) == list(range(24))


def test_targets_are_the_inputs_one_byte_on() -> None:
    """And a batch stacks the examples named."""
    dataset = ByteDataset(bytes(range(20)), 4)
    assert len(dataset) == 4
    inputs, targets = whole_batch(dataset, [0, 3])
    assert inputs.tolist() == [[0, 1, 2, 3], [12, 13, 14, 15]]
    assert targets.tolist() == [[1, 2, 3, 4], [13, 14, 15, 16]]
    with pytest.raises(IndexError):
        dataset[4]


def test_a_person_s_folder(tmp_path: Path) -> None:
    """Read by name, in order; what holds nothing is refused with what to place there."""
    (tmp_path / "b.txt").write_bytes(b"second")
    (tmp_path / "a.md").write_bytes(b"first")
    (tmp_path / "c.bin").write_bytes(b"never")
    assert corpus(str(tmp_path)) == b"firstsecond"
    assert corpus(str(tmp_path), limit=7) == b"firstse"
    with pytest.raises(DataError, match="does not exist"):
        corpus(str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"place .*\.txt"):
        corpus(str(tmp_path / "empty"))
    with pytest.raises(DataError, match="give more text"):
        ByteDataset(b"short", 16)


def test_a_frequent_byte_s_gradient_is_not_lost_in_bf16() -> None:
    """Added up in bf16 it stops at 256, to which 1 is half a unit."""
    table = WideEmbedding(2, 4, dtype=torch.bfloat16)
    table(torch.zeros(2048, dtype=torch.int64)).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.tolist() == [[2048.0] * 4, [0.0] * 4]

"""What the ranks of the dp lab note while they train, alike on every rank, for the proofs afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from labs.comms import Comms
from labs.context import Context, hash_of
from labs.data_parallel import theory


@dataclass
class Journal:
    """The training of all ranks as one of them knows it."""

    losses: list[list[float]] = field(default_factory=list)
    """By step, by rank."""
    hashes: list[list[int]] = field(default_factory=list)
    """Of all parameters after the step; by step, by rank."""
    first_gradients: list[Tensor] = field(default_factory=list)
    """The averaged gradients of step 0, on this rank."""
    compared: list[Tensor] = field(default_factory=list)
    """The parameters of this rank after the last step that one process repeats."""
    dtypes: tuple[torch.dtype, torch.dtype] = (torch.float32, torch.float32)
    """Of the model's output, and of the gradients that travelled."""
    all_reduced_bytes: int = 0
    """S of all all-reduces of the training, summed."""


def note(ctx: Context, journal: Journal, module: nn.Module, loss: float, batch: int, proof: Comms) -> None:
    """Tell this step's loss and the parameters' hash, and learn those of the other ranks."""
    ctx.scalar("loss", loss)
    parameters = list(module.parameters())
    digest = hash_of(parameters)
    ctx.digest("parameters", "after", parameters, digest)
    seen = gather(proof, [int(digest, 16), bits_of(loss)])
    journal.hashes.append([hashed for hashed, _ in seen])
    losses = [loss_of_bits(bits) for _, bits in seen]
    journal.losses.append(losses)
    if ctx.rank == 0:
        ctx.scalar("mean loss", theory.batch_loss(losses, batch))


def gather(proof: Comms, numbers: list[int]) -> list[list[int]]:
    """Return every rank's numbers, by rank; an all-gather apart from what the lab counts."""
    mine = torch.tensor(numbers, dtype=torch.int64, device=proof.recorder.device)
    everyone = mine.new_empty(len(numbers) * proof.world_size)
    proof.all_gather(everyone, mine)
    return everyone.view(proof.world_size, len(numbers)).tolist()


def fingerprint(module: nn.Module) -> int:
    """Return 48 bits that are equal exactly when all parameters are bitwise equal."""
    return int(hash_of(list(module.parameters())), 16)


def gradients_of(module: nn.Module) -> list[Tensor]:
    """Return copies of all gradients, in the module's order."""
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def bits_of(number: float) -> int:
    """Return a float's 64 bits as an integer, so that it travels exactly."""
    return int(torch.tensor(number, dtype=torch.float64).view(torch.int64))


def loss_of_bits(bits: int) -> float:
    """Return the float of 64 bits: the inverse of `bits_of`."""
    return float(torch.tensor(bits, dtype=torch.int64).view(torch.float64))

"""A small Llama-like transformer over bytes: RMSNorm, rotary position embedding, SwiGLU.

The shape of Touvron et al. 2023 (LLaMA) at a size that trains on a laptop's CPU. Its vocabulary is the 256
values of a byte, so there is no tokenizer to fetch. `layers` is a ModuleList: the unit that the fully sharded
wrapper gathers and frees.

Shape suffixes: B batch, S sequence, D model width, H heads, K width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.model_sizes import hidden_width

VOCABULARY = 256


@dataclass(frozen=True)
class LanguageModelConfig:
    """The sizes of the model. `dim` must divide by `heads` into heads of even width."""

    dim: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 64
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        if self.dim % (2 * self.heads):
            raise ValueError(f"dim {self.dim} does not divide into {self.heads} heads of even width")

    @property
    def hidden(self) -> int:
        """Width inside the SwiGLU: 8/3 of dim, rounded up to 8 (three matrices cost as two of 4 dim)."""
        return hidden_width(self.dim)


def parameter_count(config: LanguageModelConfig) -> int:
    """Return the model's parameters: embedding, head, and a layer's 4 D^2 + 3 D hidden + 2 D."""
    layer = 4 * config.dim**2 + 3 * config.dim * config.hidden + 2 * config.dim
    tables = VOCABULARY * config.dim * (1 if config.tie_embeddings else 2)
    return tables + config.layers * layer + config.dim


class WideEmbedding(nn.Embedding):
    """Rows of the table, whose gradients are summed in fp32 and rounded once.

    In bf16 the sum over a frequent byte's places stops growing where the next addend is less than half a unit
    of it: a batch of two thousand bytes loses a tenth of it, and how much depends on how the batch is split.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Integers of any shape in; one dimension more out, in the table's dtype."""
        return F.embedding(input, self.weight.float()).to(self.weight.dtype)


class RMSNorm(nn.Module):
    """Divide by the root mean square of the last dimension, then scale (Zhang and Sennrich 2019)."""

    def __init__(self, dim: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise in fp32, return the dtype that came in."""
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (scaled * self.weight.float()).to(x.dtype)


def rotary_angles(context: int, width: int, base: float = 10000.0) -> Tensor:
    """Return the angle of each position and channel pair, shape (context, width / 2) (Su et al. 2021)."""
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    return torch.outer(torch.arange(context, dtype=torch.float32), frequencies)


def rotate(x_BHSK: Tensor, angles: Tensor) -> Tensor:
    """Turn each pair of channels (k, k + K/2) by the angle of its position."""
    cos, sin = angles.cos().to(x_BHSK.dtype), angles.sin().to(x_BHSK.dtype)
    first, second = x_BHSK.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.key = nn.Linear(config.dim, config.dim, bias=False)
        self.value = nn.Linear(config.dim, config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x_BSD: Tensor, angles: Tensor) -> Tensor:
        """Attend to this and earlier positions; (B, S, D) in and out."""
        q, k, v = (self._split(project(x_BSD)) for project in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(rotate(q, angles), rotate(k, angles), v, is_causal=True)
        return self._join(mixed)

    def _split(self, x_BSD: Tensor) -> Tensor:
        batch, length, dim = x_BSD.shape
        return x_BSD.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)

    def _join(self, x_BHSK: Tensor) -> Tensor:
        batch, heads, length, width = x_BHSK.shape
        joined: Tensor = self.out(x_BHSK.transpose(1, 2).reshape(batch, length, heads * width))
        return joined


class SwiGLU(nn.Module):
    """The gated feed-forward: down(silu(gate(x)) * up(x)) (Shazeer 2020)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """(B, S, D) in and out."""
        out: Tensor = self.down(F.silu(self.gate(x_BSD)) * self.up(x_BSD))
        return out


class Layer(nn.Module):
    """One pre-norm transformer layer: attention, then the feed-forward, each added to its input."""

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.dim)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config.dim)
        self.feed_forward = SwiGLU(config.dim, config.hidden)

    def forward(self, x_BSD: Tensor, angles: Tensor) -> Tensor:
        """(B, S, D) in and out; `angles` covers the S positions."""
        x_BSD = x_BSD + self.attention(self.attention_norm(x_BSD), angles)
        out: Tensor = x_BSD + self.feed_forward(self.feed_forward_norm(x_BSD))
        return out


class LanguageModel(nn.Module):
    """Bytes in, logits of the next byte out."""

    angles: Tensor

    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = WideEmbedding(VOCABULARY, config.dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.dim)
        self.head = nn.Linear(config.dim, VOCABULARY, bias=False)
        self.register_buffer(
            "angles", rotary_angles(config.context, config.dim // config.heads), persistent=False
        )
        self._initialise()
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """Return logits of shape (B, S, 256) for integer tokens of shape (B, S), S at most the context."""
        x_BSD = self.embedding(tokens_BS)
        angles = self.angles[: tokens_BS.shape[1]]
        for layer in self.layers:
            x_BSD = layer(x_BSD, angles)
        logits: Tensor = self.head(self.norm(x_BSD))
        return logits

    def _initialise(self) -> None:
        """Normal weights of 0.02; what adds to the residual stream is scaled by 1/sqrt(2 layers) (GPT-2)."""
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            residual = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * self.config.layers) ** 0.5 if residual else 0.02)


def next_byte_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy in nats a byte; logits (B, S, 256), integer targets (B, S)."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

"""Which sizes the labs' two models may have: the deep MLP and the small transformer. Loads no torch."""

from __future__ import annotations

from labs.params import ParameterError

DEEPEST_MLP = 32
"""Each layer hands on a third of a mean square: with twice as many the loss leaves fp32's normal numbers."""


def check_depth(layers: int, deepest: int = DEEPEST_MLP) -> None:
    """Refuse an MLP so deep that nothing reaches its end.

    Raises:
        ParameterError: naming `--layers` and how many may be.
    """
    if layers > deepest:
        raise ParameterError(
            "--layers",
            f"{layers} layers of the mlp, each of which hands on a third of what it gets, leave nothing to "
            f"learn from; give {deepest} or fewer, or --model lm",
        )


def hidden_width(dim: int) -> int:
    """Return the width inside the transformer's feed-forward: 8/3 of `dim`, rounded up to 8."""
    return -(-8 * dim // 3 // 8) * 8


def check_heads(dim: int, heads: int) -> None:
    """Refuse heads that do not share the width, or of odd width: a rotary embedding turns pairs of features.

    Raises:
        ParameterError: naming `--dim` and the next that would fit.
    """
    if dim % (2 * heads):
        fits = (dim // (2 * heads) + 1) * 2 * heads
        raise ParameterError(
            "--dim", f"{dim} does not divide into {heads} heads of even width; {fits} would fit"
        )

"""Which sizes the small transformer may have, for every lab that trains it. Loads no torch."""

from __future__ import annotations

from labs.params import ParameterError


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

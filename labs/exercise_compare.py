"""Where two results differ first, and what the pattern of the difference usually means. Pure.

Results are dicts of what a check compares: tensors, numbers, texts, and lists or dicts of those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

RELATIVE = 1e-4
ABSOLUTE = 1e-6


@dataclass(frozen=True)
class Difference:
    """The first place where a result is not what it should be; `order` is the place of its item."""

    order: int
    item: str
    index: str
    expected: str
    got: str
    pattern: str = ""
    """What kind of difference it is, where that is plain: `4 times too large`."""


def first_difference(
    expected: Mapping[str, Any], got: Mapping[str, Any], world_size: int = 0
) -> Difference | None:
    """Return the first difference, item by item in the order of `expected`; None where all is alike."""
    for order, (item, wanted) in enumerate(expected.items()):
        found = _differs(wanted, got.get(item), "", world_size)
        if found is not None:
            index, want, have, pattern = found
            return Difference(order, item, index, want, have, pattern)
    return None


def alike(one: Any, other: Any) -> bool:
    """Whether two results, or parts of them, are equal but for rounding."""
    return _differs(one, other, "", 0) is None


_Found = tuple[str, str, str, str]
"""Index, expected, got, pattern."""


def _differs(expected: Any, got: Any, index: str, world_size: int) -> _Found | None:
    if isinstance(expected, Tensor):
        return _tensors(expected, got, index, world_size)
    if isinstance(expected, Mapping):
        return _mappings(expected, got, index, world_size)
    if isinstance(expected, list | tuple):
        return _sequences(expected, got, index, world_size)
    if isinstance(got, Tensor) and got.numel() == 1 and isinstance(expected, float | int):
        got = got.item()
    if isinstance(expected, float) and isinstance(got, int | float) and not isinstance(got, bool):
        if math.isclose(expected, got, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            return None
        ratio = got / expected if expected else math.nan
        return index, _text(expected), _text(float(got)), _times(ratio, world_size)
    if type(got) is type(expected) and got == expected:
        return None
    return index, _text(expected), _text(got), "nothing was returned" if got is None else ""


def _mappings(expected: Mapping[Any, Any], got: Any, index: str, world_size: int) -> _Found | None:
    if not isinstance(got, Mapping):
        return index, f"a dict of {', '.join(map(str, expected))}", _text(got), _absent(got)
    for key, wanted in expected.items():
        if key not in got:
            return f"{index}[{key!r}]", _text(wanted), "nothing under that key", ""
        if (found := _differs(wanted, got[key], f"{index}[{key!r}]", world_size)) is not None:
            return found
    extra = [key for key in got if key not in expected]
    return (f"{index}[{extra[0]!r}]", "no such key", _text(got[extra[0]]), "") if extra else None


def _sequences(expected: Any, got: Any, index: str, world_size: int) -> _Found | None:
    if not isinstance(got, list | tuple):
        return index, _text(expected), _text(got), _absent(got)
    for number, (wanted, have) in enumerate(zip(expected, got, strict=False)):
        if (found := _differs(wanted, have, f"{index}[{number}]", world_size)) is not None:
            return found
    if len(expected) == len(got):
        return None
    at = min(len(expected), len(got))
    want = _text(expected[at]) if at < len(expected) else f"nothing more after {at}"
    have = _text(got[at]) if at < len(got) else f"nothing more after {at}"
    return f"{index}[{at}]", want, have, f"{len(got)} entries in place of {len(expected)}"


def _tensors(expected: Tensor, got: Any, index: str, world_size: int) -> _Found | None:
    if not isinstance(got, Tensor):
        return index, f"a tensor of shape {list(expected.shape)}", _text(got), _absent(got)
    got = got.detach()
    if got.shape != expected.shape:
        shapes = (f"shape {list(expected.shape)}", f"shape {list(got.shape)}")
        return index, *shapes, "the shapes differ"
    if got.dtype != expected.dtype:
        return index, str(expected.dtype), str(got.dtype), "the element types differ"
    wide, have = expected.detach().double().reshape(-1), got.double().reshape(-1)
    scale = float(wide.abs().max()) if wide.numel() else 0.0
    near = torch.isclose(have, wide, rtol=RELATIVE, atol=ABSOLUTE + 1e-5 * scale, equal_nan=True)
    if bool(near.all()):
        return None
    first = int((~near).nonzero()[0])
    where = f"{index}{_place(first, tuple(expected.shape))}"
    return where, _text(float(wide[first])), _text(float(have[first])), _pattern(wide, have, near, world_size)


def _place(number: int, shape: tuple[int, ...]) -> list[int]:
    """Turn the number of an element into its indices (torch's own function loads its compiler)."""
    place: list[int] = []
    for size in reversed(shape):
        number, index = divmod(number, size)
        place.insert(0, index)
    return place


def _pattern(expected: Tensor, got: Tensor, near: Tensor, world_size: int) -> str:
    """Name what the whole tensor's difference looks like."""
    if bool(got.isnan().any()):
        return "there are NaNs in it"
    used = expected.abs() > 1e-3 * expected.abs().max()
    ratios = got[used] / expected[used]
    if bool((got == 0).all()):
        return "all of it is zero"
    if ratios.numel() and torch.allclose(ratios, ratios[0].expand_as(ratios), rtol=1e-3):
        return _times(float(ratios[0]), world_size)
    right = int(near.sum())
    return f"{right} of {near.numel()} elements are right" if right else "no element is right"


def _times(ratio: float, world_size: int) -> str:
    if not math.isfinite(ratio) or ratio == 0:
        return ""
    of_w = " (W, the number of ranks)"
    if world_size > 1 and math.isclose(ratio, world_size, rel_tol=1e-3):
        return f"all of it is {world_size} times too large{of_w}"
    if world_size > 1 and math.isclose(ratio * world_size, 1, rel_tol=1e-3):
        return f"all of it is {world_size} times too small{of_w}"
    if math.isclose(ratio, -1, rel_tol=1e-3):
        return "all of it has the wrong sign"
    return f"all of it is {ratio:.4g} times what it should be"


def _absent(got: Any) -> str:
    return "nothing was returned" if got is None else f"a {type(got).__name__} was returned"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if value is None:
        return "None"
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."

"""Numbers as people read them: bytes, times, measured values. Pure functions."""

from __future__ import annotations

from launcher.events import Measured

COUNTED = 1e9
"""Whole numbers below this are shown digit by digit."""


def size(num_bytes: float) -> str:
    """Return bytes in decimal units, `4.19 MB`; -1 (not known) is a dash."""
    if num_bytes < 0:
        return "-"
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{_three(value)} {unit}"
        value /= 1000
    return f"{_three(value)} TB"


def duration(seconds: float) -> str:
    """Return a time with a unit that fits: `840 us`, `12.4 ms`, `3.21 s`, `2 min 05 s`."""
    if seconds < 0:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{_three(seconds * 1e3)} ms"
    if seconds < 100:
        return f"{_three(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def number(value: Measured, unit: str = "") -> str:
    """Return a measured or expected value with its unit; a value that is not there is a dash."""
    if value is None:
        return "-"
    if unit == "B" and isinstance(value, int | float) and not isinstance(value, bool):
        return size(value)
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, float):
        whole = value.is_integer() and abs(value) < COUNTED
        text = f"{value:.0f}" if whole else f"{value:.5g}"
    else:
        text = str(value)
    return f"{text} {unit}".strip()


def allowance(tolerance: float, unit: str = "") -> str:
    """Return by how much a value may differ; bytes as bytes, any other without its unit."""
    return size(tolerance) if unit == "B" else f"{tolerance:.3g}"


def count(amount: int, noun: str) -> str:
    """Return `1 check`, `2 checks`."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def ranks_text(ranks: list[int] | tuple[int, ...]) -> str:
    """Return rank numbers with runs joined: `0-3, 6`."""
    parts: list[str] = []
    start = previous = None
    for rank in [*sorted(set(ranks)), None]:
        if previous is not None and rank == previous + 1:
            previous = rank
            continue
        if start is not None and previous is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = rank
    return ", ".join(parts)


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"

"""Find the rank that skipped a collective."""

from __future__ import annotations


def who_skipped(calls: list[list[str]]) -> tuple[int, int]:
    """Return the rank that skipped a collective, and the place of that call in the program, from 0.

    Args:
        calls: for each rank what it called, in order, such as `all_reduce 64` (operation and elements); the
            lists may end at different places. There are at least three ranks; exactly one skipped one call.
    """
    raise NotImplementedError

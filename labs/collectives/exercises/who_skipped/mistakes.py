"""Wrong ways to find who skipped."""

from __future__ import annotations

from collections import Counter


def compared_with_rank_0(calls: list[list[str]]) -> tuple[int, int]:
    """You compared everyone with rank 0. Where rank 0 itself skipped, everyone else looks wrong: compare with
    what most ranks called."""
    for rank, each in enumerate(calls[1:], start=1):
        for place, (call, first) in enumerate(zip(each, calls[0], strict=False)):
            if call != first:
                return rank, place
    rank = min(range(len(calls)), key=lambda each: len(calls[each]))
    return rank, len(calls[rank])


def the_shortest_list(calls: list[list[str]]) -> tuple[int, int]:
    """You named the rank with the fewest calls. A rank that skipped runs ahead while the others hang in the
    call before, so its list may well be the longest."""
    rank = min(range(len(calls)), key=lambda each: len(calls[each]))
    return rank, _first_difference(calls)


def the_last_call_of_the_list(calls: list[list[str]]) -> tuple[int, int]:
    """You named the call in which the rank waits at the end. The hang shows later than the mistake: the
    place is the first one where its list differs."""
    rank = _odd_one(calls)
    return rank, len(calls[rank]) - 1


def one_place_too_late(calls: list[list[str]]) -> tuple[int, int]:
    """The place is one too high: where the lists differ first, the odd rank has the call after the skipped
    one, so that is the place of the skipped call itself."""
    return _odd_one(calls), _first_difference(calls) + 1


def a_shorter_list_counts_as_a_difference(calls: list[list[str]]) -> tuple[int, int]:
    """A rank whose list has merely ended was taken for the one that differs: it only did not get farther.
    Skip lists that are over, unless none differs anywhere."""
    for place in range(max(map(len, calls))):
        there = [each[place] if place < len(each) else "" for each in calls]
        usual = Counter(there).most_common(1)[0][0]
        for rank, call in enumerate(there):
            if call != usual:
                return rank, place
    return 0, 0


def _first_difference(calls: list[list[str]]) -> int:
    for place in range(max(map(len, calls))):
        if len({each[place] for each in calls if place < len(each)}) > 1:
            return place
    return min(map(len, calls))


def _odd_one(calls: list[list[str]]) -> int:
    place = _first_difference(calls)
    there = {rank: each[place] for rank, each in enumerate(calls) if place < len(each)}
    usual = Counter(there.values()).most_common(1)[0][0]
    odd = [rank for rank, call in there.items() if call != usual]
    return odd[0] if odd else min(range(len(calls)), key=lambda each: len(calls[each]))

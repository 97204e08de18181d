"""DualPipeV's own bubble, (PP/2-1)(F&B + B - 3W), which holds where its pairs overlap as one unit of work.

PP counts the stages, two on each of p ranks, so PP/2 is p; F, B and W are costs of one stage, and F&B that of
a forward and a backward that run together. Source: the description of DualPipeV, DeepSeek 2025.
"""

from __future__ import annotations

import pytest

from labs.parallel.schedule_actions import Action, dependency
from labs.parallel.schedules import build

Unit = tuple[Action, ...]


def units_of(rank: int, row: tuple[Action, ...], p: int) -> list[Unit]:
    """A rank's row with its pairs of a forward and a backward of the two chunks taken together.

    The last rank's very first pair is left apart: overlapping it would only delay what others wait for.
    """
    units: list[Unit] = []
    apart = rank == p - 1
    index = 0
    while index < len(row):
        pair = row[index : index + 2]
        if [one.kind for one in pair] == ["F", "B"] and pair[0].stage != pair[1].stage and not apart:
            units.append(pair)
            index += 2
            continue
        apart = apart and [one.kind for one in pair] != ["F", "B"]
        units.append(pair[:1])
        index += 1
    return units


def key(action: Action) -> Action:
    return action._replace(kind="I") if action.kind == "B" else action


def idle_times(p: int, m: int, costs: dict[str, float], overlapped: float) -> list[float]:
    """How long each rank is idle, where a pair takes `overlapped` and gives both its results at its end."""
    rows = [units_of(rank, row, p) for rank, row in enumerate(build("dualpipev", p, m).rows)]
    assert any(len(unit) == 2 for row in rows for unit in row)
    ends: dict[Action, float] = {}
    clocks, work, done = [0.0] * p, [0.0] * p, [0] * p
    while sum(done) < sum(map(len, rows)):
        before = sum(done)
        for rank, row in enumerate(rows):
            while done[rank] < len(row):
                unit = row[done[rank]]
                needs = [need for action in unit if (need := dependency(action, 2 * p)) is not None]
                if any(need not in ends for need in needs):
                    break
                cost = overlapped if len(unit) == 2 else costs[unit[0].kind]
                clocks[rank] = max([clocks[rank], *(ends[need] for need in needs)]) + cost
                work[rank] += cost
                ends.update({key(action): clocks[rank] for action in unit})
                done[rank] += 1
        assert sum(done) > before, "a deadlock"
    return [max(clocks) - worked for worked in work]


@pytest.mark.parametrize(("p", "m"), [(2, 4), (2, 10), (4, 8), (4, 12), (8, 16), (8, 32)])
@pytest.mark.parametrize(
    ("forward", "weight", "overlapped"), [(1.0, 1.0, 3.0), (1.0, 1.0, 2.5), (1.0, 0.8, 2.2), (1.0, 0.5, 2.0)]
)
def test_the_idlest_rank_has_the_bubble_of_the_formula(
    p: int, m: int, forward: float, weight: float, overlapped: float
) -> None:
    """An input gradient costs as much as a forward, a weight gradient no more than that."""
    backward = forward + weight
    costs = {"F": forward, "B": backward, "I": forward, "W": weight}
    assert max(idle_times(p, m, costs, overlapped)) == pytest.approx(
        (p - 1) * (overlapped + backward - 3 * weight)
    )

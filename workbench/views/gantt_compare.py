"""Another schedule beside a run's own: the same ranks, micro-batches and costs, run on paper.

The schedule generators load no torch, so the view asks them itself: a worker would have to tell a plan of
every schedule that somebody might want to see, in each run.
"""

from __future__ import annotations

from labs.parallel.schedule_actions import Kind
from labs.parallel.schedule_simulator import Costs, simulate
from labs.parallel.schedules import NAMES, build, misfit_chunks, misfit_micro_batches, rule_of
from workbench.views.gantt_chart import Chart, chart_of, gantt_action


def costs_of(planned: Chart) -> Costs:
    """Return the mean cost in ms of F, I and W of a chart, for a rank's full depth; B is split in halves."""
    times: dict[Kind, list[float]] = {"F": [], "B": [], "I": [], "W": []}
    chunks = max((len({one.stage for one in lane}) for lane in planned.lanes), default=1)
    for lane in planned.lanes:
        for one in lane:
            times[one.kind].append((one.end - one.start) * chunks)
    mean = {kind: sum(values) / len(values) if values else 0.0 for kind, values in times.items()}
    half = mean["B"] / 2
    return Costs(mean["F"], mean["I"] or half, mean["W"] or half)


def shape_of(planned: Chart) -> tuple[int, int]:
    """Return the ranks of one pipeline and its micro-batches.

    Lanes that do the same stages, replicas or the parts of a split layer, count as one rank.
    """
    ranks = {frozenset(one.stage for one in lane) for lane in planned.lanes if lane}
    return len(ranks), 1 + max((one.micro_batch for lane in planned.lanes for one in lane), default=-1)


def others(planned: Chart, name: str) -> tuple[str, ...]:
    """Return the schedules that could run in place of `name`, in their order."""
    ranks, micro_batches = shape_of(planned)
    if ranks < 2 or micro_batches < 1:
        return ()
    return tuple(
        other for other in NAMES if other != name and not misfit_micro_batches(other, ranks, micro_batches)
    )


def plan_of(name: str, planned: Chart) -> Chart:
    """Return what schedule `name` would make of the ranks, micro-batches and costs of `planned`.

    Raises: ScheduleError: it cannot be built for them; not for those of `others`.
    """
    ranks, micro_batches = shape_of(planned)
    mine = max((len({one.stage for one in lane}) for lane in planned.lanes), default=1)
    chunks = rule_of(name).default_chunks if misfit_chunks(name, mine) else mine
    simulation = simulate(build(name, ranks, micro_batches, chunks), costs_of(planned))
    lanes = tuple(
        tuple(gantt_action(timed.action, timed.start, timed.end) for timed in row) for row in simulation.rows
    )
    return chart_of(lanes, whole=True)

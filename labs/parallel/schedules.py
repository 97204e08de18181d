"""Pipeline schedules as pure generators: for p ranks, m micro-batches and v chunks, who does what in which
order.

F is a forward, B a full backward; the zero-bubble family splits B into I (gradient of the input, which the
stage before waits for) and W (gradient of the weights, which nobody waits for and which therefore fills
bubbles).
Sources: GPipe (Huang et al. 2019), PipeDream-flush as 1F1B (Narayanan et al. 2021), interleaved 1F1B (ibid.),
breadth-first (Lamy-Poirier 2022), ZB-H1 and interleaved ZB (Qi et al. 2023), ZBV (Qi et al. 2024), DualPipeV
(DeepSeek 2025). Loads no torch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from labs.parallel.schedule_actions import Action, Kind, Placement, Schedule, ScheduleError, stages_of

MAX_CHUNKS = 16


class Tape:
    """The row of one rank as it is written: it counts the micro-batches of each chunk and kind by itself.

    Every schedule here takes the micro-batches of a chunk in order, so a schedule is fully told by
    which kind of work on which chunk comes next.
    """

    def __init__(self, stages: tuple[int, ...]) -> None:
        self.actions: list[Action] = []
        self._stages = stages
        self._next: Counter[tuple[Kind, int]] = Counter()
        self._pending: deque[tuple[int, int]] = deque()

    def add(self, kind: Kind, chunk: int) -> None:
        """Append the next micro-batch of `kind` on `chunk`."""
        micro_batch = self._next["I" if kind == "B" else kind, chunk]
        self.actions.append(Action(self._stages[chunk], kind, micro_batch))
        for done in ("I", "W") if kind == "B" else (kind,):
            self._next[done, chunk] += 1
        if kind == "I":
            self._pending.append((chunk, micro_batch))
        elif kind == "W":
            self._pending.remove((chunk, micro_batch))

    def add_weight(self) -> None:
        """Append the W of the oldest I that still owes one, if there is one."""
        if self._pending:
            self.add("W", self._pending[0][0])

    def script(self, repeat: int, words: str) -> None:
        """Append `words` (`F0 I1 W1 W`: kind and chunk; a bare W is the oldest owed) `repeat` times."""
        for _ in range(repeat):
            for word in words.split():
                if word == "W":
                    self.add_weight()
                else:
                    self.add(_kind(word[0]), int(word[1:]))

    def flush(self) -> None:
        """Append every W that is still owed, oldest first."""
        while self._pending:
            self.add_weight()

    def owes(self, chunk: int) -> int:
        """Return how many W of `chunk` are owed."""
        return sum(owed == chunk for owed, _ in self._pending)


def _kind(letter: str) -> Kind:
    kinds: dict[str, Kind] = {"F": "F", "B": "B", "I": "I", "W": "W"}
    return kinds[letter]


Generator = Callable[[int, int, int, int], Iterable[Action]]
"""(rank, p, m, v) -> the actions of that rank."""


def _naive(rank: int, p: int, m: int, v: int) -> Iterable[Action]:
    """One micro-batch at a time through the whole pipeline: at every moment one rank works [L8]."""
    for micro_batch in range(m):
        yield Action(rank, "F", micro_batch)
        yield Action(rank, "B", micro_batch)


def _gpipe(rank: int, p: int, m: int, v: int) -> Iterable[Action]:
    """All forwards, then all backwards: every activation lives until the backwards start."""
    yield from (Action(rank, "F", micro_batch) for micro_batch in range(m))
    yield from (Action(rank, "B", micro_batch) for micro_batch in range(m))


def _looped_bfs(rank: int, p: int, m: int, v: int) -> Iterable[Action]:
    """Each chunk takes all micro-batches before the next chunk starts; backwards come in mirror order."""
    stages = stages_of(rank, p, v, "loop")
    yield from (Action(stage, "F", micro_batch) for stage in stages for micro_batch in range(m))
    yield from (
        Action(stage, "B", micro_batch) for stage in reversed(stages) for micro_batch in reversed(range(m))
    )


def _one_forward_one_backward(rank: int, p: int, m: int, v: int, hop: int, lag: int | None) -> list[Action]:
    """The pattern behind 1F1B and its relatives: warm up with forwards, alternate, drain.

    Work comes in rounds of p micro-batches: a round visits the chunks in order forwards and in reverse order
    backwards. The last rank warms up with all but its last chunk's first round, every rank before it with
    `hop` more forwards (2 if it must wait for a full backward to come back, 1 if it may run ahead). With
    `lag` the backward is split, and the k-th W follows the I number k + lag: rank r has r fewer forwards in
    flight than rank 0, so owing r weight gradients costs it no more memory than rank 0 has.
    """
    tape = Tape(stages_of(rank, p, v, "loop"))
    total = m * v
    warmup = min(total, (v - 1) * p + hop * (p - 1 - rank))
    for unit in range(warmup):
        tape.add("F", unit // p % v)
    for unit in range(total):
        if warmup + unit < total:
            tape.add("F", (warmup + unit) // p % v)
        tape.add("B" if lag is None else "I", v - 1 - unit // p % v)
        if lag is not None and unit >= lag:
            tape.add_weight()
    tape.flush()
    return tape.actions


def _1f1b(rank: int, p: int, m: int, v: int) -> Iterable[Action]:
    return _one_forward_one_backward(rank, p, m, 1, hop=1, lag=None)


def _interleaved(rank: int, p: int, m: int, v: int) -> Iterable[Action]:
    return _one_forward_one_backward(rank, p, m, v, hop=2, lag=None)


def _zero_bubble(rank: int, p: int, m: int, v: int) -> Iterable[Action]:
    return _one_forward_one_backward(rank, p, m, v, hop=1, lag=rank)


def _zbv(rank: int, p: int, m: int, v: int) -> Iterable[Action]:
    """ZBV: chunk 0 runs down the ranks, chunk 1 back up, so the loss arises on rank 0 and every rank
    starts its backwards as its own forwards end. The pattern needs 2p-1 micro-batches; for fewer it is
    the same with the missing ones struck out."""
    tape = Tape(stages_of(rank, p, 2, "v"))
    full = max(m, 2 * p - 1)
    tape.script(2 * (p - rank) - 1, "F0")
    tape.script(rank, "F1 F0")
    tape.script(p - rank, "F1 I1 W1")
    ahead = 2 * p - 1 - rank
    tape.script(full - ahead, "F0 I0 W0 F1 I1 W1")
    tape.script(ahead - p, "I0 W0 F1 I1 W1")
    tape.script(rank, "I0 I1")
    tape.script(p - rank, "I0 W0")
    tape.script(tape.owes(1), "W1")
    tape.script(tape.owes(0), "W0")
    return (action for action in tape.actions if action.micro_batch < m)


def _dualpipev(rank: int, p: int, m: int, v: int) -> Iterable[Action]:
    """DualPipeV in the eight steps of its description; the pairs `F B` of the main part are those that
    a system with separate communication streams would overlap."""
    tape = Tape(stages_of(rank, p, 2, "v"))
    before = p - 1 - rank
    tape.script(2 * before, "F0")
    tape.script(rank + 1, "F0 F1")
    tape.script(before, "I1 W F1")
    tape.script(m - 2 * p + rank + 1, "F0 B1 F1 B0")
    tape.script(before, "B1 F1 B0")
    # From the middle of the drain on, the backwards are split and their W fill what would be bubbles.
    drain = [chunk for _ in range(rank + 1) for chunk in (1, 0)]
    for index, chunk in enumerate(drain):
        tape.add("I" if index > rank else "B", chunk)
    tape.script(before, "W I0")
    tape.script(rank + 1, "W")
    return tape.actions


@dataclass(frozen=True)
class Rule:
    """How a schedule is generated and which numbers fit it."""

    generate: Generator
    title: str
    placement: Placement = "loop"
    min_chunks: int = 1
    max_chunks: int = 1
    rounds: bool = False
    """Whether m must be a multiple of p."""
    stages_first: bool = False
    """Whether m must be at least the number of stages."""
    splits: bool = False

    @property
    def default_chunks(self) -> int:
        return min(2, self.max_chunks)


RULES: dict[str, Rule] = {
    "naive": Rule(_naive, "naive model parallel"),
    "gpipe": Rule(_gpipe, "GPipe"),
    "1f1b": Rule(_1f1b, "1F1B"),
    "interleaved": Rule(_interleaved, "interleaved 1F1B", min_chunks=2, max_chunks=MAX_CHUNKS, rounds=True),
    "looped_bfs": Rule(_looped_bfs, "looped breadth-first", min_chunks=2, max_chunks=MAX_CHUNKS),
    "zb_h1": Rule(_zero_bubble, "ZB-H1", splits=True),
    "interleaved_zb": Rule(
        _zero_bubble, "interleaved ZB", min_chunks=2, max_chunks=MAX_CHUNKS, rounds=True, splits=True
    ),
    "zbv": Rule(_zbv, "ZBV", placement="v", min_chunks=2, max_chunks=2, splits=True),
    "dualpipev": Rule(
        _dualpipev, "DualPipeV", placement="v", min_chunks=2, max_chunks=2, stages_first=True, splits=True
    ),
}
NAMES = tuple(RULES)


def rule_of(name: str) -> Rule:
    """Return the rule of a schedule.

    Raises:
        ScheduleError: there is no such schedule; the message names those there are.
    """
    if name not in RULES:
        raise ScheduleError(f"no schedule named {name!r}; schedules: {', '.join(NAMES)}")
    return RULES[name]


def misfit_chunks(name: str, v: int) -> str | None:
    """Return why `v` chunks a rank do not fit the schedule and which would, or None if they do."""
    rule = rule_of(name)
    if rule.min_chunks <= v <= rule.max_chunks:
        return None
    if rule.max_chunks == rule.min_chunks:
        return f"{name} has exactly {rule.min_chunks} chunk{'s' * (rule.min_chunks > 1)} a rank, not {v}"
    return f"{name} has {rule.min_chunks} to {rule.max_chunks} chunks a rank, not {v}"


def misfit_micro_batches(name: str, p: int, m: int) -> str | None:
    """Return why `m` micro-batches on `p` ranks do not fit and which numbers would, or None if they do."""
    rule = rule_of(name)
    if m < 1:
        return f"{name} needs at least 1 micro-batch, not {m}"
    if rule.rounds and m % p:
        below = [str(m // p * p)] if m > p else []
        fits = " or ".join([*below, str((m // p + 1) * p)])
        return f"{name} needs a multiple of the {p} ranks, not {m}; {fits} would fit"
    if rule.stages_first and m < 2 * p:
        return f"{name} needs at least as many as there are stages, not {m}; {2 * p} or more would fit"
    return None


def build(name: str, num_ranks: int, num_micro_batches: int, chunks: int | None = None) -> Schedule:
    """Return the schedule `name` for p ranks, m micro-batches and v chunks (the schedule's own default).

    Raises:
        ScheduleError: no such schedule, or numbers that do not fit it; says which would.
    """
    rule = rule_of(name)
    v = rule.default_chunks if chunks is None else chunks
    if num_ranks < 1:
        raise ScheduleError(f"a pipeline needs at least 1 rank, not {num_ranks}")
    reason = misfit_chunks(name, v) or misfit_micro_batches(name, num_ranks, num_micro_batches)
    if reason:
        raise ScheduleError(reason)
    rows = tuple(tuple(rule.generate(rank, num_ranks, num_micro_batches, v)) for rank in range(num_ranks))
    return Schedule(name, num_ranks, num_micro_batches, v, rule.placement, rows)

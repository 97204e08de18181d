"""Did all ranks take part in the same collectives? Asked through the store, so that asking cannot hang.

A rank that skips a collective seldom fails itself: its next call is paired with the others' previous one, and
somebody waits at the end. So each rank writes its sequence numbers, and what it waits in, under its own key
of the TCPStore, and reads the others' with a short timeout.
"""

from __future__ import annotations

import contextlib
import datetime

import msgspec
import torch.distributed as dist

from labs.context import Context

NAME = "same collectives on every rank"
SHOWS = "each rank issued as many collectives in each group as its peers did"
GRACE_S = 2.0
"""How much longer than a collective may take a rank waits at the end, so that who is stuck speaks first."""


class MisalignedError(RuntimeError):
    """The ranks did not take part in the same collectives."""


class Account(msgspec.Struct, frozen=True):
    """What one rank did: members and number of collectives by group, and the call it never came back from."""

    counts: dict[str, int]
    members: dict[str, list[int]]
    pending: tuple[str, str, int] | None = None
    left: bool = False
    """Whether it ended for a reason of its own, which its failure tells."""


def account_of(ctx: Context, *, left: bool = False) -> Account:
    """Return this rank's account; groups that its communicators never used are absent."""
    ledger = ctx.comms.ledger
    return Account(dict(ledger.sequence), ledger.members, ledger.pending, left)


def publish(account: Account, rank: int) -> None:
    """Put a rank's account where the others find it; does not wait for anybody."""
    store = dist.distributed_c10d._get_default_store()
    store.set(_key(rank), msgspec.json.encode(account).decode())


def settle(ctx: Context, patience_s: float, known: str = "") -> str:
    """Publish this rank's account, read the others', and emit the check; returns what is wrong, or "".

    Rank 0 emits the check where all agree; where they do not, every rank that found it out does. `known` is
    what is wrong already by other evidence, told where the accounts alone show nothing. Where a rank left for
    a reason of its own there is nothing to compare, and no check.
    """
    store = dist.distributed_c10d._get_default_store()
    mine = account_of(ctx)
    publish(mine, ctx.rank)
    accounts = {ctx.rank: mine}
    for rank in range(ctx.world_size):
        if rank == ctx.rank:
            continue
        try:
            store.wait([_key(rank)], datetime.timedelta(seconds=patience_s))
            accounts[rank] = msgspec.json.decode(store.get(_key(rank)), type=Account)
        except (RuntimeError, ConnectionError):
            patience_s = 0.1  # the others had the same time already
    if any(account.left for account in accounts.values()):
        return ""
    wrong = difference(accounts, ctx.world_size) or known
    total = sum(mine.counts.values())
    if wrong or ctx.rank == 0:
        measured = wrong or f"{total} on each rank"
        ctx.check(NAME, not wrong, measured=measured, expected=f"{total} on each rank", shows=SHOWS)
    return wrong


def leave(ctx: Context) -> None:
    """Before a rank ends by its own failure: tell the others not to look for its collectives."""
    with contextlib.suppress(Exception):  # the store may be gone as well
        publish(account_of(ctx, left=True), ctx.rank)


def has_ended(rank: int) -> bool:
    """Whether a rank has come to its end, well or not: it has put its account where the others find it."""
    store = dist.distributed_c10d._get_default_store()
    return bool(store.check([_key(rank)]))


def report(ctx: Context, known: str) -> None:
    """After a failed collective: say by the check, beside the exception, who did not take part.

    `known` is what the exception says, for where all took part but brought something different.
    """
    with contextlib.suppress(Exception):  # the store dies with rank 0; the failure itself is still told
        settle(ctx, patience_s=0.5, known=known)


def difference(accounts: dict[int, Account], world_size: int) -> str:
    """Say in one sentence where the ranks' accounts differ, or "" where they agree. Pure."""
    groups: dict[tuple[str, tuple[int, ...]], dict[int, int]] = {}
    for rank, account in accounts.items():
        for name, count in account.counts.items():
            groups.setdefault((name, tuple(account.members[name])), {})[rank] = count
    for (name, members), counts in groups.items():
        seen = {rank: counts.get(rank, 0) for rank in members if rank in accounts}
        if len(set(seen.values())) > 1:
            low = min(seen.values())
            late = [rank for rank, count in seen.items() if count == low]
            others = sorted({count for count in seen.values() if count > low})
            return (
                f"{_ranks(late)} issued {low} collectives of group {name}, "
                f"the others {' or '.join(map(str, others))}: {_ranks(late)} skipped {others[0] - low}"
            )
    waiting = [
        f"rank {r} waits in {a.pending[0]} of {a.pending[1]}" for r, a in accounts.items() if a.pending
    ]
    missing = [rank for rank in range(world_size) if rank not in accounts]
    if missing:
        done = sum(next(iter(accounts.values())).counts.values())
        return (
            f"{_ranks(sorted(accounts))} reached the end after {done} collectives, "
            f"{_ranks(missing)} did not: still waiting for one that was skipped"
        )
    return "; ".join(waiting) if len({account.pending for account in accounts.values()}) > 1 else ""


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _key(rank: int) -> str:
    return f"worldsize/account/{rank}"

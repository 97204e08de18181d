"""What an exception in a rank means: its own fault, another rank's, or a disagreement between them. Pure."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from launcher.events import FailureKind

_LOST_PEER = re.compile(
    r"connection (closed|reset|refused)|socket closed|broken pipe|end of file|remote process exited|"
    r"no(t| longer) connected",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(
    r"timed? ?out|timeout|watchdog caught|(failed to pass|successfully reached) monitoredBarrier",
    re.IGNORECASE,
)
_FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+), OpType=(\w+)"
    r"(?:, TensorShape=\[([^\]]*)\], TensorDtypes=(\w+))?"
)
_MISMATCH = re.compile(r"detected mismatch between collectives|shape mismatch", re.IGNORECASE)


@dataclass(frozen=True)
class Diagnosis:
    """Why a rank ends; `victim` where it only noticed that another one failed or never arrived."""

    kind: FailureKind
    message: str
    traceback: str
    advice: str
    victim: bool = False


def diagnose(error: BaseException, pending: tuple[str, str, int] | None) -> Diagnosis:
    """Return what `error` means, given the call (op, group, number) that the rank did not come back from."""
    text = "".join(traceback.format_exception(error)).rstrip()
    message = str(error).strip().splitlines()[0] if str(error).strip() else ""
    if isinstance(error, SystemExit):
        return Diagnosis(
            "early_exit",
            f"called sys.exit({error.code!r}) before the lab's end",
            text,
            "return from the lab's run instead: the other ranks wait for this one in their next collective",
        )
    if type(error).__name__ == "MisalignedError" or _MISMATCH.search(str(error)):
        return Diagnosis(
            "mismatch",
            disagreement(str(error)) or message,
            text,
            "every rank of a group must issue the same collectives, in the same order, with the same shapes",
        )
    where = f" in {_call(*pending)}" if pending else ""
    if pending and _LOST_PEER.search(str(error)):
        return Diagnosis(
            "exception", f"lost a peer{where}: {message}", text, "see the rank that failed", True
        )
    if pending and _TIMED_OUT.search(str(error)):
        advice = "a rank of the group never arrived there: see which one, and what it was doing"
        return Diagnosis("timeout", f"waited in vain{where}: {message}", text, advice, True)
    return Diagnosis("exception", f"{type(error).__name__}: {message}", text, _advice(error))


def _call(op: str, group: str, number: int) -> str:
    """Say which call; a send, a receive and a wait have no number."""
    return f"{op}{f' number {number}' if number >= 0 else ''} of group {group}"


def disagreement(text: str) -> str:
    """Say in one sentence what torch's two fingerprints (`TORCH_DISTRIBUTED_DEBUG=DETAIL`) disagree in."""
    seen = _FINGERPRINT.findall(text)
    if len(seen) < 2:
        return ""
    (rank, number, op, shape, dtype), (peer, its_number, its_op, its_shape, its_dtype) = sorted(seen[:2])
    op, its_op = _op_name(op), _op_name(its_op)
    if op != its_op:
        return f"rank {rank} calls {op} while rank {peer} calls {its_op}"
    if shape != its_shape:
        return (
            f"in {op} rank {rank} brings a tensor of shape [{shape}] "
            f"and rank {peer} one of shape [{its_shape}]"
        )
    if dtype != its_dtype:
        return f"in {op} rank {rank} brings {dtype} and rank {peer} {its_dtype}"
    return (
        f"in {op} rank {rank} is at its operation {number} of the group and rank {peer} "
        f"at {its_number}: one of them skipped an operation or issued one too many"
    )


def _op_name(torchs: str) -> str:
    """Turn `ALLREDUCE` and `_ALLGATHER_BASE` into the names that labs use."""
    plain = torchs.strip("_").removesuffix("_BASE").lower()
    return {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}.get(plain, plain)


def _advice(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, MemoryError) or "out of memory" in text.lower():
        return "make the model, the batch or the buffers smaller, or use more ranks"
    if "AVG" in text and "gloo" in text.lower():
        return "gloo cannot average this type; use sum and divide by the world size"
    return "the traceback names the line; the rank's own log has what it printed before"

"""The parts of the HTML page that are tables: shards, memory, bytes that moved, and the run itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from launcher.rundir import Manifest, Result
from workbench import palette
from workbench.views.communication import CommunicationSnapshot
from workbench.views.series import Points
from workbench.views.shards import ShardGroup, ShardsSnapshot
from workbench.views.units import duration, ranks_text, size

PIECES_AT_MOST = 64


def section(title: str, body: str, name: str) -> str:
    """Return a section of the page under a heading."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>\n{body}\n</section>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are HTML already."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def shards(snapshot: ShardsSnapshot) -> str:
    """Return which slice of each tensor each rank holds, drawn and in words."""
    rows = [
        (
            escape(group.kind),
            escape(_names(group)),
            escape("x".join(map(str, group.global_shape))),
            _pieces(group),
            escape(_held(group)),
            escape(size(group.bytes_rank)),
        )
        for group in snapshot.groups
    ]
    if not rows:
        return ""
    header = ("kind", "tensors", "whole shape", "slices", "who holds what", "most on a rank")
    hidden = f"<p>{snapshot.hidden} more tensors are in the record.</p>" if snapshot.hidden else ""
    return section("Shards", table(header, rows) + hidden, "shards")


def _names(group: ShardGroup) -> str:
    first = group.names[0]
    return first if len(group.names) == 1 else f"{first} and {len(group.names) - 1} more"


def _pieces(group: ShardGroup) -> str:
    """Where along the cut dimension each rank's piece lies."""
    if group.dim < 0 or not group.global_shape[group.dim]:
        return ""
    length = group.global_shape[group.dim]
    parts = []
    for piece in group.pieces[:PIECES_AT_MOST]:
        start, stop = piece.slices[group.dim]
        left, wide = 100 * start / length, 100 * (stop - start) / length
        parts.append(
            f'<span class="shard" title="rank {piece.rank}: {start} to {stop}" style="left:{left:.2f}%;'
            f'width:{wide:.2f}%;background:{palette.rank_colour(piece.rank)}"></span>'
        )
    return f'<div class="whole">{"".join(parts)}</div>'


def _held(group: ShardGroup) -> str:
    if group.dim == -1:
        return f"all of it on ranks {ranks_text([piece.rank for piece in group.pieces])}"
    words = [
        f"r{piece.rank} [{', '.join(f'{start}:{stop}' for start, stop in piece.slices)}]"
        for piece in group.pieces[:PIECES_AT_MOST]
    ]
    return "; ".join(words)


def memory(used: dict[int, Points], held: ShardsSnapshot, picture: str) -> str:
    """Return what each rank's process took, and how much of it the tensors it told of are."""
    told: dict[int, int] = {}
    for group in held.groups:
        for piece in group.pieces:
            if piece.bytes >= 0:
                told[piece.rank] = told.get(piece.rank, 0) + piece.bytes * len(group.names)
    rows = [
        (
            f"r{rank}",
            escape(size(max((mb for _, mb in used.get(rank, ())), default=-1e-6) * 1e6)),
            escape(size(told.get(rank, -1))),
        )
        for rank in sorted({*used, *told})
    ]
    if not rows:
        return ""
    return section("Memory", table(("rank", "most resident", "tensors told"), rows) + picture, "memory")


def communication(snapshot: CommunicationSnapshot) -> str:
    """Return the bytes that moved by operation and group."""
    rows = [
        (
            escape(row.name),
            escape(row.group or "world"),
            str(row.num_ranks),
            str(row.calls),
            escape(size(row.bytes_rank)),
            escape(duration(row.mean_s)),
            escape(duration(row.total_s)),
        )
        for row in snapshot.rows
    ]
    header = ("operation", "group", "ranks", "calls", "bytes a rank", "mean", "total")
    return section("Communication", table(header, rows), "communication") if rows else ""


def about(manifest: Manifest, result: Result | None) -> str:
    """Return what was run, where, and every metric of it."""
    facts: list[tuple[str, str]] = [
        ("command", manifest.command),
        ("torchrun", manifest.torchrun_command),
        ("backend", f"{manifest.backend} on {manifest.device}. {manifest.why_backend}".strip()),
        ("launcher", manifest.launcher),
        ("seed", str(manifest.seed)),
        *((f"--{name.replace('_', '-')}", str(value)) for name, value in manifest.params.items()),
        *((name, str(value)) for name, value in manifest.machine.items()),
        *((name, value) for name, value in manifest.versions.items()),
    ]
    if result is not None:
        ready = "never" if result.ready_s is None else duration(result.ready_s)
        facts += [
            ("took", duration(result.wall_s)),
            ("ready after", ready),
            ("events", f"{result.events}, {result.dropped} dropped, {result.rejected} rejected"),
            *((name, f"{value:.6g}") for name, value in result.metrics.items()),
        ]
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(text)}</code></dd>" for name, text in facts if text
    )
    return section("Run", f"<dl>{rows}</dl>", "run")

"""The shards: a bar for each tensor (or for all that are spread alike), cut where the ranks' pieces meet."""

from __future__ import annotations

from rich.segment import Segment

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, fit, ink, muted, rank_tag, wrap
from workbench.views.shards import Piece, ShardGroup, ShardsSnapshot
from workbench.views.units import count, ranks_text, size

MAX_NAMES = 40


class ShardsPane(Pane[ShardsSnapshot]):
    """Who holds which rows of the batch and which parameters."""

    NAME = "shards"
    TITLE = "shards"
    MAX_HZ = 2.0

    def lines(self, snapshot: ShardsSnapshot, width: int, height: int) -> list[Line]:
        """Return for each group a line of facts and a bar; with room the names too."""
        if not snapshot.groups:
            self.say("")
            return self.waiting("the run told no shard" if snapshot.over else "waiting for the first shard")
        self._say_gathered(snapshot)
        detailed = height > 5 * len(snapshot.groups)
        lines: list[Line] = []
        for group in snapshot.groups:
            lines += [self._facts(group, width), *self._bar(group, width), *self._notes(group, width)]
            if detailed and len(group.names) > 1:
                names = ", ".join(group.names[:MAX_NAMES])
                names += f", {len(group.names) - MAX_NAMES} more" if len(group.names) > MAX_NAMES else ""
                lines += [[ink("  "), muted(text)] for text in wrap(names, width - 2)]
        if snapshot.hidden:
            lines.append([muted(f"and {snapshot.hidden} tensors more")])
        return lines

    def _say_gathered(self, snapshot: ShardsSnapshot) -> None:
        """How many tensors there are, and how many of them some rank has whole for now."""
        told = count(sum(len(group.names) for group in snapshot.groups), "tensor")
        gathered = sum(
            len(group.names)
            for group in snapshot.groups
            if any(piece.state == "gathered" for piece in group.pieces)
        )
        self.say(f"{told}, {gathered} gathered now" if gathered else told)

    def _facts(self, group: ShardGroup, width: int) -> Line:
        shape = self.glyphs.times.join(map(str, group.global_shape))
        name = group.names[0] if len(group.names) == 1 else f"{len(group.names)} tensors"
        each = f" {size(group.bytes_rank)} a rank" if group.bytes_rank >= 0 else ""
        shown = shape if len(group.names) == 1 else ""
        left = f"{name} {shown}".strip()
        kind = f"{group.kind} "
        facts = fit(f"{left} {self.glyphs.dot}{each}", width - len(kind), self.glyphs.ellipsis)
        return [ink(kind, palette.ACCENT), ink(facts)]

    def _bar(self, group: ShardGroup, width: int) -> list[Line]:
        held = [piece for piece in group.pieces if piece.state != "freed"]
        if not held:
            return [[muted("  freed on every rank")]]
        if group.dim == -1:
            return [self._whole(held, width)]
        if group.dim == -2:
            return [self._slices(piece) for piece in held]
        return self._cut(group, held, width)

    def _notes(self, group: ShardGroup, width: int) -> list[Line]:
        """What ranks said of their pieces, a line a rank."""
        noted = [piece for piece in group.pieces if piece.note and self.rank in (None, piece.rank)]
        return [
            [ink("  "), rank_tag(piece.rank, 4), muted(fit(piece.note, width - 6, self.glyphs.ellipsis))]
            for piece in noted
        ]

    def _whole(self, held: list[Piece], width: int) -> Line:
        ranks = [piece.rank for piece in held]
        gathered = " for now" if any(piece.state == "gathered" for piece in held) else ""
        noun = "rank" if len(ranks) == 1 else "ranks"
        verb = "holds" if len(ranks) == 1 else "hold"
        return [ink("  "), muted(f"{noun} {ranks_text(ranks)} {verb} all of it{gathered}")]

    def _slices(self, piece: Piece) -> Line:
        text = ", ".join(f"{start}:{stop}" for start, stop in piece.slices)
        return [ink("  "), rank_tag(piece.rank, 4), muted(f"[{text}]")]

    def _cut(self, group: ShardGroup, held: list[Piece], width: int) -> list[Line]:
        """Return one bar, or (on a 2D mesh) one for each set of pieces that do not overlap."""
        length = max(1, group.global_shape[group.dim])
        room = width - 2
        bars: list[Line] = []
        left = sorted(held, key=lambda piece: (piece.slices[group.dim], piece.rank))
        if len({piece.slices[group.dim] for piece in held}) > room:
            return [[ink("  "), muted(fit(self._in_words(left, group.dim), room, self.glyphs.ellipsis))]]
        while left:
            line: Line = [ink("  ")]
            place, at, rest = 0, 0, []
            for piece in left:
                start, stop = piece.slices[group.dim]
                if start < at:
                    rest.append(piece)
                    continue
                begin, end = round(start / length * room), round(stop / length * room)
                line.append(ink(" " * (begin - place)))
                line.append(self._piece(piece, start, stop, max(1, end - begin)))
                place, at = max(end, begin + 1), stop
            bars.append(line)
            left = rest
        return bars

    def _in_words(self, pieces: list[Piece], dim: int) -> str:
        """More pieces than a bar has cells: how many, and where the first and the last lie."""
        ends = [f"r{piece.rank} {':'.join(map(str, piece.slices[dim]))}" for piece in (pieces[0], pieces[-1])]
        return f"{len(pieces)} pieces, {ends[0]} to {ends[1]}"

    def _piece(self, piece: Piece, start: int, stop: int, cells: int) -> Segment:
        long = f"r{piece.rank} {start}:{stop}"
        text = long if len(long) < cells else f"r{piece.rank}" if cells > 2 else str(piece.rank % 10)
        return ink(fit(text, cells), palette.ON_COLOUR, on=palette.rank_colour(piece.rank))

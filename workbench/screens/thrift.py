"""Fewer bytes for the same picture: colour sequences that say again what already holds are left out.

Textual resets the style after every piece of text and sets it anew for the next; two thirds of what it writes
are such sequences. Here only what changes is written. Pure functions.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)([@-~])|\x1b")
MOVES = "ABCDEFGHdf"
"""Final letters of the sequences that only move the cursor: what is to be written may wait for them."""
ATTRIBUTES = frozenset(range(1, 10))
SEEN_ON_BLANKS = frozenset({4, 7, 9})
OFF = {22: {1, 2}, 23: {3}, 24: {4}, 25: {5, 6}, 27: {7}, 28: {8}, 29: {9}}


class Style(NamedTuple):
    """Foreground and background as parameters (`38;5;7`, empty: the terminal's own), and attributes."""

    front: str = ""
    back: str = ""
    attributes: frozenset[int] = frozenset()


PLAIN = Style()


def thrifty(text: str) -> str:
    """Return what shows the same as `text` in fewer characters.

    The style is plain before it and after it, as in all that Textual writes; text that ends in another style,
    or has a colour sequence that is not understood, is returned as it is.
    """
    out: list[str] = []
    now = wanted = PLAIN
    place = 0
    for match in SEQUENCE.finditer(text):
        if match.start() > place:
            piece = text[place : match.start()]
            style = _blank(now, wanted) if piece.isspace() else wanted
            out += (_change(now, style), piece)
            now = style
        place = match.end()
        parameters, letter = match.groups()
        if letter == "m":
            after = _after(wanted, parameters)
            if after is None:
                return text
            wanted = after
            continue
        if not letter or letter not in MOVES:
            out.append(_change(now, wanted))
            now = wanted
        out.append(match.group())
    if wanted != PLAIN:
        return text
    if place < len(text):
        out += (_change(now, PLAIN), text[place:])
        now = PLAIN
    out.append(_change(now, PLAIN))
    short = "".join(out)
    return short if len(short) < len(text) else text


@lru_cache(4096)
def _change(now: Style, wanted: Style) -> str:
    """Return the shortest sequence from one style to another."""
    if now == wanted:
        return ""
    on = [str(attribute) for attribute in sorted(wanted.attributes)]
    whole = ";".join(["0", *on, *filter(None, (wanted.front, wanted.back))])
    gone = now.attributes - wanted.attributes
    parts = [str(code) for code, cleared in OFF.items() if cleared & gone]
    kept = now.attributes.difference(*(cleared for cleared in OFF.values() if cleared & gone))
    parts += [str(attribute) for attribute in sorted(wanted.attributes - kept)]
    parts += [wanted.front or "39"] if wanted.front != now.front else []
    parts += [wanted.back or "49"] if wanted.back != now.back else []
    return f"\x1b[{min(';'.join(parts), whole, key=len)}m"


def _blank(now: Style, wanted: Style) -> Style:
    """Return the style for blanks: of what does not show on them, what holds already."""
    if wanted.attributes & SEEN_ON_BLANKS:
        return wanted
    kept = now.attributes - SEEN_ON_BLANKS
    return Style(now.front, wanted.back, kept)


@lru_cache(4096)
def _after(style: Style, parameters: str) -> Style | None:
    """Return the style after a colour sequence; None where it is not understood."""
    if ":" in parameters:
        return None
    codes = [int(code or 0) for code in parameters.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = PLAIN
        elif code in ATTRIBUTES:
            style = style._replace(attributes=style.attributes | {code})
        elif code in OFF:
            style = style._replace(attributes=style.attributes - OFF[code])
        elif code in (38, 48):
            length = {5: 2, 2: 4}.get(codes[0] if codes else -1, 0)
            if not length or len(codes) < length:
                return None
            colour = ";".join(map(str, [code, *codes[:length]]))
            del codes[:length]
            style = style._replace(front=colour) if code == 38 else style._replace(back=colour)
        elif 30 <= code <= 39 or 90 <= code <= 97:
            style = style._replace(front="" if code == 39 else str(code))
        elif 40 <= code <= 49 or 100 <= code <= 107:
            style = style._replace(back="" if code == 49 else str(code))
        else:
            return None
    return style

"""Fewer bytes for the same picture: a terminal shows the same of the shortened text as of the whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.screens.thrift import thrifty

PIECE = re.compile(r"\x1b\[([0-9;:]*)([@-~])|.", re.DOTALL)
FRAME = (
    "\x1b[3;1H\x1b[38;5;188;48;5;16m r1 \x1b[0m\x1b[48;5;16m \x1b[0m\x1b[1;38;5;188;48;5;16mx\x1b[0m"
    "\x1b[38;5;188;48;5;16my\x1b[0m\r\n\x1b[4;1H\x1b[38;5;188;48;5;16mz\x1b[0m"
)


def shown(text: str) -> list[tuple[str, tuple[str, str, frozenset[str]]]]:
    """What a terminal makes of a text: each letter or other sequence with the style in which it comes."""
    front = back = ""
    attributes: frozenset[str] = frozenset()
    found = []
    for match in PIECE.finditer(text):
        if match.group(2) != "m":
            letter = match.group()
            style = (front, back, attributes)
            if match.group(2) is not None and match.group(2) in "ABCDEFGHdf":
                style = ("", "", frozenset())
            elif letter.isspace() and not attributes & {"4", "7", "9"}:
                style = ("", back, frozenset())
            found.append((letter, style))
            continue
        codes = (match.group(1) or "0").split(";")
        while codes:
            code = codes.pop(0)
            if code == "0":
                front = back = ""
                attributes = frozenset()
            elif code in ("38", "48"):
                rest = [codes.pop(0) for _ in range(2 if codes[0] == "5" else 4)]
                colour = ";".join([code, *rest])
                front, back = (colour, back) if code == "38" else (front, colour)
            elif code == "39" or code[:-1] in ("3", "9"):
                front = "" if code == "39" else code
            elif code == "49" or code[:-1] in ("4", "10"):
                back = "" if code == "49" else code
            elif len(code) == 2 and code[0] == "2":
                gone = {"2": {"1", "2"}, "5": {"5", "6"}}.get(code[1], {code[1]})
                attributes -= gone
            else:
                attributes |= {code}
    return found


def test_a_frame_is_shorter_and_shows_the_same() -> None:
    short = thrifty(FRAME)
    assert shown(short) == shown(FRAME)
    assert len(short) < 0.72 * len(FRAME)
    assert short.endswith("\x1b[0m")


CODES = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "4",
        "7",
        "22",
        "24",
        "27",
        "31",
        "39",
        "97",
        "44",
        "49",
        "104",
        "38;5;7",
        "48;5;7",
        "38;2;1;2;3",
    ]
)
COLOUR = st.lists(CODES, max_size=3).map(lambda codes: f"\x1b[{';'.join(codes)}m")
OTHER = st.sampled_from(
    ["a", "  ", "\r\n", "é", "\x1b[5;7H", "\x1b[K", "\x1b[2J", "\x1b[?25l", "\x1b]52;c;YQ==\x07"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(COLOUR | OTHER, max_size=30))
def test_any_text_shows_the_same(pieces: list[str]) -> None:
    text = "".join(pieces) + "\x1b[0m"
    short = thrifty(text)
    assert shown(short) == shown(text)
    assert len(short) <= len(text)


@pytest.mark.parametrize("text", ["\x1b[4:3mcurly\x1b[0m", "\x1b[31mleft red", "\x1b[38mbroken\x1b[0m"])
def test_what_is_not_understood_stays(text: str) -> None:
    assert thrifty(text) == text

"""Guide text as styled lines: the Markdown that guides use, wrapped to a width. Pure.

Paragraphs, `- ` and `1. ` lists, tables and fenced blocks (kept as they are), `**bold**`, `*slanted*` and
`code`. A diagram's lines are never wrapped: they are cut where the panel is too narrow.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from rich.text import Text

from workbench import palette

INLINE = re.compile(r"\*\*(.+?)\*\*|(?<![\w*])\*([^*\s][^*]*?)\*(?![\w*])|`([^`]+)`")
ITEM = re.compile(r"^(- |\d+\. )")
DIAGRAM = palette.ACCENT
FENCE = "```"
Block = tuple[str, list[str]]


def prose(markdown: str, width: int, *, ascii_only: bool = False) -> Text:
    """Return the text in lines of at most `width` cells."""
    bullet = "- " if ascii_only else "• "
    lines: list[Text] = []
    for kind, content in blocks(markdown):
        if lines:
            lines.append(Text())
        if kind == "as it is":
            lines += [Text(line[:width], DIAGRAM) for line in content]
        else:
            for paragraph in content:
                lines += wrapped(paragraph, width, bullet)
    text = Text("\n").join(lines)
    return Text(text.plain.encode("ascii", "replace").decode(), spans=text.spans) if ascii_only else text


def blocks(markdown: str) -> Iterator[Block]:
    """Yield `as it is` blocks by lines, and text blocks by paragraphs; each list item is a paragraph."""
    held: list[str] = []
    fenced: list[str] | None = None
    for line in [*markdown.splitlines(), ""]:
        if line.startswith(FENCE):
            yield from _text(held)
            held = []
            if fenced is not None:
                yield "as it is", fenced
            fenced = [] if fenced is None else None
        elif fenced is not None:
            fenced.append(line)
        elif not line.strip():
            yield from _text(held)
            held = []
        else:
            held.append(line)
    if fenced is not None:
        yield "as it is", fenced


def _text(held: list[str]) -> Iterator[Block]:
    if not held:
        return
    if all(line.startswith(("|", "    ")) for line in held):
        yield "as it is", _table(held) if held[0].startswith("|") else [line[4:] for line in held]
        return
    paragraphs: list[str] = []
    for line in held:
        if ITEM.match(line) or not paragraphs:
            paragraphs.append(line)
        else:
            paragraphs[-1] += " " + line.strip()
    yield "text", paragraphs


def _table(rows: list[str]) -> list[str]:
    """A Markdown table with its columns in line and without its bars."""
    cells = [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]
    shown = [row for row in cells if any(set(cell) - set("-: ") for cell in row)]
    widths = [max(len(row[place]) for row in shown) for place in range(len(shown[0]))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]


def wrapped(paragraph: str, width: int, bullet: str) -> list[Text]:
    """Wrap one paragraph; an item's later lines stand under its first word."""
    item = ITEM.match(paragraph)
    indent = ""
    if item is not None:
        mark = bullet if item[1] == "- " else item[1]
        indent = " " * len(mark)
        paragraph = mark + paragraph[item.end() :]
    styled = inline(paragraph)
    lines = textwrap.wrap(
        styled.plain, max(10, width), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return list(_cut(styled, lines, indent))


def inline(text: str) -> Text:
    """Return the text with its marks turned into styles."""
    result = Text()
    at = 0
    for found in INLINE.finditer(text):
        result.append(text[at : found.start()])
        strong, slanted, code = found.groups()
        if strong is not None:
            result.append(strong, f"bold {palette.STRONG}")
        elif slanted is not None:
            result.append(slanted, "italic")
        else:
            result.append(code, palette.WARN)
        at = found.end()
    return result.append(text[at:])


def _cut(styled: Text, lines: list[str], indent: str) -> Iterator[Text]:
    """Cut styled text where its plain text was wrapped."""
    at = 0
    for place, line in enumerate(lines):
        content = line if place == 0 else line.removeprefix(indent)
        start = styled.plain.index(content, at)
        at = start + len(content)
        piece = styled[start:at]
        yield Text.assemble(indent if place else "", piece)

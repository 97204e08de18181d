"""The parts of README that follow from the code: the labs with their parameters, and the file tree.

`python -m tests.readme` writes them anew; `tests/test_readme.py` fails where they are stale.
"""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from labs.catalog import catalog
from labs.params import Field, LabSpec, fields_of

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FOLDERS = ("workbench", "labs", "launcher", "tests")


def tree() -> str:
    """Every Python file with the first sentence of its docstring; packages with that of their `__init__`."""
    files = {file for file in _files() if file.exists()}
    lines = [line for folder in FOLDERS for line in _entries(ROOT / folder, 0, files)]
    return "\n".join(["```text", *lines, "```"])


def _files() -> set[Path]:
    """The files of the repository: those git knows or would take; all of them where there is no git."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(words, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")}
    return {ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name.endswith(b".py")}


def _entries(folder: Path, depth: int, files: set[Path]) -> Iterator[str]:
    yield _line(depth, f"{folder.name}/", _sentence(folder / "__init__.py"))
    inside = sorted({file.relative_to(folder).parts[0] for file in files if folder in file.parents})
    for name in inside:
        path = folder / name
        if path.is_dir():
            yield from _entries(path, depth + 1, files)
        elif name != "__init__.py":
            yield _line(depth + 1, name, _sentence(path))


def _line(depth: int, name: str, text: str) -> str:
    return f"{'  ' * depth}{name:<{max(1, 30 - 2 * depth)}}  {text}".rstrip()


def _sentence(file: Path) -> str:
    """First line of a module's docstring."""
    if not file.exists():
        return ""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def labs() -> str:
    """Every lab: what it teaches, its ranks, its parameters."""
    return "\n\n".join(_lab(spec) for spec in catalog().values())


def _lab(spec: LabSpec) -> str:
    lines = [
        f"### `{spec.id}`: {spec.title}",
        "",
        spec.summary,
        "",
        *(f"- {taught}" for taught in spec.teaches),
        "",
        f"Ranks: {spec.min_ranks} to {spec.max_ranks}, default {spec.default_ranks}.",
    ]
    rows = [_row(field) for field in fields_of(spec.params)]
    if rows:
        lines += ["", "| parameter | default | allowed | what it is |", "|---|---|---|---|", *rows]
    return "\n".join(lines)


def _row(field: Field) -> str:
    flags = f"`{field.flag}`" + (f", `{field.short}`" if field.short else "")
    default = (
        {True: "on", False: "off"}.get(field.default, f"`{field.default}`") if field.kind == "bool" else ""
    )
    default = default or (f"`{field.default}`" if field.default != "" else "")
    allowed = field.allowed.replace("|", "\\|")
    return f"| {flags} | {default} | {allowed} | {field.description} |"


BLOCKS = {"labs": labs, "tree": tree}


def refreshed(text: str) -> str:
    """Return README with every generated block made anew, between `<!-- name -->` and `<!-- end -->`."""
    for name, block in BLOCKS.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        assert start, f"README has no <!-- {name} -->"
        assert end, f"README's <!-- {name} --> has no <!-- end -->"
        text = f"{before}{start}\n{block()}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text()))

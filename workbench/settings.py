"""A person's settings: `config.toml` in the user's config folder. Each key is also a flag, and a flag wins.

The file is flat, `key = value` a line. Values are checked when the file is read, by the same declarations as
the flags; what does not fit names the file, its line and what is allowed. Loads neither torch nor textual.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from labs.params import Field, ParameterError, fields_of, nearest, read
from workbench import usage

DIR_VARIABLE = "WORLDSIZE_CONFIG_DIR"
RUNS_DIR_VARIABLE = "WORLDSIZE_RUNS_DIR"
FILE = "config.toml"
OF_RUNS = ("runs_dir", "nproc", "device", "seed", "timeout", "launcher", "quiet")
KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "choice": (str,),
}
EXAMPLES = {"bool": "true or false", "str": "text in quotes"}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says, as text like a flag's, and on which line; empty where there is no file."""

    path: Path
    values: dict[str, str | bool] = {}
    lines: dict[str, int] = {}

    def below(self, given: Mapping[str, str | bool], fields: tuple[Field, ...]) -> dict[str, str | bool]:
        """Return what was given by flags, and under it what the file says for the same fields."""
        names = {field.name for field in fields}
        return {**{name: value for name, value in self.values.items() if name in names}, **given}

    @contextlib.contextmanager
    def blamed(self, given: Mapping[str, str | bool]) -> Iterator[None]:
        """Name the file in an error about a value that no flag gave."""
        try:
            yield
        except ParameterError as error:
            name = error.flag.removeprefix("--").replace("-", "_")
            if name in given or name not in self.values:
                raise
            raise self._error(name, f"{error.message}; or give another by the flag {error.flag}") from None

    def _error(self, name: str, message: str) -> ParameterError:
        return ParameterError(f"{self.path} line {self.lines.get(name, 1)}", f"{name}: {message}")


def path() -> Path:
    """Where the file is: `WORLDSIZE_CONFIG_DIR`, else `worldsize` in the user's config folder."""
    if chosen := os.environ.get(DIR_VARIABLE):
        return Path(chosen).expanduser().absolute() / FILE
    from platformdirs import user_config_path

    return user_config_path("worldsize") / FILE


def known() -> dict[str, Field]:
    """Return what may be set, by name, in the order in which help shows it."""
    of_app = [field for field in fields_of(usage.PageFlags) if field.name in usage.APP_ONLY]
    of_runs = [field for field in fields_of(usage.RunFlags) if field.name in OF_RUNS]
    return {field.name: field for field in (*of_app, *of_runs)}


def load() -> Settings:
    """Read the file; one that is not there sets nothing. `WORLDSIZE_RUNS_DIR` wins over it.

    Raises:
        ParameterError: it cannot be read, is no TOML, or has a key or a value that does not fit.
    """
    file = path()
    if file.exists() and not file.is_file():
        what = "a folder" if file.is_dir() else "no plain file"
        raise ParameterError(
            str(file), f"is {what}: settings are lines `key = value` in a text file; move it"
        )
    try:
        text = _decoded(file, file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):  # HOME=/dev/null
        return Settings(path=file)
    except OSError as error:
        raise ParameterError(str(file), f"cannot be read: {error.strerror or error}") from None
    found = parse(file, text)
    if os.environ.get(RUNS_DIR_VARIABLE):
        found.values.pop("runs_dir", None)
    return found


def _decoded(file: Path, content: bytes) -> str:
    """Return the text; the mark that some editors put before UTF-8 is none of it."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ParameterError(f"{file} line {line}", "is not UTF-8: save the file as UTF-8") from None


def parse(file: Path, text: str) -> Settings:
    """Return what the text of the file at `file` says.

    Raises:
        ParameterError: see `load`.
    """
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(
            str(file), f"is no TOML: {error}; write `key = value` a line, text in quotes"
        ) from None
    found = Settings(path=file, lines=_lines(text, list(table)))
    fields = known()
    for name, value in table.items():
        if name not in fields:
            hint = nearest(name, list(fields))
            raise found._error(name, f"no such setting; {hint}allowed: {', '.join(fields)}")
        found.values[name] = _as_flag(found, fields[name], value)
    return found


def _as_flag(found: Settings, field: Field, value: Any) -> str | bool:
    """Return the value as the flag of the same name would have it."""
    if not isinstance(value, KINDS[field.kind]) or (isinstance(value, bool) and field.kind != "bool"):
        allowed = EXAMPLES.get(field.kind, field.allowed)
        raise found._error(field.name, f"{value!r} does not fit; allowed: {allowed}")
    text = value if isinstance(value, bool) else str(value)
    struct = usage.PageFlags if field.name in usage.APP_ONLY else usage.RunFlags
    try:
        read(struct, {field.name: text})
    except ParameterError as error:
        raise found._error(field.name, error.message) from None
    return text


def _lines(text: str, names: list[str]) -> dict[str, int]:
    """Return the line of each top-level key; TOML's own reader does not tell."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for name in names:
            if re.match(rf"""\s*(?:\[+\s*)?["']?{re.escape(name)}["']?\s*[=.\]]""", line):
                lines.setdefault(name, number)
    return lines

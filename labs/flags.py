"""Parameters as command-line flags, both ways. Used by `workbench` and by `python -m labs.worker`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from labs.params import Field, LabSpec, ParameterError, fields_of, nearest


def split(spec: LabSpec, argv: Sequence[str]) -> tuple[dict[str, str | bool], list[str]]:
    """Take the lab's flags out of `argv`; see `take`."""
    return take(fields_of(spec.params), argv)


def take(fields: Sequence[Field], argv: Sequence[str]) -> tuple[dict[str, str | bool], list[str]]:
    """Take the fields' flags out of `argv`; returns field name -> text, and what is left in its order.

    Both `--dim 64` and `--dim=64` are understood, and `--no-x` for a switch that may be on by itself.

    Raises:
        ParameterError: a flag without its value, a switch with one, or a flag given twice.
    """
    known = _by_flag(fields)
    given: dict[str, str | bool] = {}
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        flag, equals, text = word.partition("=")
        found = known.get(flag)
        if found is None:
            rest.append(word)
            continue
        field, positive = found
        if field.name in given:
            raise ParameterError(flag, "given twice; give it once")
        given[field.name] = _taken(field, flag, positive, text if equals else None, words)
    return given, rest


def _by_flag(fields: Sequence[Field]) -> dict[str, tuple[Field, bool]]:
    flags: dict[str, tuple[Field, bool]] = {}
    for field in fields:
        flags[field.flag] = (field, True)
        if field.short:
            flags[field.short] = (field, True)
        if field.kind == "bool":
            flags["--no-" + field.flag.removeprefix("--")] = (field, False)
    return flags


def _taken(field: Field, flag: str, positive: bool, text: str | None, words: list[str]) -> str | bool:
    if field.kind == "bool":
        if text is not None:
            raise ParameterError(flag, f"takes no value; allowed: {field.allowed}")
        return positive
    if text is not None:
        return text
    if not words or _looks_like_flag(words[0]):
        what = field.description if field.kind == "str" else f"allowed: {field.allowed}"
        raise ParameterError(flag, f"needs a value; {what}")
    return words.pop(0)


def _looks_like_flag(word: str) -> bool:
    """`-3` is a value, `-b` and `--dim` are flags."""
    return word.startswith("-") and not word[1:2].isdigit() and len(word) > 1


def unknown(spec: LabSpec, words: Sequence[str], common: Sequence[str]) -> ParameterError:
    """Return the error for the first word that neither the lab nor the command knows."""
    flags = [field.flag for field in fields_of(spec.params)]
    word = words[0].partition("=")[0]
    hint = nearest(word, [*flags, *common])
    return ParameterError(
        word, f"no such flag of {spec.id}; {hint}its parameters: {', '.join(flags) or 'none'}"
    )


def to_flags(spec: LabSpec, params: msgspec.Struct) -> list[str]:
    """Return the flags that give these params: only those that differ from the defaults."""
    flags: list[str] = []
    for field in fields_of(spec.params):
        value = getattr(params, field.name)
        if value == field.default:
            continue
        if field.kind == "bool":
            flags.append(field.flag if value else "--no-" + field.flag.removeprefix("--"))
        elif str(value).startswith("-"):
            flags.append(f"{field.flag}={value}")
        else:
            flags += [field.flag, str(value)]
    return flags

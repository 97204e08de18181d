"""One declaration of a lab's parameters: the flags, the form, the validation and the worker's argument.

A lab declares a frozen `msgspec.Struct` whose fields are `Annotated[type, Meta(description=..., ge=...)]`
with defaults. `fields_of` reads that declaration once; the command line and the form are both built on it.
This module loads neither torch nor textual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import inspect

P = TypeVar("P", bound=msgspec.Struct)
Kind = Literal["int", "float", "str", "bool", "choice"]
Group = Literal["communication", "data", "model", "scale", "beyond"]


class ParameterError(ValueError):
    """A value that a person gave and that does not fit: names the flag, the value and what is allowed."""

    def __init__(self, flag: str, message: str) -> None:
        super().__init__(f"{flag}: {message}")
        self.flag = flag
        self.message = message


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter as the command line and the form need it."""

    name: str
    flag: str
    kind: Kind
    default: Any
    description: str
    choices: tuple[str, ...] = ()
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    short: str = ""
    """A one-letter flag from `Meta(extra={"short": "-b"})`."""
    unit: str = ""

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        if self.kind == "bool":
            return f"{self.flag} or --no-{self.flag[2:]}"
        bounds = [
            f"{sign} {int(bound) if bound == int(bound) else bound}"
            for sign, bound in ((">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt))
            if bound is not None
        ]
        noun = {"int": "a whole number", "float": "a number", "str": "text"}[self.kind]
        return " ".join([noun, " and ".join(bounds)]).strip()


class LabSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the workbench must know of a lab without loading torch.

    `validate(params, world_size)` raises `ParameterError` for combinations that no single field can refuse,
    `validate_device(params, device)` for what the device of the run ("cpu" or "cuda") cannot do;
    `patience_s(params, world_size)` tells how long the parameters themselves make a rank wait for another;
    `panes` names the panes of the run screen in their order.
    """

    id: str
    title: str
    summary: str
    group: Group
    params: type[msgspec.Struct]
    panes: tuple[str, ...]
    teaches: tuple[str, ...] = ()
    min_ranks: int = 1
    max_ranks: int = 64
    default_ranks: int = 4
    debug_detail: bool = True
    """Whether ranks run with TORCH_DISTRIBUTED_DEBUG=DETAIL (off where time is measured)."""
    tells: bool = False
    """Whether rank 0's lines are part of the result: a run without the app prints them above its verdict."""
    validate: Callable[[Any, int], None] | None = None
    validate_device: Callable[[Any, str], None] | None = None
    patience_s: Callable[[Any, int], float] | None = None


def fields_of(params: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the parameters that the struct declares, in its order.

    Raises:
        TypeError: a field has a type that neither a flag nor a form can hold.
    """
    info = inspect.type_info(params)
    assert isinstance(info, inspect.StructType)
    return tuple(_field(field) for field in info.fields)


def _field(field: inspect.Field) -> Field:
    meta = field.type
    description, extra = "", {}
    if isinstance(meta, inspect.Metadata):
        description = str((meta.extra_json_schema or {}).get("description", ""))
        extra = dict(meta.extra or {})
        meta = meta.type
    kind, choices = _kind(field.name, meta)
    bounds = {}
    if isinstance(meta, inspect.IntType | inspect.FloatType):
        bounds = {name: getattr(meta, name) for name in ("ge", "gt", "le", "lt")}
    flag = str(extra.get("flag", "--" + field.name.replace("_", "-")))
    return Field(
        name=field.name,
        flag=flag,
        kind=kind,
        default=field.default,
        description=description,
        choices=choices,
        short=str(extra.get("short", "")),
        unit=str(extra.get("unit", "")),
        **bounds,
    )


def _kind(name: str, kind: inspect.Type) -> tuple[Kind, tuple[str, ...]]:
    match kind:
        case inspect.LiteralType(values=values):
            return "choice", tuple(str(value) for value in values)
        case inspect.BoolType():
            return "bool", ()
        case inspect.IntType():
            return "int", ()
        case inspect.FloatType():
            return "float", ()
        case inspect.StrType():
            return "str", ()
    raise TypeError(f"parameter {name}: {kind} has no flag and no form field")


def parse(spec: LabSpec, given: Mapping[str, str | bool], world_size: int) -> msgspec.Struct:
    """Turn what a person gave (parameter name -> text) into the lab's params struct.

    Raises:
        ParameterError: a name the lab has not, a value out of bounds, or a combination it refuses.
    """
    params = read(spec.params, given)
    check_ranks(spec, world_size)
    if spec.validate is not None:
        spec.validate(params, world_size)
    return params


def read(params: type[P], given: Mapping[str, str | bool]) -> P:
    """Turn field name -> text into the struct, each field by itself.

    Raises:
        ParameterError: a name the struct has not, or a value out of its field's bounds.
    """
    fields = {field.name: field for field in fields_of(params)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in fields:
            raise ParameterError(_flag(name), _unknown(_flag(name), [f.flag for f in fields.values()]))
        values[name] = _value(fields[name], text)
    return params(**values)


def check_ranks(spec: LabSpec, world_size: int) -> None:
    """Refuse a rank count that the lab cannot run with.

    Raises:
        ParameterError: naming `--nproc` and the range allowed.
    """
    if not spec.min_ranks <= world_size <= spec.max_ranks:
        count = "1 rank does" if world_size == 1 else f"{world_size} ranks do"
        raise ParameterError(
            "--nproc",
            f"{count} not fit {spec.id}: allowed {spec.min_ranks} to {spec.max_ranks}",
        )


def nearest(name: str, known: list[str]) -> str:
    """Return `did you mean X? ` for the nearest known name, or an empty string."""
    import difflib  # only a mistake needs it; the list of labs answers sooner without

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}? " if close else ""


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _unknown(name: str, known: list[str]) -> str:
    return f"no such parameter; {nearest(name, known)}allowed: {', '.join(known) or 'none'}"


def _value(field: Field, text: str | bool) -> Any:
    if field.kind == "bool":
        return _bool(field, text)
    if field.kind == "choice":
        if text not in field.choices:
            hint = nearest(str(text), list(field.choices))
            raise ParameterError(field.flag, f"{text!r} is not allowed; {hint}allowed: {field.allowed}")
        return text
    if field.kind == "str":
        return str(text)
    try:
        number = int(text) if field.kind == "int" else float(text)
    except ValueError:
        raise ParameterError(field.flag, f"{text!r} is not {field.allowed}") from None
    if not _within(field, number):
        raise ParameterError(field.flag, f"{text} is out of bounds; allowed: {field.allowed}")
    return number


def _bool(field: Field, text: str | bool) -> bool:
    words = {True: True, False: False, "true": True, "false": False, "on": True, "off": False}
    if text not in words:
        raise ParameterError(field.flag, f"{text!r} is not allowed; allowed: {field.allowed}")
    return words[text]


def _within(field: Field, number: float) -> bool:
    return (
        number == number
        and (field.ge is None or number >= field.ge)
        and (field.gt is None or number > field.gt)
        and (field.le is None or number <= field.le)
        and (field.lt is None or number < field.lt)
        and abs(number) != float("inf")
    )

"""Expressions of the guides: arithmetic over parameters, functions of a lab's `theory.py`, measured values.

They are data of the course, not programs: only the forms listed here are read, from Python's own syntax tree;
everything else is refused by name. Nothing is ever handed to `eval`.
"""

from __future__ import annotations

import ast
import dataclasses
import operator
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import msgspec

MAX_EXPONENT = 64


def word(text: str, place: int) -> float:
    """Return the number that is the word at `place` of a text: `word("4 3 2 1", 0)` is 4."""
    return float(text.split()[place])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "round": round,
    "len": len,
    "abs": abs,
    "word": word,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Not: operator.not_}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
}


class ExpressionError(ValueError):
    """An expression that cannot be read, or that has no value here; the message says which part."""


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression; `names` holds what it may speak of.

    A module among `names` (a lab's theory) lends its public functions, a struct or dataclass its fields.

    Raises:
        ExpressionError: a form that is not allowed, an unknown name, or an operation that fails.
    """
    try:
        return _value(ast.parse(" ".join(text.split("\n")).strip(), mode="eval").body, names)
    except SyntaxError as error:
        raise ExpressionError(f"{text!r} cannot be read: {error.msg}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, ExpressionError):
            raise
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise ExpressionError(f"{text!r} has no value: {reason}") from None


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as constant):
            return constant
        case ast.Name(id=name):
            if name not in names:
                raise ExpressionError(f"no name {name!r}; there are: {', '.join(sorted(names))}")
            return names[name]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_value(part, names) for part in parts)
        case ast.Attribute(value=owner, attr=attribute):
            return _attribute(_value(owner, names), attribute)
        case ast.Subscript(value=owner, slice=key):
            return _value(owner, names)[_value(key, names)]
        case ast.Call():
            return _call(node, names)
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            return _value(body if _value(test, names) else otherwise, names)
    return _operation(node, names)


def _operation(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = _value(right, names)
            if not abs(exponent) <= MAX_EXPONENT:
                raise ExpressionError(f"the exponent {exponent} is above {MAX_EXPONENT}")
            return _value(left, names) ** exponent
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.UnaryOp(op=unary, operand=operand) if type(unary) in _UNARY:
            return _UNARY[type(unary)](_value(operand, names))
        case ast.Compare(left=left, ops=[compare], comparators=[right]) if type(compare) in _COMPARE:
            return _COMPARE[type(compare)](_value(left, names), _value(right, names))
        case ast.BoolOp(op=op, values=parts):
            found = [bool(_value(part, names)) for part in parts]
            return all(found) if isinstance(op, ast.And) else any(found)
    raise ExpressionError(f"{ast.unparse(node)!r}: {type(node).__name__} is not allowed here")


def _attribute(owner: Any, name: str) -> Any:
    """A field or property of plain data; a module's functions are reached by a call alone."""
    is_data = isinstance(owner, msgspec.Struct) or dataclasses.is_dataclass(owner)
    if not is_data or isinstance(owner, type) or name.startswith("_"):
        raise ExpressionError(f".{name} is not allowed on {type(owner).__name__}")
    return getattr(owner, name)


def _call(node: ast.Call, names: Mapping[str, Any]) -> Any:
    function = _function(node.func, names)
    if any(keyword.arg is None for keyword in node.keywords):
        raise ExpressionError(f"{ast.unparse(node)!r}: ** is not allowed here")
    arguments = [_value(argument, names) for argument in node.args]
    return function(*arguments, **{str(key.arg): _value(key.value, names) for key in node.keywords})


def _function(node: ast.expr, names: Mapping[str, Any]) -> Callable[..., Any]:
    match node:
        case ast.Name(id=name) if name in FUNCTIONS:
            return FUNCTIONS[name]
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if isinstance(names.get(owner), ModuleType):
            found = getattr(names[owner], name, None)
            if name.startswith("_") or not callable(found):
                raise ExpressionError(f"{owner} has no function {name!r}")
            return found  # type: ignore[no-any-return]
    allowed = ", ".join(FUNCTIONS)
    raise ExpressionError(f"{ast.unparse(node)!r} cannot be called; allowed: theory.NAME, {allowed}")

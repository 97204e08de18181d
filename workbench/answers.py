"""Answers: what a person predicted, what theory says and what the run measured, in one row."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from launcher.rundir import Result
from workbench import guides
from workbench.expressions import ExpressionError, evaluate
from workbench.guides import Guide, Question, Setup, Step

Value = float | str | bool | None
NUMBER = re.compile(
    r"^([-+]?[0-9][0-9_, ]*(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?|[-+]?\.[0-9]+)\s*([A-Za-z%µ/]*)$", re.I
)
PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 1024.0, "mi": 1024.0**2, "gi": 1024.0**3}


class AnswerError(ValueError):
    """What a person typed is no answer; the message says what would be one."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Prediction, theory and measurement of one question; None where there is none (yet).

    `right` compares the prediction with what is right (theory, else the measurement), `agrees` the
    measurement with theory.
    """

    predicted: Value = None
    theory: Value = None
    measured: Value = None
    unit: str = ""
    right: bool | None = None
    agrees: bool | None = None
    missing: str = ""
    """Why there is no measurement although a run was made."""


def theory(guide: Guide, question: Question) -> Value:
    """Return what the lab's theory says for the run that the question speaks of; None where it asks none.

    Raises:
        ExpressionError: the expression does not fit the theory.
    """
    if not question.theory:
        return None
    setup = guide.setup_of(question)
    return _settled(question, evaluate(question.theory, {**names(guide, setup)}))


def measured(guide: Guide, question: Question, result: Result) -> Value:
    """Return what a run measured; None where the question asks for no measurement.

    Raises:
        ExpressionError: the run did not tell it, as a run does that failed half way.
    """
    if not question.measured:
        return None
    told = {
        "metrics": result.metrics,
        "checks": {check.name: check.measured for check in result.checks},
        "passed": {check.name: check.passed for check in result.checks},
        "seconds": {"wall": result.wall_s, "ready": result.ready_s},
    }
    known = {**names(guide, guide.setup_of(question)), **told}
    return _settled(question, evaluate(question.measured, known))


def names(guide: Guide, setup: Setup) -> Mapping[str, Any]:
    """What an expression may speak of before a run: parameters, `W`, `params` and `theory`."""
    fields = {name: getattr(setup.params, name) for name in setup.params.__struct_fields__}
    return {**fields, "W": setup.nproc, "params": setup.params, "theory": guides.theory_of(guide.lab)}


def _settled(question: Question, value: Any) -> Value:
    """A plain value; a choice is told by its text."""
    if question.choices:
        values = question.values or question.choices
        for choice, known in zip(question.choices, values, strict=True):
            if equal(value, known, question.run_tolerance):
                return choice
        raise ExpressionError(f"{value!r} is none of the choices {', '.join(map(str, values))}")
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise ExpressionError(f"{value!r} is no finite number")


def equal(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values are the same; numbers within a relative tolerance of the second."""
    if isinstance(one, str | bool) or isinstance(other, str | bool):
        return bool(one == other)
    return bool(abs(one - other) <= tolerance * abs(other) + 1e-12)


def read_answer(question: Question, text: str) -> Value:
    """Turn what a person typed into a value: a choice by letter or text, else a number with or without unit.

    `16k` is 16,000, `16 KiB` is 16,384; what follows the prefix must be the question's unit.

    Raises:
        AnswerError: it is neither.
    """
    text = text.strip()
    if question.choices:
        letters = [chr(ord("a") + place) for place in range(len(question.choices))]
        if text.lower() in letters:
            return question.choices[letters.index(text.lower())]
        if text in question.choices:
            return text
        raise AnswerError(f"choose one of {', '.join(letters)}")
    found = NUMBER.match(text)
    if found is None:
        raise AnswerError(f"{text!r} is not a number; allowed: 1500, 1.5k, 16 KiB, 27%")
    number = float(re.sub("[_, ]", "", found[1]))
    word, unit = found[2], question.unit
    for prefix, factor in PREFIXES.items():
        if word.lower() in {prefix, f"{prefix}{unit.lower()}"}:
            return number * factor
    raise AnswerError(
        f"{word!r} is not the unit {unit or '(none)'}; a prefix k, M, G, Ki, Mi, Gi may precede it"
    )


def row_of(guide: Guide, step: Step, predicted: Value, found: Value, missing: str = "") -> Row:
    """Return the row of a question: `found` is what the run measured, None as long as there was none."""
    question = step.question
    assert question is not None
    told = theory(guide, question)
    truth = told if told is not None else found
    right = None
    if predicted is not None and truth is not None:
        right = equal(predicted, truth, question.tolerance)
    agrees = None
    if told is not None and found is not None:
        agrees = equal(found, told, question.run_tolerance)
    return Row(
        predicted=predicted,
        theory=told,
        measured=found,
        unit=question.unit,
        right=right,
        agrees=agrees,
        missing=missing,
    )


def in_words(value: Value, unit: str) -> str:
    """Return a value as people read it: `24,576 B`, `27.3 %`, `threads`."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    whole = value == int(value) and abs(value) < 1e15
    text = f"{int(value):,}" if whole else f"{value:.4g}"
    return f"{text} {unit}".strip()

"""A lab's guide as data: front matter and a sequence of steps, read from its `guide.md`. Torch-free.

The file is Markdown that reads well by itself. After the front matter (`key: value` lines between `---`)
each `## kind: title` begins a step: read, predict, run, observe, explain, change. What the workbench must
know of a step stands in a fenced block marked `toml`:

    predict, explain   theory or measured (expressions, see `workbench.expressions`), unit, tolerance;
                       or choices and values; because (how one gets there), why (why a run may differ)
    run                name, nproc, seed, and the lab's parameters
    observe            pane
    change             commands (flags to try), refused (flags that are refused, worth reading)

`{name}` in a text is a parameter of the run that the step speaks of, `{W}` its number of ranks.
"""

from __future__ import annotations

import importlib
import importlib.resources
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from labs.catalog import package_of
from labs.params import LabSpec, ParameterError, parse

Kind = Literal["read", "predict", "run", "observe", "explain", "change"]
KINDS: tuple[Kind, ...] = get_args(Kind)
HEADING = re.compile(r"^## +(\w+)(?:: *(.*))?$")
FENCE = "```"
BLOCK = "```toml"
LETTERS = "abcdefgh"
"""The keys of a step's choices, or of what it offers to try."""
NAME = re.compile(r"\{(\w+)\}")
NOT_A_LETTER = re.compile(r"[^a-z0-9]+")


class GuideError(ValueError):
    """A guide that cannot be read; the message names the lab, the step and what is allowed."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked before or after a run. Tolerances are relative: the person's number, and the run's.

    With `choices` the right one is that whose value (`values`, else its text) equals the expression's.
    """

    theory: str = ""
    measured: str = ""
    choices: tuple[str, ...] = ()
    values: tuple[str | float | bool, ...] = ()
    unit: str = ""
    tolerance: float = 0.02
    run_tolerance: float = 0.02
    timing: bool = False
    """Whether the run measures time, which a busy machine stretches."""
    run: str = ""
    because: str = ""
    why: str = ""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a run step sets: ranks, seed, and the lab's parameters as text by name."""

    name: str
    nproc: int
    seed: int
    given: dict[str, str | bool]
    params: msgspec.Struct


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a guide; `id` stays the same as long as its heading does."""

    id: str
    kind: Kind
    title: str
    text: str
    question: Question | None = None
    setup: Setup | None = None
    pane: str = ""
    commands: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """A lab's guide. `texts` and `papers` name what else there is to read."""

    lab: str
    title: str
    minutes: int
    prerequisites: tuple[str, ...]
    texts: tuple[str, ...]
    papers: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def runs(self) -> dict[str, Setup]:
        """The run steps' setups by name."""
        return {step.setup.name: step.setup for step in self.steps if step.setup is not None}

    @property
    def questions(self) -> tuple[Step, ...]:
        """The steps that ask something."""
        return tuple(step for step in self.steps if step.question is not None)

    def setup_of(self, question: Question) -> Setup:
        """The run that a question speaks of."""
        return self.runs[question.run]


def read(lab_id: str) -> str:
    """Return the text of the lab's `guide.md`; empty where it has none."""
    file = importlib.resources.files(package_of(lab_id)) / "guide.md"
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def theory_of(lab_id: str) -> Any:
    """Return the lab's `theory` module."""
    return importlib.import_module(f"{package_of(lab_id)}.theory")


def load(spec: LabSpec) -> Guide:
    """Read and check the guide of a lab.

    Raises:
        GuideError: it has none, or one that does not fit the lab.
    """
    return parse_guide(read(spec.id), spec)


def parse_guide(text: str, spec: LabSpec) -> Guide:
    """Turn the text of a `guide.md` into the guide of `spec`'s lab.

    Raises:
        GuideError: front matter or a step does not fit.
    """
    if not text.startswith("---\n"):
        raise GuideError(f"the guide of {spec.id} has no front matter")
    head, found, body = text.removeprefix("---\n").partition("\n---\n")
    if not found:
        raise GuideError(f"the front matter of the guide of {spec.id} has no end")
    facts = _front_matter(head, spec)
    steps = tuple(_step(kind, title, content, spec) for kind, title, content in _sections(body, spec))
    guide = Guide(
        lab=spec.id,
        title=facts["title"],
        minutes=int(facts["minutes"]),
        prerequisites=_listed(facts.get("prerequisites", ""), ","),
        texts=_listed(facts.get("texts", ""), ";"),
        papers=_listed(facts.get("papers", ""), ";"),
        steps=steps,
    )
    return _linked(guide)


def _front_matter(head: str, spec: LabSpec) -> dict[str, str]:
    facts: dict[str, str] = {}
    for line in head.splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in ("title", "minutes", "prerequisites", "texts", "papers"):
            raise GuideError(f"the guide of {spec.id}: {line!r} is no line of a front matter")
        facts[key] = value.strip()
    if not facts.get("title") or not facts.get("minutes", "").isdecimal():
        raise GuideError(f"the front matter of the guide of {spec.id} needs a title and whole minutes")
    return facts


def _listed(text: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def _sections(body: str, spec: LabSpec) -> Iterator[tuple[Kind, str, str]]:
    """Cut the body at its step headings, outside of fenced blocks."""
    lines: list[str] = []
    current: tuple[Kind, str] | None = None
    fenced = False
    for line in body.splitlines():
        fenced ^= line.startswith(FENCE)
        heading = HEADING.match(line) if not fenced else None
        if heading is None:
            lines.append(line)
            continue
        if heading[1] not in KINDS or not heading[2]:
            raise GuideError(
                f"the guide of {spec.id}: {line!r} is no step; allowed: ## KIND: title, "
                f"with {', '.join(KINDS)}"
            )
        if current is not None:
            yield *current, "\n".join(lines)
        elif "".join(lines).strip():
            raise GuideError(f"the guide of {spec.id}: text before the first step")
        current, lines = (cast(Kind, heading[1]), heading[2].strip()), []
    if current is None:
        raise GuideError(f"the guide of {spec.id} has no steps")
    yield *current, "\n".join(lines)


def _step(kind: Kind, title: str, content: str, spec: LabSpec) -> Step:
    where = f"the guide of {spec.id}, step '{kind}: {title}'"
    text, block = _apart(content, where)
    step = Step(
        id=NOT_A_LETTER.sub("-", f"{kind} {title}".lower()).strip("-"), kind=kind, title=title, text=text
    )
    try:
        match kind:
            case "predict" | "explain":
                step = msgspec.structs.replace(step, question=_question(kind, block))
            case "run":
                step = msgspec.structs.replace(step, setup=_setup(block, spec))
            case "observe":
                step = msgspec.structs.replace(step, pane=_pane(block, spec))
            case "change":
                step = msgspec.structs.replace(step, **_tries(block))
            case "read" if block:
                raise GuideError("takes no block")
    except (GuideError, ParameterError, msgspec.ValidationError) as error:
        raise GuideError(f"{where}: {error}") from None
    return step


def _apart(content: str, where: str) -> tuple[str, dict[str, Any]]:
    """The step's text, and what its block says."""
    before, fence, rest = content.partition(f"\n{BLOCK}\n")
    block, end, after = rest.partition(f"\n{FENCE}")
    if fence and not end:
        raise GuideError(f"{where}: the block has no end")
    try:
        return f"{before}\n{after}".strip(), tomllib.loads(block)
    except tomllib.TOMLDecodeError as error:
        raise GuideError(f"{where}: the block cannot be read: {error}") from None


def _question(kind: Kind, block: dict[str, Any]) -> Question:
    question = msgspec.convert(block, Question)
    unknown = sorted(set(block) - set(Question.__struct_fields__))
    if unknown:
        raise GuideError(f"no key {unknown[0]!r}; allowed: {', '.join(Question.__struct_fields__)}")
    if not (question.theory if kind == "predict" else question.measured):
        raise GuideError("a prediction needs theory, an explanation needs measured")
    if not question.because or (question.theory and question.measured and not question.why):
        raise GuideError("needs because, and why where theory and measurement are compared")
    if len(question.choices) > len(LETTERS):
        raise GuideError(f"offers more than {len(LETTERS)} choices; there are no more keys")
    if question.values and len(question.values) != len(question.choices):
        raise GuideError(f"{len(question.choices)} choices but {len(question.values)} values")
    return question


def _setup(block: dict[str, Any], spec: LabSpec) -> Setup:
    name = block.pop("name", "")
    if not isinstance(name, str) or not name:
        raise GuideError("a run needs a name")
    nproc, seed = int(block.pop("nproc", spec.default_ranks)), int(block.pop("seed", 0))
    given = {key: value if isinstance(value, bool) else str(value) for key, value in block.items()}
    return Setup(name=name, nproc=nproc, seed=seed, given=given, params=parse(spec, given, nproc))


def _pane(block: dict[str, Any], spec: LabSpec) -> str:
    pane = block.get("pane")
    if pane not in spec.panes:
        raise GuideError(f"{pane!r} is no pane of {spec.id}; allowed: {', '.join(spec.panes)}")
    return str(pane)


def _tries(block: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    unknown = sorted(set(block) - {"commands", "refused"})
    if unknown:
        raise GuideError(f"no key {unknown[0]!r}; allowed: commands, refused")
    if sum(map(len, block.values())) > len(LETTERS):
        raise GuideError(f"offers more than {len(LETTERS)} lines to try; there are no more keys")
    return {key: tuple(str(line) for line in value) for key, value in block.items()}


def _linked(guide: Guide) -> Guide:
    """Give each question the run it speaks of: the one it names, else the next one, else the last before."""
    where = f"the guide of {guide.lab}"
    ids = [step.id for step in guide.steps]
    if len(set(ids)) != len(ids):
        raise GuideError(f"{where}: two steps have the same heading")
    if not guide.runs:
        raise GuideError(f"{where} runs nothing")
    steps = []
    for place, step in enumerate(guide.steps):
        if step.question is not None:
            name = step.question.run or _nearest_run(guide.steps, place)
            if name not in guide.runs:
                raise GuideError(f"{where}, step '{step.kind}: {step.title}': no run named {name!r}")
            step = msgspec.structs.replace(step, question=msgspec.structs.replace(step.question, run=name))
        steps.append(step)
    return msgspec.structs.replace(guide, steps=tuple(steps))


def _nearest_run(steps: Sequence[Step], place: int) -> str:
    after = [step.setup.name for step in steps[place:] if step.setup is not None]
    before = [step.setup.name for step in steps[:place] if step.setup is not None]
    if steps[place].kind == "explain":
        return before[-1] if before else ""
    return after[0] if after else before[-1] if before else ""


def filled(text: str, setup: Setup) -> str:
    """Return a text with `{name}` replaced by the run's parameters; unknown names stay as they are."""
    known = {"W": setup.nproc, **msgspec.to_builtins(setup.params)}
    return NAME.sub(lambda found: str(known.get(found[1], found[0])), text)

"""Every guide as data, without processes: it parses, theory has values, commands are what they say."""

from __future__ import annotations

import shlex

import pytest

from labs.catalog import catalog, spec_of
from labs.flags import take
from labs.params import LabSpec, ParameterError, fields_of, parse
from workbench import guides, usage
from workbench.answers import names, read_answer, row_of, theory
from workbench.expressions import evaluate
from workbench.guides import Guide, GuideError, parse_guide
from workbench.panes.prose import blocks

LABS = list(catalog())
COLUMNS = 54
"""What a guide beside the panes of a terminal of 120 columns has."""
GUIDE = """---
title: Data parallel
minutes: 5
prerequisites: collectives
---

## read: what is split

Rows.

## predict: bytes

How many, for {layers} layers of {dim}?

```toml
theory = "dim * dim * layers * 4"
measured = 'metrics["bytes"]'
unit = "B"
because = "Four bytes a parameter."
why = "A flag a tensor."
```

## run: four ranks

```toml
name = "plain"
nproc = 4
dim = 128
```
"""


def asked(spec: LabSpec, line: str) -> None:
    """Read a line of flags as the command line would.

    Raises:
        ParameterError: it is refused.
    """
    common = usage.run_fields()
    given, rest = take([*common, *fields_of(spec.params)], shlex.split(line))
    assert not rest, f"{line}: {rest} belongs to no flag"
    nproc = int(str(given.pop("nproc", spec.default_ranks)))
    own = {field.name for field in fields_of(spec.params)}
    parse(spec, {name: value for name, value in given.items() if name in own}, nproc)


@pytest.mark.parametrize("lab", LABS)
class TestEveryGuide:
    def test_has_all_kinds_of_steps(self, lab: str) -> None:
        guide = guides.load(spec_of(lab))
        kinds = [step.kind for step in guide.steps]
        assert kinds.count("read") >= 2
        assert kinds.count("predict") >= 2
        assert {"run", "observe", "explain", "change"} <= set(kinds)
        assert any("```" in step.text for step in guide.steps if step.kind == "read"), "a diagram helps"
        assert 5 <= guide.minutes <= 60
        assert guide.texts

    def test_its_diagrams_fit_beside_the_panes(self, lab: str) -> None:
        for step in guides.load(spec_of(lab)).steps:
            for kind, lines in blocks(step.text):
                if kind == "as it is":
                    assert max(map(len, lines)) <= COLUMNS, (step.id, max(lines, key=len))

    def test_its_prerequisites_come_before_it(self, lab: str) -> None:
        before = LABS[: LABS.index(lab)]
        assert set(guides.load(spec_of(lab)).prerequisites) <= set(before)

    def test_theory_answers_every_prediction(self, lab: str) -> None:
        guide = guides.load(spec_of(lab))
        for step in guide.questions:
            question = step.question
            assert question is not None
            truth = theory(guide, question)
            assert (truth is None) == (not question.theory), step.id
            if truth is None:
                continue
            typed = truth if isinstance(truth, str) else f"{truth!r} {question.unit}"
            assert row_of(guide, step, read_answer(question, typed), None).right, step.id
            if not question.choices:
                wrong = row_of(guide, step, float(truth) * 1.5 + 1, None)
                assert not wrong.right, f"{step.id}: any number would do"

    def test_its_commands_are_understood_and_the_refused_are_refused(self, lab: str) -> None:
        spec = spec_of(lab)
        for step in guides.load(spec).steps:
            for line in step.commands:
                asked(spec, line)
            for line in step.refused:
                with pytest.raises(ParameterError):
                    asked(spec, line)


class TestReadingAGuide:
    spec = spec_of("dp")

    def guide(self, text: str = GUIDE) -> Guide:
        return parse_guide(text, self.spec)

    def test_a_question_speaks_of_the_next_run(self) -> None:
        guide = self.guide()
        question = guide.questions[0].question
        assert question is not None
        assert question.run == "plain"
        assert guide.setup_of(question).nproc == 4
        assert guide.steps[1].id == "predict-bytes"

    def test_parameters_stand_in_the_text(self) -> None:
        guide = self.guide()
        assert (
            guides.filled("{layers} of {dim} on {W}, {else}", guide.runs["plain"]) == "4 of 128 on 4, {else}"
        )

    def test_names_of_an_expression(self) -> None:
        guide = self.guide()
        assert evaluate("dim * W + params.layers", names(guide, guide.runs["plain"])) == 516

    @pytest.mark.parametrize(
        ("before", "after", "message"),
        [
            ("---\ntitle", "title", "no front matter"),
            ("minutes: 5", "minutes: some", "whole minutes"),
            ("minutes: 5", "author: me", "no line of a front matter"),
            ("## read: what", "## reed: what", "is no step; allowed"),
            ("## read: what is split", "text first\n## read: x", "text before the first step"),
            ("unit =", "units =", "no key 'units'; allowed: theory"),
            ('why = "A flag a tensor."', "", "needs because, and why"),
            ('theory = "dim * dim * layers * 4"', "", "a prediction needs theory"),
            ('unit = "B"', "unit = B", "the block cannot be read"),
            ('name = "plain"', "", "a run needs a name"),
            ("nproc = 4", "nproc = 1", "--nproc: 1 rank does not fit dp"),
            ("nproc = 4", "batches = 4", "--batches"),
            ('unit = "B"', 'run = "other"', "no run named 'other'"),
            ('unit = "B"', "choices = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i']", "more than 8 choices"),
            ("## run: four", "## predict: bytes\n\n## run: four", "'predict: bytes': a prediction needs"),
        ],
    )
    def test_what_is_wrong_is_named(self, before: str, after: str, message: str) -> None:
        assert before in GUIDE
        with pytest.raises(GuideError) as caught:
            self.guide(GUIDE.replace(before, after, 1))
        assert message in str(caught.value)
        assert "dp" in str(caught.value)

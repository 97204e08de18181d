"""The exercises as data: complete, in order, found by name, and read without torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from labs.catalog import catalog, package_of
from labs.exercises import Exercise, exercise_of, exercises, read
from labs.params import ParameterError
from workbench.exercises import page, to_json

TITLES = 20


def test_the_course_is_numbered_from_one() -> None:
    assert [exercise.number for exercise in exercises()] == list(range(1, TITLES + 1))


@pytest.mark.parametrize("exercise", exercises(), ids=lambda exercise: exercise.name)
def test_an_exercise_is_complete(exercise: Exercise) -> None:
    assert exercise.title
    assert exercise.text
    assert len(set(exercise.hints)) == 3
    assert f"labs.{exercise.lab}" in {package_of(lab) for lab in catalog()}, "it lies in a lab that exists"
    tree = ast.parse(exercise.stub.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert all(ast.get_docstring(function) for function in functions)
    raising = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    assert raising, "a stub says that its body is missing"


def test_the_stub_and_the_solution_take_the_same_arguments() -> None:
    for exercise in exercises():
        stub, solution = (
            {
                node.name: ast.unparse(node.args)
                for node in ast.parse((exercise.folder / name).read_text()).body
                if isinstance(node, ast.FunctionDef)
            }
            for name in ("stub.py", "solution.py")
        )
        assert stub.items() <= solution.items(), exercise.name


def test_a_name_is_forgiven_its_underscores_and_its_ending() -> None:
    assert exercise_of("ring_all_reduce.py").name == "ring-all-reduce"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(
        ParameterError, match=r"did you mean ring-all-reduce\? exercises: ring-all-reduce, red"
    ):
        exercise_of("ring-allreduce")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("no front matter", "no front matter"), ("---\ntitle: x\n---\ntext\n## Hint 1\nonly one\n", "1 hints")],
)
def test_a_damaged_exercise_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "exercise.md").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path)


def test_the_list_as_text_and_as_json() -> None:
    shown = page(exercises())
    assert " 1  ring-all-reduce" in shown
    listed = json.loads(to_json(exercises()))
    assert [each["name"] for each in listed] == [exercise.name for exercise in exercises()]
    assert all(len(each["hints"]) == 3 for each in listed)


def test_listing_and_checking_load_neither_torch_nor_textual_nor_the_solutions() -> None:
    code = (
        "import sys, workbench.watch, workbench.exercises, workbench.exercise_flags\n"
        "from labs.exercises import exercises\nexercises()\n"
        "heavy = ('torch', 'numpy', 'textual')\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in heavy or '.exercises.' in m]\n"
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

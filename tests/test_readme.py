"""README is true: its tree and its labs are those of the code, its commands and links exist."""

from __future__ import annotations

import re
from pathlib import Path

from labs.catalog import catalog
from labs.params import fields_of
from tests.readme import README, ROOT, refreshed, tree

TEXT = README.read_text()


def test_what_follows_from_the_code_is_fresh() -> None:
    assert refreshed(TEXT) == TEXT, "python -m tests.readme writes it anew"


def test_the_tree_names_every_python_file_and_no_missing_one() -> None:
    folders: list[str] = []
    named = set()
    for line in tree().splitlines()[1:-1]:
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders = [*folders[:depth], name.rstrip("/")] if name.endswith("/") else folders[:depth]
        if name.endswith(".py"):
            named.add("/".join([*folders, name]))
            assert len(line.split()) > 1, f"{name} says nothing of itself"
    there = {
        str(file.relative_to(ROOT))
        for folder in ("workbench", "labs", "launcher", "tests")
        for file in (ROOT / folder).rglob("*.py")
        if file.name != "__init__.py"
    }
    assert named == there


def test_every_parameter_of_every_lab_is_told() -> None:
    for spec in catalog().values():
        for field in fields_of(spec.params):
            assert f"`{field.flag}`" in TEXT, f"{spec.id} {field.flag}"


def test_every_file_that_it_links_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        if target.startswith("https://"):
            continue
        assert (ROOT / target).exists(), target


def test_the_top_level_holds_only_what_the_design_names() -> None:
    allowed = {"pyproject.toml", "README.md", "workbench", "labs", "launcher", "tests"}
    made = {"build", "dist", "exercises", "shared"}
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert {name for name in found if not name.endswith(".egg-info")} - made == allowed


def test_it_names_no_path_of_one_machine() -> None:
    assert not re.search(r"/(root|home|opt|work)/", TEXT)
    assert Path(".ci/run").name in TEXT

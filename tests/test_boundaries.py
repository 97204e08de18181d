"""What the import contracts cannot see: what a real process has loaded, stale contracts, sizes of files."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "numpy", "textual", "rich", "plotext", "textual_plotext")
SLOW = ("psutil", "pynvml", "platformdirs", "asyncio", "multiprocessing")

LOADED = """
import json, sys
{code}
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh process has loaded after running `code`."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(code=code)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_headless_path_loads_neither_torch_nor_textual() -> None:
    code = """
import workbench.cli, workbench.headless, workbench.doctor, workbench.runs, workbench.report
import workbench.feed, workbench.services, launcher.client, launcher.collector
from labs.catalog import catalog
catalog()
"""
    assert not loaded_by(code) & set(HEAVY)


def test_the_list_of_labs_loads_nothing_slow() -> None:
    code = "from workbench.cli import main; main(['--list'])"
    assert not loaded_by(code) & {*HEAVY, *SLOW}


def test_probing_the_machine_loads_no_torch() -> None:
    code = "from workbench.machine import probe; probe()"
    assert not loaded_by(code) & set(HEAVY)


def test_the_app_loads_no_torch() -> None:
    assert "torch" not in loaded_by("import workbench.app")


@pytest.mark.parametrize("module", ["launcher.agent", "launcher.rank", "launcher.emitter"])
def test_the_launcher_loads_no_torch_at_import(module: str) -> None:
    assert "torch" not in loaded_by(f"import {module}")


def imports_of(file: Path) -> Iterator[str]:
    """The modules that a file imports anywhere, dotted."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def python_files(*folders: str) -> list[Path]:
    """All Python files below these folders of the repository."""
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def test_labs_import_of_the_launcher_only_events_and_emitter() -> None:
    for file in python_files("labs"):
        of_launcher = {name for name in imports_of(file) if name.partition(".")[0] == "launcher"}
        assert of_launcher <= {"launcher", "launcher.events", "launcher.emitter"}, file


def test_algorithms_know_no_telemetry() -> None:
    for file in python_files("labs/parallel"):
        assert not [name for name in imports_of(file) if name.startswith(("launcher", "workbench"))], file


def test_every_contract_still_names_modules_that_exist() -> None:
    """A contract about a module that was renamed would pass for ever."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    packages = tuple(config["root_packages"])
    for contract in config["contracts"]:
        for key in ("source_modules", "forbidden_modules", "layers"):
            for module in contract.get(key, []):
                if module.split(".")[0] not in packages or "*" in module:
                    continue
                path = ROOT / module.replace(".", "/")
                assert path.is_dir() or path.with_suffix(".py").is_file(), f"{contract['name']}: {module}"


def too_large(file: Path) -> Iterator[str]:
    """What in a file is larger than the house allows, or has no word on what it is."""
    text = file.read_text()
    place = file.relative_to(ROOT)
    short = place.parts[:2] in {("labs", "parallel"), ("workbench", "panes")} or file.name == "lab.py"
    lines = len(text.splitlines())
    if lines >= (300 if short else 400):
        yield f"{place}: {lines} lines"
    tree = ast.parse(text)
    if text and not ast.get_docstring(tree):
        yield f"{place}: no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            lines = (node.end_lineno or node.lineno) - body[0].lineno + 1
            most = (
                80 if (file.name, node.name) == ("lab.py", "run") else 60 if place.parts[0] == "tests" else 50
            )
            if lines > most:
                yield f"{place}: the body of {node.name} has {lines} lines"


def test_files_and_functions_stay_small() -> None:
    files = python_files("workbench", "labs", "launcher", "tests")
    assert not [problem for file in files for problem in too_large(file)]

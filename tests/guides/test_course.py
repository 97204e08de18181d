"""The progress file: readable, whole after a crash, patient with newer and damaged ones; and the map."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from labs.catalog import catalog, spec_of
from labs.params import ParameterError
from launcher.rundir import Result
from workbench import course_map, guides
from workbench.cli import main
from workbench.course import Course, LabProgress, data_dir
from workbench.guides import Setup
from workbench.study import Study


def result_of(lab: str, setup: Setup, **metrics: float) -> Result:
    """A run that had just the parameters of a run step."""
    return Result(
        run_id=f"{lab}-1",
        lab=lab,
        params=msgspec.to_builtins(setup.params),
        world_size=setup.nproc,
        backend="gloo",
        device="cpu",
        launcher="warm",
        status="passed",
        exit_code=0,
        wall_s=1.0,
        ready_s=0.5,
        checks=[],
        metrics=metrics,
        failure=None,
        events=1,
        dropped=0,
        record="",
    )


class TestTheFile:
    def test_what_was_kept_is_there_again(self, data_dir: Path) -> None:
        Course().keep_lab("dp", LabProgress(state="started", place="x", answers={"a": 1.5, "b": "yes"}))
        Course().checked("busbw", passed=False)
        Course().checked("busbw", passed=True)
        Course().checked("busbw", passed=False)
        again = Course()
        assert again.lab("dp").answers == {"a": 1.5, "b": "yes"}
        assert again.exercises()["busbw"].state == "done"
        assert again.exercises()["busbw"].checks == 3
        assert again.lab("pp").state == "open"
        assert json.loads((data_dir / "progress.json").read_text())["schema"] == 1

    def test_a_crash_while_writing_leaves_the_old_file(
        self, data_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Course().begun("busbw")

        def crash(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", crash)
            with pytest.raises(KeyboardInterrupt):
                Course().keep_lab("dp", LabProgress(state="done"))
        assert Course().exercises()["busbw"].state == "started"
        assert Course().lab("dp").state == "open"
        left = {path.name for path in data_dir.iterdir()}
        assert left == {"progress.json", ".progress.json.lock"}

    def test_a_newer_version_finds_its_own_again(self, data_dir: Path) -> None:
        newer = {
            "schema": 7,
            "badges": ["early"],
            "labs": {"dp": {"state": "started", "mood": "fine"}, "quantum": {"state": [1]}},
            "exercises": {},
        }
        (data_dir / "progress.json").write_text(json.dumps(newer))
        course = Course()
        assert course.lab("dp").state == "started"
        course.keep_lab("dp", LabProgress(state="done"))
        kept = json.loads((data_dir / "progress.json").read_text())
        assert kept["schema"] == 7
        assert kept["badges"] == ["early"]
        assert kept["labs"]["dp"]["mood"] == "fine"
        assert kept["labs"]["dp"]["state"] == "done"
        assert kept["labs"]["quantum"] == {"state": [1]}
        assert not course.problem

    @pytest.mark.parametrize("damage", ["", "{", "[]", '{"labs": 3}', '{"schema": "x"}', "\x00\xff"])
    def test_a_damaged_file_is_kept_aside_and_told_once(self, damage: str, data_dir: Path) -> None:
        (data_dir / "progress.json").write_text(damage, encoding="latin-1")
        course = Course()
        assert course.labs() == {}
        assert "progress.json.damaged" in course.problem
        course.problem = ""
        course.keep_lab("dp", LabProgress(state="done"))
        assert course.lab("dp").state == "done"
        assert not course.problem
        assert (data_dir / "progress.json.damaged").read_text(encoding="latin-1") == damage
        (data_dir / "progress.json").write_text("{")
        again = Course()
        assert not again.labs()
        assert "damaged2" in again.problem
        assert (data_dir / "progress.json.damaged2").exists()

    def test_a_folder_that_cannot_be_written_is_a_problem_not_an_end(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        course = Course(tmp_path / "file" / "progress.json")
        course.keep_lab("dp", LabProgress(state="done"))
        assert "progress cannot be kept" in course.problem

    def test_the_variable_names_the_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("WORLDSIZE_DATA_DIR", str(tmp_path / "mine"))
        assert data_dir() == tmp_path / "mine"


class TestAStudy:
    def test_it_resumes_at_the_next_open_step(self) -> None:
        guide = guides.load(spec_of("mesh"))
        study = Study(guide, Course())
        study.go(1)
        study.answer("6")
        study.go(1)
        later = Study(guide, Course())
        assert later.step == guide.steps[2]
        assert later.row(guide.steps[1]).right
        assert later.progress.state == "started"

    def test_an_answer_that_is_left_out_stays_open(self) -> None:
        guide = guides.load(spec_of("mesh"))
        study = Study(guide, Course())
        for _ in guide.steps:
            study.go(1)
        assert study.step is None
        assert [step.kind for step in study.open_steps][:3] == ["predict", "predict", "run"]
        assert Study(guide, Course()).step == guide.steps[1]

    def test_only_a_run_with_the_steps_own_parameters_counts(self) -> None:
        guide = guides.load(spec_of("mesh"))
        study = Study(guide, Course())
        setup = guide.runs["2x4"]
        result = result_of("mesh", setup, groups=6.0)
        assert not study.finished(msgspec.structs.replace(result, world_size=4))
        assert not study.finished(result, seed=1)
        assert not study.finished(msgspec.structs.replace(result, params={**result.params, "dim": 8}))
        assert not study.finished(msgspec.structs.replace(result, status="error"))
        assert [step.setup for step in study.finished(result)] == [setup]
        row = Study(guide, Course()).row(guide.steps[1])
        assert (row.measured, row.agrees) == (6.0, True)
        assert "sync_model" in Study(guide, Course()).row(guide.steps[5]).missing

    def test_a_reset_meanwhile_is_not_undone(self) -> None:
        guide = guides.load(spec_of("mesh"))
        study = Study(guide, Course())
        study.go(1)
        study.go(1)
        assert len(Course().lab("mesh").done) >= 1
        assert Course().forget("mesh")
        study.show(guide.steps[1])
        assert Course().lab("mesh").done == ()
        study.show(guide.steps[0])
        study.go(1)
        assert Course().lab("mesh").done == (guide.steps[0].id,)


class TestTheMap:
    def test_every_lab_needs_and_gives(self) -> None:
        stops = course_map.stops(Course())
        assert [stop.lab for stop in stops] == list(catalog())
        assert all(stop.gives and stop.texts and stop.papers for stop in stops)
        assert {task.name for stop in stops for task in stop.exercises} >= {"ring-all-reduce", "three-axes"}

    def test_progress_is_printed_and_reset(self, capsys: pytest.CaptureFixture[str], data_dir: Path) -> None:
        Study(guides.load(spec_of("mesh")), Course()).go(1)
        Course().checked("busbw", passed=True)
        assert main(["--progress"]) == 0
        page = capsys.readouterr().out
        assert "[~] mesh" in page
        assert "next:   predict: groups of a mesh" in page
        assert "[x] busbw" in page
        assert main(["--progress", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["file"] == str(data_dir / "progress.json")
        assert [lab["state"] for lab in told["labs"] if lab["lab"] == "mesh"] == ["started"]
        assert main(["--reset", "mesh"]) == 0
        assert capsys.readouterr().out == "mesh is open again\n"
        assert Course().lab("mesh").state == "open"
        assert Course().exercises()["busbw"].state == "done"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--reset", "mesch"], "--reset: no lab or exercise named 'mesch'; did you mean mesh? allowed:"),
            (["--reset="], "--reset: needs a lab or an exercise"),
            (["--progress", "--runs-dir", "x"], "--runs-dir: does not go with --progress"),
        ],
    )
    def test_mistakes(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str], data_dir: Path
    ) -> None:
        assert main(words) == 2
        assert message in capsys.readouterr().err
        assert not list(data_dir.iterdir())

    def test_reset_of_an_unwritable_file_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "progress.json").mkdir()
        with pytest.raises(ParameterError, match=r"--reset: .*progress\.json"):
            course_map.reset(Course(tmp_path / "progress.json"), "mesh")

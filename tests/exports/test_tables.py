"""Tables and the one document: every event is there, and what was not told is empty."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest

from tests.exports.runs import NASTY, data_parallel_run, pipeline_run
from workbench.exports.formats import export


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_three_tables_in_a_folder(tmp_path: Path) -> None:
    folder = export(pipeline_run(tmp_path / "run"), "csv", tmp_path / "tables")
    assert sorted(file.name for file in folder.iterdir()) == ["samples.csv", "scalars.csv", "spans.csv"]
    spans = rows(folder / "spans.csv")
    assert len(spans) == 3 * 4 * 16 + 5
    first = next(span for span in spans if span["action"] == "0F0" and span["step"] == "1")
    assert (first["rank"], first["lane"], first["stage"], first["bytes"]) == ("0", "compute", "0", "")
    assert float(first["end_s"]) - float(first["start_s"]) == pytest.approx(0.02)
    scalars = rows(folder / "scalars.csv")
    assert [(one["rank"], one["step"], one["value"]) for one in scalars][:2] == [
        ("3", "0", "1.0"),
        ("3", "1", "0.5"),
    ]
    samples = rows(folder / "samples.csv")
    assert [one["of"] for one in samples] == ["node", *["rank"] * 4, "gpu"]
    assert (samples[1]["index"], samples[1]["memory_bytes"], samples[1]["gpu_percent"]) == (
        "0",
        "300000000",
        "",
    )
    assert samples[-1]["gpu_percent"] == "97.0"


def test_the_same_tables_in_a_zip(tmp_path: Path) -> None:
    run = data_parallel_run(tmp_path / "run")
    folder, packed = export(run, "csv", tmp_path / "t"), export(run, "csv", tmp_path / "t.zip")
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        for name in ("spans.csv", "scalars.csv", "samples.csv"):
            assert archive.read(name) == (folder / name).read_bytes()
        assert len(list(csv.reader(io.StringIO(archive.read("scalars.csv").decode())))) == 1 + 4 * 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "t", "t.zip"]


def test_one_document_has_the_result_and_every_event(tmp_path: Path) -> None:
    run = pipeline_run(tmp_path / "run")
    recorded = (run / "events.jsonl").read_bytes()
    (run / "events.jsonl").write_bytes(recorded + b'{"event":"nonsense"}\n{"event":"log","t":1')
    found = json.loads(export(run, "json", tmp_path / "run.json").read_text())
    assert found["events"] == [json.loads(line) for line in recorded.splitlines()]
    assert found["unreadable"] == 1
    assert found["result"]["status"] == "failed"
    assert found["result"]["checks"][0]["name"] == NASTY
    assert found["manifest"]["params"]["schedule"] == "1f1b"


def test_a_run_that_has_not_ended_is_exported_as_far_as_it_is(tmp_path: Path) -> None:
    run = pipeline_run(tmp_path / "run")
    (run / "result.json").unlink()
    found = json.loads(export(run, "json", tmp_path / "run.json").read_text())
    assert found["result"] is None
    assert found["events"]

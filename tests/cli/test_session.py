"""Preparing a run without starting it: backend, folder, manifest, commands; finding runs again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import msgspec
import pytest

from labs.catalog import catalog, spec_of
from labs.flags import split, to_flags
from labs.params import LabSpec, ParameterError, fields_of, parse
from launcher.rundir import ProcessId, read_manifest, write_manifest
from workbench import elsewhere, runs, session, usage
from workbench.machine import Gpu, Machine, _visible, backend_for

CPU = Machine(
    hostname="n", system="s", cores=2, memory=1 << 30, gpu_note="no GPU", python="3.11", torch="2.13"
)
GPUS = tuple(Gpu(index=index, name="H", uuid=f"GPU-{index}{index}") for index in range(4))
FOUR = msgspec.structs.replace(CPU, gpus=GPUS, gpu_note="", torch_cuda="12.8")
OPTIONS = session.RunOptions(nproc=2, seed=7)


@pytest.fixture
def dp() -> LabSpec:
    return spec_of("dp")


class TestBackend:
    def test_without_a_gpu(self) -> None:
        assert backend_for(CPU, 4) == ("gloo", "cpu", "gloo on the CPU: no GPU")

    def test_one_gpu_a_rank(self) -> None:
        assert backend_for(FOUR, 4) == ("nccl", "cuda", "NCCL: one GPU a rank (4 of 4 GPUs)")

    def test_fewer_gpus_than_ranks(self) -> None:
        assert backend_for(FOUR, 5) == ("gloo", "cpu", "gloo on the CPU: 4 GPUs for 5 ranks")

    def test_the_cpu_asked_for(self) -> None:
        assert backend_for(FOUR, 2, "cpu")[:2] == ("gloo", "cpu")

    def test_cuda_asked_for_and_too_few(self) -> None:
        with pytest.raises(ParameterError, match="--device: cuda needs one GPU a rank: 4 GPUs for 5 ranks"):
            backend_for(FOUR, 5, "cuda")

    @pytest.mark.parametrize(
        ("chosen", "found"),
        [("0,2", [0, 2]), ("2,0", [2, 0]), ("", []), ("1,9,2", [1]), ("GPU-33", [3]), ("-1", [])],
    )
    def test_visible_devices_are_as_cuda_reads_them(self, chosen: str, found: list[int]) -> None:
        assert [gpu.index for gpu in _visible(GPUS, {"CUDA_VISIBLE_DEVICES": chosen})] == found


class TestPrepare:
    def test_folder_manifest_and_request_agree(self, dp: LabSpec, runs_dir: Path) -> None:
        owner = ProcessId(1, 2.0)
        prepared = session.prepare(dp, dp.params(), OPTIONS, CPU, owner)
        assert prepared.folder.parent == runs_dir
        manifest = read_manifest(prepared.folder)
        assert manifest == prepared.manifest
        assert (manifest.world_size, manifest.seed, manifest.backend, manifest.owner) == (2, 7, "gloo", owner)
        request = prepared.request
        assert request.run_id == manifest.run_id == prepared.folder.name
        assert request.argument["params"] == manifest.params
        assert request.environment == {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}

    def test_measuring_labs_run_without_debugging(self) -> None:
        spec = spec_of("bandwidth")
        assert session.prepare(spec, spec.params(), OPTIONS, CPU).request.environment == {}

    def test_two_runs_have_two_folders(self, dp: LabSpec) -> None:
        folders = {session.prepare(dp, dp.params(), OPTIONS, CPU).folder for _ in range(20)}
        assert len(folders) == 20

    def test_no_torch(self, dp: LabSpec, runs_dir: Path) -> None:
        with pytest.raises(ParameterError, match="torch: is not installed for"):
            session.prepare(dp, dp.params(), OPTIONS, msgspec.structs.replace(CPU, torch=""))
        assert not runs_dir.exists()

    def test_the_owner_comes_later(self, dp: LabSpec) -> None:
        prepared = session.prepare(dp, dp.params(), OPTIONS, CPU)
        owner = ProcessId(1, 2.0)
        assert session.adopt(prepared, owner).manifest.owner == owner
        assert read_manifest(prepared.folder).owner == owner


class TestCommands:
    @pytest.mark.parametrize("lab", list(catalog()))
    def test_flags_there_and_back(self, lab: str) -> None:
        """Every parameter that is not at its default comes back from its flags."""
        spec = spec_of(lab)
        changed: dict[str, object] = {}
        for field in fields_of(spec.params):
            if field.kind == "bool":
                changed[field.name] = not field.default
            elif field.kind == "choice":
                changed[field.name] = field.choices[-1]
            elif field.kind == "int":
                changed[field.name] = int(field.ge or 0) + 1
        params = spec.params(**changed)
        given, rest = split(spec, to_flags(spec, params))
        assert rest == []
        assert parse(msgspec.structs.replace(spec, validate=None), given, spec.default_ranks) == params

    def test_the_defaults_need_no_flags(self, dp: LabSpec) -> None:
        assert to_flags(dp, dp.params()) == []

    def test_the_workbench_command_names_the_ranks_and_what_differs(self, dp: LabSpec) -> None:
        params = parse(dp, {"steps": "5"}, 2)
        command = session.workbench_command(dp, params, OPTIONS)
        assert command == "workbench --run dp --nproc 2 --steps 5 --seed 7"

    def test_a_value_that_a_shell_would_read_is_quoted(self) -> None:
        spec = spec_of("bandwidth")
        command = session.torchrun_command(spec, spec.params(output="a b;c.csv"), OPTIONS)
        assert "a b;c.csv" in shlex.split(command)

    @pytest.mark.parametrize("lab", list(catalog()))
    def test_no_parameter_hides_a_common_flag(self, lab: str) -> None:
        common = {field.flag for field in usage.run_fields()} | {"--help"}
        for field in fields_of(spec_of(lab).params):
            assert field.flag not in common
            assert field.short not in {"-h"}


class TestFindingRuns:
    @pytest.fixture
    def kept(self, dp: LabSpec, runs_dir: Path) -> list[str]:
        manifest = session.prepare(dp, dp.params(), OPTIONS, CPU).manifest
        names = ["dp-1-aa", "dp-1-ab", "pp-2-cc"]
        for name in names:
            (runs_dir / name).mkdir()
            write_manifest(runs_dir / name, msgspec.structs.replace(manifest, run_id=name))
        return names

    def test_by_id_prefix_latest_and_folder(self, kept: list[str], runs_dir: Path) -> None:
        assert runs.resolve("dp-1-aa", runs_dir, "--replay").name == "dp-1-aa"
        assert runs.resolve("pp", runs_dir, "--replay").name == "pp-2-cc"
        assert runs.resolve("latest", runs_dir, "--replay").name == kept[-1]
        assert runs.resolve(str(runs_dir / "dp-1-ab"), runs_dir, "--replay").name == "dp-1-ab"

    def test_a_prefix_of_several(self, kept: list[str], runs_dir: Path) -> None:
        with pytest.raises(ParameterError, match=r"--replay: dp-1 fits 2 runs: .*give more of the id"):
            runs.resolve("dp-1", runs_dir, "--replay")

    def test_none_fits(self, kept: list[str], runs_dir: Path) -> None:
        with pytest.raises(ParameterError, match=r"no run 'pp-2-cd' in .*did you mean pp-2-cc"):
            runs.resolve("pp-2-cd", runs_dir, "--replay")

    def test_a_damaged_run_is_one_line(self, kept: list[str], runs_dir: Path) -> None:
        (runs_dir / "dp-1-aa" / "manifest.json").write_text("{")
        with pytest.raises(ParameterError, match=r"--replay: .*dp-1-aa: its manifest.json cannot be read: "):
            runs.resolve("dp-1-aa", runs_dir, "--replay")
        (runs_dir / "pp-2-cc" / "result.json").write_text("[]")
        with pytest.raises(ParameterError, match=r"--stop: .*pp-2-cc: its result.json cannot be read: "):
            elsewhere.stop(runs_dir / "pp-2-cc")

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("schema", 99, "it is of schema 99, a newer workbench's"),
            ("world_size", 1_000_000, "it tells of 1000000 ranks, not 1 to 4096"),
            ("world_size", -4, "it tells of -4 ranks, not 1 to 4096"),
        ],
    )
    def test_a_manifest_that_cannot_be_shown(
        self, kept: list[str], runs_dir: Path, field: str, value: int, said: str
    ) -> None:
        file = runs_dir / kept[0] / "manifest.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
        with pytest.raises(ParameterError, match=said):
            runs.resolve(kept[0], runs_dir, "--replay")
        assert kept[0] not in [run.manifest.run_id for run in runs.kept_runs(runs_dir)]

    def test_damaged_folders_are_left_out_of_the_list(self, kept: list[str], runs_dir: Path) -> None:
        (runs_dir / "dp-1-aa" / "manifest.json").write_text("{")
        (runs_dir / "pp-2-cc" / "result.json").write_text("{")
        listed = runs.kept_runs(runs_dir)
        assert "dp-1-aa" not in [run.manifest.run_id for run in listed]
        assert {run.status for run in listed} == {"no result"}

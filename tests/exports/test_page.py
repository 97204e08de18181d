"""The page and the pictures: well formed, complete, and without a word to the network."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from labs.params import ParameterError
from launcher.events import AnyEvent, Scalar, encode
from tests.app.recording import START, manifest_of, write_run
from tests.exports.runs import NASTY, data_parallel_run, failed_run, pipeline_run
from tests.views.test_gantt import events_of
from workbench import palette
from workbench.exports import html, plot
from workbench.exports.formats import export
from workbench.exports.gather import Gathered
from workbench.exports.stream import Source
from workbench.views.bandwidth import BandwidthSnapshot, OpCurve, Point

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br", "img", "link", "input", "hr"}
LOADS = {"src", "href", "srcset", "data", "action", "poster", "xlink:href", "formaction", "ping"}


class Page(HTMLParser):
    """Checks that tags close in their order, and notes ids, texts and whatever could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.texts: dict[str, str] = {}
        self.handlers: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in LOADS:
                self.loads.append((tag, f"{name}={value}"))
            if name.startswith("on"):
                self.handlers.append(name)
            if name == "id" and value:
                self.ids.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self.ids[-1] if self.ids else ""
        self.texts[where] = self.texts.get(where, "") + data


def page_of(run: Path, tmp_path: Path) -> tuple[Page, str]:
    text = export(run, "html", tmp_path / "run.html").read_text()
    return Page(text), text


@pytest.mark.parametrize("make", [pipeline_run, data_parallel_run, failed_run])
def test_the_page_needs_no_network_and_is_well_formed(make: object, tmp_path: Path) -> None:
    assert callable(make)
    page, text = page_of(make(tmp_path / "run"), tmp_path)
    assert page.open == []
    assert page.loads == []
    assert page.handlers == []
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert page.tags.count("script") == 1
    assert "default-src 'none'" in text
    without_names = text.replace('xmlns="http://www.w3.org/2000/svg"', "").replace("https://example.org", "")
    assert "://" not in without_names
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", text)


def test_what_a_run_says_is_never_markup(tmp_path: Path) -> None:
    page, text = page_of(pipeline_run(tmp_path / "run"), tmp_path)
    assert NASTY not in text
    assert NASTY in page.texts["checks"]
    assert NASTY in page.texts["log"]


def test_the_page_of_a_pipeline(tmp_path: Path) -> None:
    page, text = page_of(pipeline_run(tmp_path / "run"), tmp_path)
    assert page.ids == ["checks", "schedule", "loss", "memory", "communication", "log", "run"]
    assert text.count('data-until="') == 3
    assert text.count("<option") == 3
    assert "failed: 1 check of 1" in page.texts[""]
    assert "micro-batch 0 on stage 0" in page.texts["schedule"]
    assert "3 of 4 ranks have none" in page.texts["loss"]


def test_the_page_of_a_run_without_a_schedule(tmp_path: Path) -> None:
    page, _ = page_of(data_parallel_run(tmp_path / "run"), tmp_path)
    assert page.ids == ["checks", "timeline", "loss", "shards", "memory", "communication", "log", "run"]
    assert "r3 [96:128, 0:1024]" in page.texts["shards"]
    assert "16.9 MB" in page.texts["memory"]
    assert "all_reduce" in page.texts["communication"]


def test_the_page_of_a_failure_has_the_log_of_the_rank_that_failed(tmp_path: Path) -> None:
    page, _ = page_of(failed_run(tmp_path / "run"), tmp_path)
    assert page.ids[0] == "failure"
    assert "rank 2 failed first (exception)" in page.texts["failure"]
    assert "the matrix <A> does not fit" in page.texts["failure"]
    assert 'File "lab.py", line 3' in page.texts["failure"]
    assert "Log of rank 2" in page.texts["log"]
    assert "last words of rank 2" in page.texts["log"]
    assert "last words of rank 1" not in page.texts["log"]


def test_a_run_that_goes_on_has_a_page(tmp_path: Path) -> None:
    manifest = manifest_of("pp", 2)
    run = write_run(tmp_path / "run", manifest, events_of("1f1b", 2, 4)[:-3])
    page, _ = page_of(run, tmp_path)
    assert "no result: the run goes on" in page.texts[""]
    assert page.ids == ["schedule", "run"]


def test_a_page_leaves_out_old_steps_rather_than_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "ACTIONS_AT_MOST", 2 * 4 * 16)
    text = html.render(Gathered(Source(pipeline_run(tmp_path / "run", steps=6))))
    assert re.findall(r'<option value="(\d)"', text) == ["5", "6"]


def svg_of(run: Path, tmp_path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(export(run, "svg", tmp_path / "run.svg").read_text())


def test_the_pictures_of_a_pipeline(tmp_path: Path) -> None:
    root = svg_of(pipeline_run(tmp_path / "run"), tmp_path)
    texts = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
    assert texts.count("planned 1f1b") == 1
    assert "measured 1f1b, step 3" in texts
    assert any(
        "of ideal" in text and "zero-bubble measure" in text and "keeps 4 3 2 1" in text for text in texts
    )
    assert texts.count("F0") == 2 * 4
    groups = [node for node in root.iter(f"{SVG}g") if "data-s" in node.attrib]
    assert len(groups) == 2 * 4 * 16
    assert len(list(root.iter(f"{SVG}polyline"))) == 1
    heights = [float(node.attrib["y"]) for node in root if node.tag == f"{SVG}svg"]
    assert heights == sorted(heights)
    assert float(root.attrib["height"]) > heights[-1]


def test_a_run_without_schedule_is_a_timeline(tmp_path: Path) -> None:
    root = svg_of(data_parallel_run(tmp_path / "run"), tmp_path)
    titles = ["".join(node.itertext()) for node in root.iter(f"{SVG}title")]
    assert any(title.startswith("all_reduce, comm, rank 3") for title in titles)
    words = {"".join(node.itertext()) for node in root.iter(f"{SVG}text")}
    assert {"forward", "backward", "communication", "optimizer"} <= words
    heights = {node.attrib["fill"]: node.attrib["height"] for node in root.iter(f"{SVG}rect")}
    assert len({heights[palette.LANES[lane]] for lane in ("compute", "comm", "optimizer")}) == 3
    assert len(list(root.iter(f"{SVG}polyline"))) == 5


def test_nothing_to_draw_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest_of("dp", 2), [])
    with pytest.raises(ParameterError, match=r"--format: svg: .* told no schedule"):
        export(run, "svg", tmp_path / "out.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_of_many_ranks_the_lowest_and_the_highest_are_drawn() -> None:
    found = plot.memory_plot({rank: ((0.0, 1.0), (1.0, float((rank * 7) % 64))) for rank in range(64)})
    assert found is not None
    assert [curve.name for curve in found.curves] == ["rank 0", "rank 9"]
    assert "of 64 ranks" in found.title
    few = plot.memory_plot(dict.fromkeys(range(plot.MANY), ((0.0, 1.0),)))
    assert few is not None
    assert len(few.curves) == plot.MANY


def test_bandwidth_is_drawn_over_sizes(tmp_path: Path) -> None:
    points = tuple(Point(2.0**i, 1.0, 1.0, 1.0, float(i), float(i)) for i in range(10, 15))
    found = plot.bandwidth_plot(BandwidthSnapshot((OpCurve("all_reduce", points),), link_peak=20.0))
    assert found is not None
    root = ElementTree.fromstring(plot.draw(found, 800, 300))
    lines = [node.attrib["points"].split() for node in root.iter(f"{SVG}polyline")]
    xs = [float(point.split(",")[0]) for point in lines[0]]
    steps = [after - before for before, after in itertools.pairwise(xs)]
    assert steps == pytest.approx([steps[0]] * 4, abs=0.2)
    texts = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
    assert {"all_reduce", "link peak", "1.02 kB", "GB/s"} <= set(texts)
    assert plot.bandwidth_plot(BandwidthSnapshot()) is None


def test_curves_survive_what_is_not_a_number_and_lone_points(tmp_path: Path) -> None:
    events: list[AnyEvent] = [
        Scalar(t=START, rank=0, name="loss", value=float("nan"), step=0),
        Scalar(t=START, rank=0, name="loss", value=0.5, step=1),
    ]
    run = write_run(tmp_path / "run", manifest_of("dp", 1), events)
    root = svg_of(run, tmp_path)
    assert len(list(root.iter(f"{SVG}circle"))) == 1
    (run / "events.jsonl").write_bytes(encode(events[0]))
    with pytest.raises(ParameterError):
        export(run, "svg", tmp_path / "nothing.svg")


@pytest.mark.parametrize(
    ("places", "expected"),
    [([], []), ([10, 50], [20, 50]), ([50, 50, 51], [50, 62, 74]), ([90, 95, 99], [76, 88, 100])],
)
def test_names_stay_apart_and_inside(places: list[float], expected: list[float]) -> None:
    assert plot.apart(places, 20, 100) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0.1, 0.5, [0.1, 0.2, 0.3, 0.4, 0.5]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert plot.ticks(low, high) == pytest.approx(expected)

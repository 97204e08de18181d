"""The pictures in README: screens of the app as SVG, drawn from recorded runs: `python -m tests.pictures`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from labs.catalog import catalog, spec_of
from tests.app.fakes import Outside, app_of
from tests.app.pilot import until_over, until_seen

ROOT = Path(__file__).parent
RUNS = ROOT / "data" / "runs"
PICTURES = ROOT / "data" / "pictures"
SIZE = (120, 40)


async def picture_of_run(name: str) -> str:
    """Return the screen of a recorded run as SVG."""
    outside = Outside(labs={lab: spec_of(lab) for lab in catalog()})
    with tempfile.TemporaryDirectory() as runs:
        app = app_of(Path(runs), outside, RUNS / name)
        async with app.run_test(size=SIZE) as pilot:
            await until_over(pilot)
            await until_seen(pilot, "esc back")
            return app.export_screenshot(title=f"workbench --replay {name}")


def main() -> None:
    """Draw the runs that the words name, or all that are drawn already."""
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or sorted(file.stem for file in PICTURES.glob("*.svg")):
        (PICTURES / f"{name}.svg").write_text(asyncio.run(picture_of_run(name)))


if __name__ == "__main__":
    main()

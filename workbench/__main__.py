"""`workbench` and `python -m workbench`."""

from __future__ import annotations

import sys

from workbench.cli import main as command


def main() -> None:
    """Run the command and leave with its exit code."""
    sys.exit(command())


if __name__ == "__main__":
    main()

"""`workbench` and `python -m workbench`."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command and leave with its exit code; ctrl-C is no traceback, not even while modules load."""
    try:
        from workbench.cli import main as command

        code = command()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()

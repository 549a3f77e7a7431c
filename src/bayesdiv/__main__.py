"""The command `bayesdiv`, also as `python -m bayesdiv`: what needs no extra answers without it."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or say in one sentence what to install first."""
    try:
        from bayesdiv.app.cli import main as command_line
    except ModuleNotFoundError as problem:
        sys.stderr.write(f"bayesdiv: {problem}\n")
        sys.exit(2)
    command_line(arguments)


if __name__ == "__main__":
    main()

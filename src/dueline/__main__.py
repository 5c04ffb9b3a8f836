"""`python -m dueline`: the command line."""

import gc
import sys

from dueline.core.version import VERSION


def main() -> None:
    """Run the command line of this process and exit."""
    if sys.argv[1:] == ["--version"]:  # at once, without what commands need
        print(f"dueline {VERSION}")  # noqa: T201
        return
    gc.set_threshold(20_000)  # modules make many objects, and no garbage
    from dueline.cli import main as run  # noqa: PLC0415  (see above)

    run()


if __name__ == "__main__":
    main()

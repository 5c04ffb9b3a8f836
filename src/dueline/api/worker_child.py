"""`python -m dueline.api.worker_child`: the child process of a worker."""

import sys

from dueline.api.loading import load_app
from dueline.api.logs import show_as_parent_does
from dueline.core.errors import DuelineError
from dueline.worker.child_process import serve


def main(place: str, threads: str, pipe: str, board: str) -> None:
    """Import the application and serve the parent process through the descriptors."""
    try:
        app = load_app(place)
    except DuelineError as error:
        sys.exit(str(error))
    show_as_parent_does()
    serve(int(pipe), int(board), dict(app.tasks), int(threads), app.hooks)


if __name__ == "__main__":
    main(*sys.argv[1:])

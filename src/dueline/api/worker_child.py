"""`python -m dueline.api.worker_child`: the child process of a worker."""

import sys

from dueline.api.loading import load_app
from dueline.api.logs import show_as_parent_does
from dueline.core.errors import DuelineError
from dueline.core.process_identity import importing
from dueline.worker.child_process import serve


def main(place: str, threads: str, *rest: str) -> None:
    """Import the application and serve the parent process.

    rest: folders of the parent's module path, if it is not this process's own; the descriptors of
    the pipe and the board.
    """
    *folders, pipe, board = rest
    sys.path[:] = folders or sys.path
    try:
        importing.set()
        app = load_app(place)
        tasks = dict(app.tasks)
        importing.clear()
    except DuelineError as error:
        sys.exit(str(error))
    show_as_parent_does()
    serve(int(pipe), int(board), tasks, int(threads), app.hooks)


if __name__ == "__main__":
    main(*sys.argv[1:])

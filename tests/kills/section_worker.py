"""A worker whose handlers have sections that must not repeat, in a child process."""

import os
from pathlib import Path

from tests.kills.flows import QUEUE
from tests.kills.sections import FOLDER, app_in

app = app_in(Path(os.environ[FOLDER]))

if __name__ == "__main__":
    app.run_worker([QUEUE], concurrency=4, processes=1)

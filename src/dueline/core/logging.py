"""The log of workers and of what runs next to them."""

import logging
from typing import Final

log: Final = logging.getLogger("dueline.worker")

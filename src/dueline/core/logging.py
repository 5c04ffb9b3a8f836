"""The log of workers and of what runs next to them."""

import logging
from typing import Final

log: Final = logging.getLogger("dueline.worker")


def enable_loggers() -> None:
    """Enable dueline's loggers that `dictConfig` or `fileConfig` of the application disabled.

    Both disable existing loggers unless they are asked not to. Levels, `propagate`, handlers and
    `logging.disable` of the application stay.
    """
    for name, logger in [*logging.root.manager.loggerDict.items()]:
        if f"{name}.".startswith("dueline.") and isinstance(logger, logging.Logger):
            logger.disabled = False

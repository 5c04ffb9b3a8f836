"""Tasks whose handlers take a batch of jobs."""

from dataclasses import dataclass

from dueline import (
    BatchOptions,
)

AT_ONCE = BatchOptions(size=10, within=0)


@dataclass
class Doc:
    """What a call carries."""

    name: str
    pages: int = 1

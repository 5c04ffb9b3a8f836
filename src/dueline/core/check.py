"""The result of one check of a store."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["good", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found. advice: What to do; empty where nothing is wrong."""

    name: str
    verdict: Verdict
    finding: str
    advice: str = ""

"""The options that a job carries as they are, with something that is given for each."""

from collections.abc import Mapping
from typing import Any

from dueline.core.call_options import CARRIED, Carried
from dueline.core.option_table import OPTIONS, Option, Shape

GIVEN: Mapping[Shape, Any] = {Shape.WORDS: ["b", "a"], Shape.PAIRS: {"by": "é", "at": "x"}}
"""What a caller gives for an option."""

NEEDS: Mapping[str, str] = {"zone": "a", "region": "eu"}
"""What a caller gives for `needs`, which take fewer characters."""

PASSED = [option for option in OPTIONS if option.name in CARRIED]


def given() -> dict[str, Any]:
    """Return all options as `using` takes them."""
    return {option.name: given_for(option) for option in PASSED}


def given_for(option: Option) -> Any:  # noqa: ANN401  (of each shape)
    """Return what a caller gives for one option."""
    return NEEDS if option.name == "needs" else GIVEN[option.shape]


def shown(carried: Carried, option: Option) -> Any:  # noqa: ANN401  (of each shape)
    """Return what is carried, as people see it."""
    return CARRIED[option.name].show(getattr(carried, option.name))


def expected(option: Option) -> Any:  # noqa: ANN401  (of each shape)
    """Return how the given value is shown."""
    value = given_for(option)
    return sorted(value) if option.shape is Shape.WORDS else value

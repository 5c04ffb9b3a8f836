"""Arguments and results without secrets."""

import re
from collections.abc import Sequence
from typing import Any, Final

REDACT: Final = (
    r"pass(word|wd|phrase)?$|^pw$|secret|token|api_?key|access_?key|private_?key|credential|"
    r"authorization|^auth$|cookie|session_?id|^ssn$|^iban$|card_?(number|no)|cvv|^pin$"
)
"""Default pattern of names whose values are not shown."""

HIDDEN: Final = "[redacted]"


class Redaction:
    """Replaces the values of parameters and keys whose name matches a pattern.

    Args:
        pattern: Regular expression, in any case.
    """

    def __init__(self, pattern: str = REDACT) -> None:
        self._pattern = re.compile(pattern, re.IGNORECASE)

    def value(self, value: Any) -> Any:  # noqa: ANN401  (JSON)
        """Return a JSON value without the values of secret keys."""
        match value:
            case dict():
                return {key: self.named(str(key), inner) for key, inner in value.items()}
            case list():
                return [self.value(item) for item in value]
        return value

    def arguments(self, arguments: Any, names: Sequence[str]) -> Any:  # noqa: ANN401
        """Return arguments by parameter, without secrets.

        Args:
            arguments: A list, or an object with `args` and `kwargs`.
            names: Parameters of the task; arguments beyond them are named by their position. If
                none is known and none was named in the call, the arguments are a list.
        """
        match arguments:
            case {"args": list(args), "kwargs": dict(kwargs)} if len(arguments) == 2:  # noqa: PLR2004
                pass
            case list(args):
                kwargs = {}
            case _:
                return self.value(arguments)
        if not names and not kwargs:
            return self.value(args)
        known = [*names][: len(args)]
        known += [str(place) for place in range(len(known), len(args))]
        shown = dict(zip(known, args, strict=True))
        return {name: self.named(name, given) for name, given in {**shown, **kwargs}.items()}

    def named(self, name: str, value: Any) -> Any:  # noqa: ANN401
        """Return the value of a name; hidden if that is the name of a secret."""
        return HIDDEN if self._pattern.search(name) else self.value(value)

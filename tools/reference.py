"""Write the generated parts of api.md, cli.md, settings.md and http-api.md in docs/reference.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of a page is written
by hand.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from dueline.api.application import Dueline
from dueline.api.config import APP_VARIABLE, FILE_NAME, KEYS, STORE_VARIABLE
from dueline.api.task import Using
from dueline.cli.errors import MEANINGS
from dueline.cli.main import root_with
from dueline.cli.output import Span
from dueline.core.constraints import constraints_of, meta_of
from dueline.core.durations import span_text
from dueline.core.queue_settings import QueueSettings, Quota, StreamSettings
from dueline.core.retry import Retry
from dueline.limits.rate import Rate
from dueline.web.http_api.application import OPERATIONS
from dueline.web.http_api.openapi import document

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"

_PART: Final = re.compile(r"(<!-- generated: ([\w. ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_ARGUMENT: Final = re.compile(r"^    (\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)

Row = Sequence[str]


def rendered(page: str) -> str:
    """Return a page with its generated parts up to date."""
    return _PART.sub(lambda match: f"{match[1]}\n{_part(match[2])}\n{match[3]}", page)


def _part(name: str) -> str:
    return signatures(name.removeprefix("signatures ")) if "." in name else PARTS[name]()


def _table(heads: Row, rows: Iterable[Row]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: object) -> str:
    return f"`{text}`"


# Commands


def commands(above: str = "dueline", group: Any = None) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  (Click's own)
    """Yield the commands by their words, in the order of `dueline --help`."""
    group = group or typer.main.get_command(root_with())
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(f"{above} {name}", command)
        else:
            yield f"{above} {name}", command


def _list_of_commands() -> str:
    rows = ([f"[`{words}`](#{_anchor(words)})", _purpose(command)] for words, command in commands())
    return _table(["command", "purpose"], rows)


def _anchor(words: str) -> str:
    return words.replace(" ", "-")


def _purpose(command: Any) -> str:  # noqa: ANN401  (see above)
    return str(command.help).partition("\n")[0]


def _details() -> str:
    return "\n".join(_section(words, command) for words, command in commands())


def _section(words: str, command: Any) -> str:  # noqa: ANN401  (see above)
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = " ".join([words, *map(usage_of, arguments), *["[OPTIONS]"] * bool(options)])
    text, _, example = inspect.cleandoc(command.help).partition("Example: ")
    block = usage if not example else f"{usage}\n\n$ {example.strip()}"
    parts = [f"### {words}\n", f"{text.strip()}\n", f"```text\n{block}\n```\n"]
    if arguments or options:
        rows = [[_code(usage_of(argument)), "", _meaning(argument)] for argument in arguments]
        rows += [[flags(option), default_of(option), _meaning(option)] for option in options]
        parts.append(_table(["argument or option", "default", "meaning"], rows))
    return "\n".join(parts)


def usage_of(argument: Any) -> str:  # noqa: ANN401  (see above)
    """Return how an argument stands in a usage line."""
    word = f"{argument.metavar}{'...' if argument.nargs == -1 else ''}"
    return word if argument.required else f"[{word}]"


def flags(option: Any) -> str:  # noqa: ANN401  (see above)
    """Return the words of an option, with its metavar."""
    words = [*option.opts, *option.secondary_opts]
    metavar = "" if option.is_flag else f" {option.metavar or '|'.join(option.type.choices)}"
    return ", ".join(_code(f"{word}{metavar if word == words[-1] else ''}") for word in words)


def default_of(option: Any) -> str:  # noqa: ANN401  (see above)
    """Return the default of an option as code; empty if it has none."""
    if option.required:
        return "required"
    if option.is_flag:
        return _code(option.opts[-1]) if option.default else ""
    value = getattr(option.default, "value", option.default)
    return "" if value is None else _code(value)


def _meaning(parameter: Any) -> str:  # noqa: ANN401  (see above)
    least, most = getattr(parameter.type, "min", None), getattr(parameter.type, "max", None)
    if least is None:
        return str(parameter.help)
    bounds = f"At least {least}." if most is None else f"{least} to {most}."
    return f"{parameter.help} {bounds}"


def _global_options() -> str:
    root = typer.main.get_command(root_with())
    options = [option for option in root.params if option.name in ("store", "app", "output")]
    return _table(
        ["option", "default", "meaning"],
        ([flags(option), default_of(option), _meaning(option)] for option in options),
    )


def _exit_codes() -> str:
    rows = ([str(int(code)), meaning] for code, meaning in MEANINGS.items())
    return _table(["code", "meaning"], rows)


# Settings


def meanings_of(function: object) -> Mapping[str, str]:
    """Return the descriptions of arguments or attributes in a Google-style docstring, by name."""
    text = inspect.getdoc(function) or ""
    section = re.split(r"^(?:Args|Attributes):\n", text, flags=re.MULTILINE)[1]
    section = re.split(r"^\w+:\n", section, flags=re.MULTILINE)[0]
    return {name: " ".join(words.split()) for name, words in _ARGUMENT.findall(section)}


def limits_of(kind: type) -> Mapping[str, str]:
    """Return the limits of the fields of a class, by the names of their arguments."""
    limits = {}
    for name, hint in constraints_of(kind).items():
        meta = meta_of(hint)
        assert meta is not None
        limits[meta.title or name.removesuffix("_us")] = meta.description or ""
    return limits


def _options(
    function: Callable[..., Any],
    limits: Mapping[str, str],
    skip: str = "",
    defaults: Mapping[str, object] = {},
) -> str:
    """Return the table of a function's keyword arguments."""
    meanings = meanings_of(function)
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ("self", "function", "unknown", *skip.split()):
            continue
        default = "required" if parameter.default is parameter.empty else _value(parameter.default)
        if name in defaults:
            default = _value(defaults[name])
        limit = [limits.get(name, "")] if limits else []
        rows.append([_code(name), _type(parameter.annotation), default, *limit, meanings[name]])
    heads = ["option", "type", "default", *(["limits"] if limits else []), "meaning"]
    return _table(heads, rows)


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    text = text.replace("timedelta | float", "duration").replace(" | None", "")
    return _code("str" if "Literal[" in text else text)


def _value(default: object) -> str:
    if isinstance(default, Span):
        return span_text(default.us)
    return "" if default is None or default == () else _code(repr(default))


def _queue_settings() -> str:
    defaults: dict[str, object] = {}
    for field, value in asdict(QueueSettings()).items():
        meta = meta_of(constraints_of(QueueSettings).get(field))
        if meta is not None:
            name = meta.title or field.removesuffix("_us")
            defaults[name] = Span(value) if value and field.endswith("_us") else value
    return _options(Dueline.queue, limits_of(QueueSettings), "name", defaults)


def _retry() -> str:
    meanings, limits = meanings_of(Retry), limits_of(Retry)
    rows = [
        [
            _code(field.name),
            _value(_names(field.default)),
            limits.get(field.name, ""),
            meanings[field.name],
        ]
        for field in fields(Retry)
    ]
    return _table(["field", "default", "limits", "meaning"], rows)


def _names(default: object) -> object:
    if isinstance(default, tuple):
        return tuple(kind.__name__ for kind in default)
    return default


def _configuration() -> str:
    variables = {"store": STORE_VARIABLE, "app": APP_VARIABLE}
    rows = (
        [_code(f"--{key}"), _code(variables[key]), _code(f"{key} = ..."), KEYS[key]] for key in KEYS
    )
    return _table(["option", "environment", FILE_NAME, "meaning"], rows)


# The HTTP API


def _operations() -> str:
    described = document(OPERATIONS, server="/api/v1")
    schemas = described["components"]["schemas"]
    parts = [
        _operation(f"{method.upper()} {path}", operation, schemas)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    return "\n".join(parts)


def _operation(head: str, operation: Any, schemas: Mapping[str, Any]) -> str:  # noqa: ANN401  (JSON)
    rows = [
        [_code(field["name"]), field["in"], kind_of(field["schema"]), _bounds(field["schema"])]
        for field in operation["parameters"]
        if field["in"] != "path"
    ]
    if body := operation.get("requestBody"):
        schema = schemas[body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]]
        needed = schema.get("required", ())
        rows += [
            [_code(name), "body" + ", required" * (name in needed), kind_of(field), _bounds(field)]
            for name, field in schema["properties"].items()
        ]
    text = f"### {head}\n\n{operation['summary']}. {operation['description']}\n"
    return text + ("\n" + _table(["field", "in", "type", "limits"], rows) if rows else "")


def kind_of(schema: Any) -> str:  # noqa: ANN401  (JSON)
    """Return the type of a field in words."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]  # type: ignore[no-any-return]  # JSON
    if "anyOf" in schema:
        return " or ".join(kind_of(kind) for kind in schema["anyOf"] if kind.get("type") != "null")
    if "enum" in schema:
        return ", ".join(_code(value) for value in schema["enum"])
    kind: str = schema.get("format", schema.get("type", "any JSON"))
    return f"array of {kind_of(schema['items'])}" if schema.get("items") else kind


def _bounds(schema: Any) -> str:  # noqa: ANN401  (JSON)
    """Return the limits of a field, of its first kind that has any."""
    names = {"minimum": "at least", "maximum": "at most", "minLength": "characters, at least",
             "maxLength": "characters, at most", "minItems": "items, at least",
             "maxItems": "items, at most", "pattern": "pattern"}  # fmt: skip
    for kind in (schema, *schema.get("anyOf", ())):
        bounds = [f"{words} {_code(kind[name])}" for name, words in names.items() if name in kind]
        if bounds:
            return "; ".join(bounds)
    return ""


# The Python API


def signatures(name: str) -> str:
    """Return how an entry of the API is called: it and its public methods, without types."""
    module, _, attribute = name.rpartition(".")
    entry = getattr(import_module(module), attribute)
    lines: list[str] = []
    if not isinstance(entry, type) or attribute in MADE_BY_CALLERS:
        made = entry.__init__ if entry is Retry else entry
        lines.append(f"{attribute}{_parameters(inspect.signature(made))}")
    if isinstance(entry, type):
        members: dict[str, Any] = {}
        for kind in entry.__mro__:
            if kind.__module__.startswith("dueline."):
                members |= {key: own for key, own in vars(kind).items() if key not in members}
        methods = {key: own for key, own in members.items() if _is_public(attribute, key, own)}
        for key, method in methods.items():
            owner = attribute if isinstance(method, classmethod) else _owner(attribute)
            lines.append(f"{owner}.{key}{_parameters(inspect.signature(getattr(entry, key)))}")
    return "```text\n" + "\n".join(lines) + "\n```\n" if lines else ""


MADE_BY_CALLERS: Final = frozenset((
    "BatchOptions", "Celery", "Cipher", "Cancel", "Dueline", "Identity", "Position", "RawQueue",
    "Dependency", "Failures", "Retry", "Snooze", "Throttled", "Unique", "VirtualClock",
))  # fmt: skip
"""Classes whose objects users make; dueline makes those of the others."""

HIDDEN: Final = frozenset(
    (
        *("case_of", "declare", "join", "of_case", "queues_of", "serving", "switched", "terms"),
        *("wait_us", "wants", "watch", "with_terms"),
    )
)
_OWNERS: Final = {"Dueline": "app", "Context": "ctx", "DurableContext": "ctx", "Transaction": "tx"}


def _owner(name: str) -> str:
    return _OWNERS.get(name, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def _is_public(owner: str, name: str, method: object) -> bool:
    is_method = inspect.isfunction(method) or isinstance(method, classmethod | staticmethod)
    return is_method and not name.startswith("_") and name not in HIDDEN and owner != "Payloads"


def _parameters(signature: inspect.Signature) -> str:
    """Return the parameters with their defaults, without annotations and `self`."""
    kept = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    text = re.sub(r"<[\w.]+ object at 0x[0-9a-f]+>", "...", text)  # another one in each process
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "global options": _global_options,
    "commands": _list_of_commands,
    "details": _details,
    "exit codes": _exit_codes,
    "configuration": _configuration,
    "queue settings": _queue_settings,
    "task options": lambda: _options(Dueline.task, limits_of(Retry)),
    "retry": _retry,
    "call options": lambda: _options(Using.using, {}),
    "worker options": lambda: _options(Dueline.run_worker, {}),
    "embedded worker options": lambda: _options(Dueline.worker, {}),
    "schedule options": lambda: _options(Dueline.schedule, {}, "name task args"),
    "semaphore options": lambda: _options(Dueline.semaphore, {}, "name"),
    "rate options": lambda: _options(Dueline.rate, limits_of(Rate), "name"),
    "quota options": lambda: _options(Dueline.quota, limits_of(Quota), "queue"),
    "http operations": _operations,
    "stream settings": lambda: _options(Dueline.stream, limits_of(StreamSettings), "name"),
}


def main() -> None:
    """Update the pages."""
    for path in (FOLDER / name for name in ("api.md", "cli.md", "http-api.md", "settings.md")):
        path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

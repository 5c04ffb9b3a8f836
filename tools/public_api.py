"""Write docs/reference/public-api.txt: what others may rely on, one fact a line.

A change of the public interface or of a stored format shows as a change of that file. Python is
read from its source: the list needs neither Spark nor Django, and no version of Python changes it.
"""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from dueline.api.config import KEYS
from dueline.cli.errors import MEANINGS
from dueline.cli.main import root_with
from dueline.core.features import KNOWN, OF_NEW
from dueline.web.http_api.application import OPERATIONS
from dueline.web.http_api.openapi import document
from tools.reference import (
    HIDDEN,
    MADE_BY_CALLERS,
    commands,
    default_of,
    flags,
    kind_of,
    usage_of,
)

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src"
REFERENCE: Final = ROOT / "docs" / "reference"
PAGE: Final = REFERENCE / "public-api.txt"
HEAD: Final = """\
# What others may rely on, one fact a line; docs/operations/versions.md says how it may change.
# Written by `make reference`. Review each changed line: a line that goes or changes breaks users.
"""

_TABLE: Final = re.compile(r"^CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(\S+) \(", re.MULTILINE)
_NUMBER: Final = re.compile(r'^SCHEMA_VERSION(?:: Final)? = "?(\d+)"?$', re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """A class, function or constant in a module's source."""

    module: str
    node: ast.stmt


def source_of(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module | None:
    """Return the source of a module of the package, or None if it has none."""
    path = SOURCE.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return ast.parse(source_of(file))
    return None


def find(module: str, name: str) -> Place | None:
    """Return where a name of a module is defined; None if that is outside of the package."""
    tree = tree_of(module)
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                return Place(module, node)
            case ast.ImportFrom(module=str(origin)) if origin.startswith("dueline"):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return find(origin, alias.name)
            case ast.Assign(targets=[ast.Name(id=assigned)]) if assigned == name:
                return Place(module, node)
            case _:
                pass
    return None


def _signature(name: str, node: Function) -> str:
    """Return a function as its source has it, with types and defaults."""
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^(?:self|cls)(?:, |$)", "", arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({arguments}){returns}"


def _members(name: str, place: Place) -> Iterator[str]:
    """Yield the public members of a class, and of its bases in the package."""
    kind = place.node
    assert isinstance(kind, ast.ClassDef)
    for node in kind.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                is_made = node.name == "__init__" and name.rpartition(".")[2] in MADE_BY_CALLERS
                if is_made or not (node.name.startswith("_") or node.name in HIDDEN):
                    is_value = "property" in map(ast.unparse, node.decorator_list)
                    word = "property " if is_value else ""
                    yield word + _signature(f"{name}.{node.name}", node)
            case ast.AnnAssign(target=ast.Name(id=field)) if not field.startswith("_"):
                value = f" = {ast.unparse(node.value)}" if node.value else ""
                yield f"{name}.{field}: {ast.unparse(node.annotation)}{value}"
            case ast.Assign(targets=[ast.Name(id=field)]) if not field.startswith("_"):
                yield f"{name}.{field} = {ast.unparse(node.value)}"
            case _:
                pass
    for base in kind.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        base_place = find(place.module, named.id) if isinstance(named, ast.Name) else None
        if base_place is not None and isinstance(base_place.node, ast.ClassDef):
            yield from _members(name, base_place)


def _entry(name: str) -> Iterator[str]:
    """Yield an entry of the Python API with its members."""
    module, _, attribute = name.rpartition(".")
    place = find(module, attribute)
    assert place is not None, name
    match place.node:
        case ast.ClassDef(bases=bases):
            above = f"({', '.join(map(ast.unparse, bases))})" if bases else ""
            yield f"class {name}{above}"
            yield from _members(name, place)
        case ast.FunctionDef() | ast.AsyncFunctionDef() as node:
            yield _signature(name, node)
        case node:
            yield f"{name} = {ast.unparse(node).partition(' = ')[2]}"


def python_api() -> Iterator[str]:
    """Yield the entries of the API reference, and the errors."""
    shown = re.findall(r"(?m)^::: (\S+)$", source_of(REFERENCE / "api.md"))
    tree = tree_of("dueline")
    assert tree is not None
    public = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    for name in sorted({*shown, *(f"dueline.{word}" for word in public)}):
        yield from dict.fromkeys(_entry(name))


def command_line() -> Iterator[str]:
    """Yield the commands with their arguments and options, and the exit codes."""
    root = typer.main.get_command(root_with())
    for words, command in [("dueline", root), *commands()]:
        yield words
        for param in command.params:
            if param.param_type_name == "argument":
                yield f"{words} {usage_of(param)}"
            elif param.name != "help":
                default = default_of(param).strip("`")
                yield f"{words} {flags(param).replace('`', '')}{f' = {default}' if default else ''}"
    for code, meaning in MEANINGS.items():
        yield f"exit code {int(code)}: {meaning.replace('`', '')}"


def settings() -> Iterator[str]:
    """Yield the keys of dueline.toml and the variables of the environment."""
    yield from (f"dueline.toml {key}" for key in KEYS)
    texts = [source_of(path) for path in (SOURCE / "dueline").rglob("*.py")]
    yield from sorted(set(re.findall(r"\bDUELINE_[A-Z_]+\b", "\n".join(texts))))


def http_api() -> Iterator[str]:
    """Yield the operations with what they take, and the members of JSON objects."""
    described: Any = document(OPERATIONS, server="/api/v1")
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            head = f"{method.upper()} /api/v1{path}"
            answers = [
                f"{code} {kind_of(next(iter(answer['content'].values()))['schema'])}"
                if "content" in answer
                else code
                for code, answer in operation["responses"].items()
            ]
            body = operation.get("requestBody")
            takes = f" {kind_of(body['content']['application/json']['schema'])}" if body else ""
            yield f"{head}{takes} -> {', '.join(answers)}"
            for field in operation["parameters"]:
                yield f"{head} {field['in']} {field['name']}: {kind_of(field['schema'])}"
    for name, schema in sorted(described["components"]["schemas"].items()):
        needed = schema.get("required", ())
        for field, kind in schema.get("properties", {}).items():
            yield f"JSON {name}.{field}{'' if field in needed else '?'}: {kind_of(kind)}"


def pipeline_tables() -> Iterator[str]:
    """Yield the columns of the pipeline's tables."""
    described = json.loads(source_of(REFERENCE / "tables.json"))
    for table in described["tables"]:
        yield from (
            f"{table['name']}.{column['name']}: {column['type']}" for column in table["columns"]
        )


def store_tables() -> Iterator[str]:
    """Yield schema numbers, features, and the tables of stores with the lines that define them."""
    yield f"features of new stores: {', '.join(sorted(OF_NEW))}"
    yield f"features known: {', '.join(sorted(KNOWN))}"
    for folder in sorted((SOURCE / "dueline" / "stores").iterdir()):
        for path in sorted(folder.glob("*.py")):
            for number in _NUMBER.findall(source_of(path)):
                yield f"{folder.name} schema {number}"
        for path in sorted(folder.glob("schema.*ql")):
            text = re.sub(r"(?m)\s*--.*$", "", source_of(path))
            for start in _TABLE.finditer(text):
                body = text[start.end() : text.index(";", start.end())]
                name = re.sub(r"^(@|\{keyspace\}\.)", "", start[1])
                for line in filter(None, map(str.strip, body.splitlines())):
                    yield f"{folder.name} {name}: {line.rstrip(',')}"


def stored_records() -> Iterator[str]:
    """Yield the fields of every type that is decoded from a store, and of the types within."""
    waiting = []
    for path in sorted((SOURCE / "dueline").rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if not re.search(r"\bdecode\(", source := source_of(path)):
            continue
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(func=ast.Name(id="decode"), args=[_, kind]):
                    waiting.append((module, kind))
                case _:
                    pass
    waiting.append(("dueline.jobs.history_batch", ast.Name("Bundle")))
    seen: dict[str, Place] = {}
    while waiting:
        module, annotation = waiting.pop()
        for word in ast.walk(annotation):
            place = find(module, word.id) if isinstance(word, ast.Name) else None
            if place is None or not isinstance(place.node, ast.ClassDef):
                continue
            name = f"{place.module.removeprefix('dueline.')}.{place.node.name}"
            if name not in seen:
                seen[name] = place
                waiting += [
                    (place.module, field.annotation)
                    for field in place.node.body
                    if isinstance(field, ast.AnnAssign)
                ]
                waiting += [(place.module, base) for base in place.node.bases]
    for name, place in sorted(seen.items()):
        yield from (
            line
            for line in _members(name, place)
            if "(" not in line.partition(":")[0] and not line.startswith("property ")
        )


PARTS: Final = {
    "Python": python_api,
    "Commands": command_line,
    "Settings": settings,
    "HTTP": http_api,
    "Tables of the pipeline": pipeline_tables,
    "Tables of stores": store_tables,
    "Records in stores": stored_records,
}


def text() -> str:
    """Return the file."""
    parts = (
        f"\n[{name}]\n" + "".join(f"{line}\n" for line in part()) for name, part in PARTS.items()
    )
    return HEAD + "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")

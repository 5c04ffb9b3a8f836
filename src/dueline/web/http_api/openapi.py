"""The OpenAPI document, made from the declarations that validate."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dueline.core.version import VERSION
from dueline.web.http_api.frame import KEY_HEADER, Operation
from dueline.web.http_api.idempotency import KEY_CHARACTERS_MAX
from dueline.web.problems import Problem

_REFERENCE: Final = "#/components/schemas/{name}"
JSON: Final = "application/json"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_PATH_SCHEMAS: Final[Mapping[str, dict[str, Any]]] = {
    "id": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "Id of the job."},
    "name": {
        "type": "string",
        "pattern": "^[a-z][a-z0-9_-]{0,62}$",
        "description": "Name of the queue.",
    },
}
"""Schemas of the parameters of paths; others are strings."""

_INTRODUCTION: Final = (
    "Enqueue, follow and steer jobs, and run them in any language. Errors are problem documents "
    "(RFC 9457): `detail` says what happened, and `hint` what to do."
)


def document(operations: Sequence[Operation], *, server: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of some operations.

    Args:
        operations: The operations.
        server: Path below which they are.
    """
    kinds = [op.body for op in operations if op.body is not None]
    kinds += [op.answer for op in operations if op.media == JSON]
    kinds += [op.query for op in operations if op.query is not None]
    _, schemas = msgspec.json.schema_components([*kinds, Problem], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for op in operations:
        paths.setdefault(op.path, {})[op.method.lower()] = _described(op, schemas)
    for op in operations:  # the fields of a query are parameters
        if op.query is not None:
            schemas.pop(op.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {"title": "dueline", "version": VERSION, "description": _INTRODUCTION},
        "servers": [{"url": server or "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(op: Operation, schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of an operation."""
    summary, _, rest = (inspect.getdoc(op.function) or "").partition("\n\n")
    roles = " or ".join(op.roles)
    described: dict[str, Any] = {
        "operationId": op.function.__name__,
        "summary": summary.rstrip("."),
        "description": f"{' '.join(rest.split())} Needs the role {roles}.".strip(),
        "parameters": [*_path_parameters(op), *_query_parameters(op, schemas), *_headers(op)],
        "responses": {
            str(op.status): {"description": "Success.", "content": _answer(op)},
            "default": {
                "description": "What went wrong.",
                "content": {"application/problem+json": {"schema": _schema(Problem)}},
            },
        },
    }
    if op.body is not None:
        is_required = bool(schemas[op.body.__name__].get("required"))
        described["requestBody"] = {"required": is_required, "content": _content(op.body)}
    return described


def _schema(kind: Any) -> dict[str, Any]:  # noqa: ANN401  (a type)
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return schema


def _answer(op: Operation) -> dict[str, Any]:
    return _content(op.answer) if op.media == JSON else {op.media: {"schema": {"type": "string"}}}


def _content(kind: Any) -> dict[str, Any]:  # noqa: ANN401  (a type)
    return {JSON: {"schema": _schema(kind)}}


def _path_parameters(op: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _PATH_SCHEMAS.get(name, {"type": "string", "minLength": 1}),
        }
        for name in _PARAMETER.findall(op.path)
    ]


def _query_parameters(op: Operation, schemas: Mapping[str, Any]) -> list[dict[str, Any]]:
    if op.query is None:
        return []
    schema = schemas[op.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema["properties"].items()
    ]


def _headers(op: Operation) -> list[dict[str, Any]]:
    if not op.is_keyed:
        return []
    schema = {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX}
    description = "A repeated request with the same key returns the answer of the first."
    return [{"name": KEY_HEADER, "in": "header", "schema": schema, "description": description}]

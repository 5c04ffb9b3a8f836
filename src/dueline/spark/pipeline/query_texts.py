"""The SQL texts of queries as trees, and their dialects."""

from collections.abc import Container, Mapping
from functools import cache, cached_property
from typing import Any, Final

import sqlglot
from sqlglot import exp

PREFIX: Final = "dueline_view_of_"
"""Views are named so in a session of Spark, which may have tables of their names."""


class Text:
    """A query: its tree, and the tables and parameters that it names."""

    def __init__(self, tree: exp.Expression) -> None:
        self.tree = tree
        self.tables = _tables(tree)
        self.parameters = {node.name for node in tree.find_all(exp.Placeholder)}

    @cached_property
    def for_duck(self) -> str:
        """Return the query in DuckDB's dialect."""
        return str(self.tree.sql("duckdb", comments=False))

    def used(self, values: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the values that it names; DuckDB refuses others."""
        return {name: value for name, value in (values or {}).items() if name in self.parameters}


@cache
def _tree(sql: str) -> exp.Expression:
    return sqlglot.parse_one(sql, read="spark")


def prefixed(node: exp.Expression, views: Container[str]) -> exp.Expression:
    """Name views as the session does not, and keep their names for columns."""
    if isinstance(node, exp.Table) and PREFIX + node.name in views:
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name))
        return exp.Table(this=exp.to_identifier(PREFIX + node.name), alias=alias)
    return node


@cache
def whole(sql: str, derived: tuple[tuple[str, str], ...]) -> Text:
    """Return a text that begins with the derived views that it names."""
    tree, texts, parts = _tree(sql).copy(), dict(derived), dict[str, exp.Expression]()

    def add(names: set[str]) -> None:
        for name in names & texts.keys() - parts.keys():
            part = _tree(texts[name]).copy()
            add(_tables(part))  # first those that it names
            parts[name] = part

    add(_tables(tree))
    own = list(tree.ctes)
    for name, part in parts.items():
        tree.with_(name, as_=part, copy=False)
    if parts:
        clause = tree.ctes[0].parent
        clause.set("expressions", [cte for cte in tree.ctes if cte not in own] + own)
    return Text(tree)


def _tables(tree: exp.Expression) -> set[str]:
    """Return the tables that a text names, without its own parts."""
    parts = {node.alias for node in tree.find_all(exp.CTE)}
    return {node.name for node in tree.find_all(exp.Table)} - parts

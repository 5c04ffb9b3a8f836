"""The reference pages against the code."""

import ast
import re
from importlib import import_module

import dueline
import dueline.testing
from dueline import DuelineError
from dueline.api.connect import SCHEMES
from dueline.core import errors
from dueline.stores.cassandra.url import OPTIONS
from tests.harness.markdown import ROOT

REFERENCE = ROOT / "docs" / "reference"
HIDDEN = {"Unknown"}
"""Errors that only group others."""


def page(name: str) -> str:
    """Read a reference page."""
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def public_errors() -> set[str]:
    """List the errors that users can catch."""
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    return {name for name, kind in kinds.items() if issubclass(kind, DuelineError)} - HIDDEN


def names_of_spark() -> list[str]:
    """Read the public names of a package that needs Spark to be imported."""
    source = (ROOT / "src" / "dueline" / "spark" / "__init__.py").read_text(encoding="utf-8")
    (names,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return list(names)


def test_the_api_reference_has_every_public_name_once() -> None:
    shown = re.findall(r"^::: (\S+)$", page("api"), re.MULTILINE)
    public = {f"dueline.{name}" for name in set(dueline.__all__) - public_errors()}
    public |= {f"dueline.testing.{name}" for name in dueline.testing.__all__}
    public |= {f"dueline.spark.{name}" for name in names_of_spark()}
    others = [name for name in shown if name.count(".") > 2]
    assert sorted(name for name in shown if name not in others) == sorted(public)
    for name in others:
        module, _, kind = name.rpartition(".")
        assert hasattr(import_module(module), kind), name


def test_every_error_is_public_and_has_its_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", page("errors"), re.MULTILINE))
    assert public_errors() - {"DuelineError"} == rows - {"TimeoutError"}
    assert public_errors() <= set(dueline.__all__)
    tree = page("errors").partition("```text")[2].partition("```")[0]
    assert set(re.findall(r"[A-Z]\w+", tree)) - {"ValueError", "LookupError"} == public_errors()


def test_every_kind_of_address_and_its_options_are_listed() -> None:
    text = page("store-addresses")
    assert [scheme for scheme in SCHEMES if f"`{scheme}://" not in text] == []
    cassandra = text.partition("## Cassandra")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \|", cassandra, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(OPTIONS)


def test_each_entry_has_an_example_and_its_signatures() -> None:
    text = page("api").partition("## Spark")[0]
    entries = re.split(r"(?m)^### ", text)[1:]
    assert len(entries) == len(re.findall(r"(?m)^::: ", text)) > 50
    for entry in entries:
        name = entry.partition("\n")[0]
        assert "```python" in entry or "](" in entry, f"{name} has no example"
        assert "<!-- generated: signatures" in entry or "django" in entry, name

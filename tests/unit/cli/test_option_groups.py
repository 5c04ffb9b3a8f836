"""Options that belong together, as one parameter."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from dueline.cli.option_groups import with_option_groups


@dataclass(frozen=True)
class Place:
    folder: Annotated[str, typer.Option("--folder", help="Where.")] = "here"
    depth: Annotated[int, typer.Option("--depth", help="How deep.")] = 1


@with_option_groups
def visit(name: str, *, place: Place, is_late: bool = False) -> None:
    """Visit a place."""
    typer.echo(f"{name} {place} {is_late}")


def test_a_group_becomes_options_in_its_place() -> None:
    assert list(inspect.signature(visit).parameters) == ["name", "folder", "depth", "is_late"]
    assert visit.__name__ == "visit"
    assert visit.__doc__ == "Visit a place."


def test_the_command_receives_the_group() -> None:
    app = typer.Typer()
    app.command()(visit)
    answer = CliRunner().invoke(app, ["ann", "--depth", "3"])
    assert answer.output == "ann Place(folder='here', depth=3) False\n"

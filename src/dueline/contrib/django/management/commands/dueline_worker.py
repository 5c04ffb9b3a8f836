"""`manage.py dueline_worker`: run jobs."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dueline.contrib.django.backend import DuelineBackend
from dueline.contrib.django.contract import InvalidTaskBackend, task_backends


class Command(BaseCommand):
    """Runs a worker; passes on the options of `dueline worker`."""

    help = "Run jobs. Takes the options of `dueline worker`, such as -q mail:4 --burst."

    def create_parser(self, *names: str, **options: Any) -> ArgumentParser:  # noqa: ANN401
        """Return a parser that keeps the options it does not know."""
        parser: ArgumentParser = super().create_parser(*names, allow_abbrev=False, **options)
        parse = parser.parse_known_args

        def parse_args(args: Sequence[str] | None = None, namespace: Any = None) -> Namespace:  # noqa: ANN401
            known: Namespace
            known, rest = parse(args, namespace)
            known.rest = rest
            return known

        vars(parser)["parse_args"] = parse_args
        return parser

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the option of this command."""
        parser.add_argument(
            "--backend",
            default="default",
            metavar="ALIAS",
            help="Backend in TASKS; by default the default one.",
        )

    def handle(self, *, backend: str, rest: Sequence[str], verbosity: int, **_: Any) -> None:  # noqa: ANN401
        """Run the worker, and exit as `dueline worker` does."""
        try:
            chosen = task_backends[backend]
        except InvalidTaskBackend as error:
            raise CommandError(str(error)) from error
        if not isinstance(chosen, DuelineBackend):
            raise CommandError(f"The backend {backend!r} in TASKS is not one of dueline.")
        words = ["worker", str(chosen.app.place), *rest, *["--verbose"] * (verbosity > 1)]
        # By name, because the command line is above this package.
        if code := import_module("dueline.cli.main").run(words):
            sys.exit(code)

"""The project of the page on Django's tasks, made from an empty folder, in PostgreSQL (A9)."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("django")

from tests.harness.markdown import ROOT, run, run_page
from tests.harness.postgres import database, statement

pytestmark = [pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(300)]

PAGE = ROOT / "docs/how-to/django-tasks.md"
STORE = '>         "OPTIONS": {"STORE": "sqlite:///jobs.db"},\n'
DATABASE = """> DATABASES = {{"default": {{
>     "ENGINE": "django.db.backends.postgresql", "NAME": "{name}", "USER": "{user}",
>     "PASSWORD": "{password}", "HOST": "{host}", "PORT": "{port}",
> }}}}
> END
"""


def test_the_page_holds_in_djangos_own_database(tmp_path: Path) -> None:
    with database() as url:
        parts = urlsplit(url)
        name = parts.path.strip("/")
        settings = DATABASE.format(
            name=name, user=parts.username, password=parts.password, host=parts.hostname,
            port=parts.port,
        )  # fmt: skip
        page = PAGE.read_text(encoding="utf-8")
        assert STORE in page
        page = page.replace(STORE, '>         "OPTIONS": {"DATABASE": "default"},\n')
        page = page.replace("> END\n", settings, 1)
        try:
            assert run_page(page, tmp_path) > 5
            for options in ("--parallel 2", "--keepdb", "--keepdb"):
                command = f"python manage.py test {options}"
                assert "OK" in run(["bash", "-c", command], tmp_path, 0, command)
        finally:
            statement(url, f"DROP DATABASE IF EXISTS test_{name} WITH (FORCE)")

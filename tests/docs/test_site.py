"""mkdocs.yml, and what the site makes of pages."""

import re
from pathlib import Path

import pytest

from tests.harness.markdown import FENCE, ROOT
from tools.pictures import IMAGES, PICTURES
from tools.site_hooks import (
    READERS,
    expanded,
    paths,
    with_plain_fences,
    with_readers,
    with_source_links,
)

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
"""The file that a link leads to, without its place on the page."""
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_pages_without_an_entry_are_added_by_folder(tmp_path: Path) -> None:
    for name in ("index.md", "a/one.md", "a/two.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("# x\n")
    nav = [{"Home": ["index.md", {"Why": "why.md"}]}, {"A": [{"Two": "a/two.md"}, "a/*"]}]
    named = {"index.md", "why.md", "a/two.md", "a/*"}
    assert set(paths(nav)) == named
    assert expanded(nav, tmp_path, named) == [
        {"Home": ["index.md", {"Why": "why.md"}]},
        {"A": [{"Two": "a/two.md"}, "a/one.md"]},
    ]


def test_a_fence_loses_its_reason_and_a_file_becomes_a_title() -> None:
    page = "```console no-run: slow\n$ x\n```\n\n- ```python\n  y\n  ```\n"
    assert with_plain_fences(page) == "```console\n$ x\n```\n\n- ```python\n  y\n  ```\n"
    page = "```python\n# file: shop/jobs.py\nx = 1\n```\n"
    assert with_plain_fences(page) == '```python title="shop/jobs.py"\nx = 1\n```\n'


def test_links_out_of_the_docs_lead_to_the_repository() -> None:
    page = "[a](../../tests/x.py#L3) [b](../guide.md#x) [c](other.md)"
    assert with_source_links(page, "operations/y.md", "https://host/repo") == (
        "[a](https://host/repo/blob/main/tests/x.py#L3) [b](../guide.md#x) [c](other.md)"
    )


def test_each_page_says_whom_it_is_for() -> None:
    page = with_readers("# A title\n\nText.\n\n# x\n", "operations/y.md")
    assert page == "# A title\n\n*For those who run workers and stores.*\n\nText.\n\n# x\n"
    folders = {path.name for path in (ROOT / "docs").iterdir() if any(path.glob("*.md"))}
    assert folders == {name for name in READERS if not name.endswith(".md")}


@pytest.mark.parametrize("name", ["ARCHITECTURE", "CONTRIBUTING", "SECURITY", "SUPPORT"])
def test_a_page_above_the_site_says_whom_it_is_for(name: str) -> None:
    assert (ROOT / f"{name}.md").read_text(encoding="utf-8").split("\n\n")[1].startswith("For ")


def test_links_lead_to_files_that_exist() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
        if not (page.parent / target).exists()
    ]
    assert wrong == []


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert "font: false" in CONFIG
    assert re.findall(r"https?://\S+", CONFIG) == ["https://github.com/dueline/dueline"]


def test_every_page_has_its_place_in_the_navigation() -> None:
    named = set(re.findall(r"[\w./-]+(?:\.md|/\*)$", CONFIG, re.MULTILINE))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    left_out = {page for page in pages - named if f"{page.rpartition('/')[0]}/*" not in named}
    assert left_out == set()


@pytest.mark.parametrize("name", PICTURES)
def test_charts_are_those_that_the_script_draws(name: str) -> None:
    assert (IMAGES / f"{name}.svg").read_text(encoding="utf-8") == PICTURES[name]()


def test_pictures_load_nothing() -> None:
    for path in IMAGES.glob("*.svg"):
        addresses = re.findall(r"https?://[^\s\"'<)]+", path.read_text(encoding="utf-8"))
        assert set(addresses) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}, path

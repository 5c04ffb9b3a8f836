"""Hooks of mkdocs: navigation by folder, readers, fences with reasons, links to the source."""

import posixpath
import re
from pathlib import Path
from typing import Any, Protocol

Nav = list[Any]
"""Entries of mkdocs.yml: a path, or a title with a path or with entries."""

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>python|console)(?P<rest>[^`\n]*)\n"
    r"(?:(?P=indent)# file: (?P<file>[\w./-]+)\n)?",
    re.MULTILINE,
)
LINK = re.compile(r"\]\((?P<target>\.\./[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")


READERS = {
    "guides": "those who write tasks",
    "how-to": "those who do this for the first time",
    "coming-from": "those who move an application from another queue",
    "concepts": "those who want to know how dueline works and what it promises",
    "operations": "those who run workers and stores",
    "pipeline": "those who analyse what queues did, or read and write them with Spark",
    "reference": "looking things up",
    "decisions": "those who change dueline",
    "developers": "those who change dueline",
    "protocols.md": "those who change dueline",
}
"""Whom the pages of a folder are for; others say so themselves."""

HEADING = re.compile(r"^# .+\n", re.MULTILINE)


class Page(Protocol):
    """A page of mkdocs."""

    file: Any


def on_config(config: Any) -> Any:  # noqa: ANN401  # mkdocs is not where this is checked
    """Add the pages of whole folders to the navigation."""
    docs = Path(config["docs_dir"])
    config["nav"] = expanded(config["nav"], docs, set(paths(config["nav"])))
    return config


def on_page_markdown(markdown: str, page: Page, config: Any, **_: object) -> str:  # noqa: ANN401
    """Turn fences and links of a page into what mkdocs understands."""
    source_url = config["extra"]["source_url"]
    path: str = page.file.src_uri
    return with_source_links(with_plain_fences(with_readers(markdown, path)), path, source_url)


def paths(nav: Nav) -> list[str]:
    """List the paths of a navigation."""
    listed: list[str] = []
    for entry in nav:
        values = list(entry.values()) if isinstance(entry, dict) else [entry]
        for value in values:
            listed += paths(value) if isinstance(value, list) else [value]
    return listed


def expanded(nav: Nav, docs: Path, named: set[str]) -> Nav:
    """Replace `folder/*` by the pages of a folder that have no entry of their own."""
    new: Nav = []
    for entry in nav:
        if isinstance(entry, dict):
            (title, value), *_ = entry.items()
            new.append({title: expanded(value, docs, named) if isinstance(value, list) else value})
        elif entry.endswith("/*"):
            pages = sorted((docs / entry[:-2]).glob("*.md"))
            new += [path for page in pages if (path := f"{entry[:-1]}{page.name}") not in named]
        else:
            new.append(entry)
    return new


def with_readers(markdown: str, page: str) -> str:
    """Say below the title whom a page is for."""
    readers = READERS.get(page.partition("/")[0])
    line = f"\n*For {readers}.*\n" if readers else ""
    return HEADING.sub(lambda title: title[0] + line, markdown, count=1)


def with_plain_fences(markdown: str) -> str:
    """Drop why a block is not run, and show the name of its file as its title."""

    def plain(match: re.Match[str]) -> str:
        title = f' title="{match["file"]}"' if match["file"] else ""
        return f"{match['indent']}```{match['language']}{title}\n"

    return FENCE.sub(plain, markdown)


def with_source_links(markdown: str, page: str, source_url: str) -> str:
    """Let links to files outside docs/ lead to the repository."""
    folder = posixpath.dirname(posixpath.join("docs", page))

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match["target"]))
        if target.startswith("docs/"):
            return match[0]
        return f"]({source_url}/blob/main/{target}{match['anchor'] or ''})"

    return LINK.sub(link, markdown)

"""The table of features, and the tests that show them."""

import re

from tests.harness.markdown import ROOT
from tests.harness.protocol_rules import rules
from tools.features import PAGE, cited_in, features, rendered, shown


def test_ids_are_read_from_modules_tests_and_names() -> None:
    lines = [
        '"""Unique jobs (C12, T13)."""',
        "def test_a():",
        "    # F9, rules N6 and N7",
        "def test_b():",
        "    pass  # rule F1",
        "    # rule F2",
        "    def meanwhile():",
        "        pass",
        "    # F5",
        "def helper():",
        "    # F3",
        "class TestC:",
        "    def test_c(self):",
        "        # C2 and C22: in one call",
        "FEATURES = [",
        '    feature("H5, H6: a dead member\'s shards", test_b),',
        '    feature("a sequence", test_a),',
    ]
    assert set(cited_in("\n".join(lines))) == {
        ("C12", ""), ("T13", ""), ("F9", "test_a"), ("F5", "test_b"), ("C2", "test_c"),
        ("C22", "test_c"),
        ("H5", "H5, H6: a dead member's shards"), ("H6", "H5, H6: a dead member's shards"),
    }  # fmt: skip


def test_each_feature_is_shown() -> None:
    found = shown()
    assert [feature for feature in features() if feature not in found] == []


def test_no_test_names_a_feature_that_does_not_exist() -> None:
    unknown = {feature: found for feature, found in shown().items() if feature not in features()}
    assert unknown == {}, f"rules are cited as `rule X1`: {unknown.keys() & rules()}"


def test_the_page_of_tests_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), "run `make reference`"


def test_each_row_has_a_version_and_a_page_that_exists() -> None:
    text = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    table = text.partition("\n## Not yet")[0]
    rows = re.findall(r"^\| [A-Z]\d+ \| .+? \| (.+?) \| \[.+?\]\((.+?)\) \|", table, re.MULTILINE)
    assert len(rows) == len(features())
    assert {since for since, _ in rows} <= {"0.1", "0.2", "next"}
    assert [page for _, page in rows if not (ROOT / "docs" / page).exists()] == []

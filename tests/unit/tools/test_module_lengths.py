"""The check of module lengths."""

from pathlib import Path

from tools.module_lengths import EXCEPTIONS, LINES_MAX, long_modules

ROOT = Path(__file__).parents[3]


def test_a_module_that_is_too_long_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "fits.py").write_text("x = 1\n" * LINES_MAX)
    long = tmp_path / "folder" / "long.py"
    long.write_text("x = 1\n" * (LINES_MAX + 1))
    assert list(long_modules([tmp_path])) == [f"{long} has 601 lines, more than 600: split it"]


def test_exceptions_name_modules_that_exist_and_have_a_reason() -> None:
    for name, reason in EXCEPTIONS.items():
        assert (ROOT / name).is_file()
        assert reason

"""Finding the app and the store."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from dueline.api.application import Dueline
from dueline.api.config import Config, find_config, load_object, module_name, place_of
from dueline.api.loading import load_app
from dueline.core.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make an empty current folder; imports from it are forgotten afterwards."""
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # of other tests
    known, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(path: Path, text: str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# --- flag > environment > dueline.toml > nothing ---------------------------------------------

FLAG, VARIABLE, FILE = "flag", "variable", "file"


@pytest.mark.parametrize(
    ("flag", "environment", "written", "found"),
    [
        (FLAG, {"DUELINE_STORE": VARIABLE}, True, FLAG),
        (None, {"DUELINE_STORE": VARIABLE}, True, VARIABLE),
        (None, {}, True, FILE),
        (None, {}, False, None),
        (FLAG, {}, False, FLAG),
        ("", {"DUELINE_STORE": ""}, True, FILE),
    ],
)
def test_the_first_place_that_names_the_store_counts(
    tmp_path: Path,
    flag: str | None,
    environment: Mapping[str, str],
    found: str | None,
    *,
    written: bool,
) -> None:
    if written:
        write(tmp_path / "dueline.toml", f'store = "{FILE}"\n')
    config = find_config(store=flag, environment=environment, folder=tmp_path)
    assert config == Config(found, None)


def test_store_and_app_are_found_each_for_itself(tmp_path: Path) -> None:
    write(tmp_path / "dueline.toml", 'store = "s"\napp = "a"\n')
    environment = {"DUELINE_APP": "b"}
    assert find_config(environment=environment, folder=tmp_path) == Config("s", "b")
    assert find_config(app="c", environment={}, folder=tmp_path) == Config("s", "c")


def test_the_file_is_sought_here_and_above_and_the_nearest_counts(tmp_path: Path) -> None:
    write(tmp_path / "dueline.toml", 'store = "far"\napp = "far"\n')
    write(tmp_path / "a" / "dueline.toml", 'store = "near"\n')
    below = tmp_path / "a" / "b" / "c"
    below.mkdir(parents=True)
    assert find_config(environment={}, folder=below) == Config("near", None)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("sqlite:///data/jobs.db?synchronous=NORMAL", "{}/data/jobs.db?synchronous=NORMAL"),
        ("sqlite:jobs%23.db", "{}/jobs%23.db"),
        ("sqlite:////srv/jobs.db", "sqlite:////srv/jobs.db"),
        ("sqlite:///~/jobs.db", "sqlite:///~/jobs.db"),
        ("postgresql://server/jobs", "postgresql://server/jobs"),
    ],
)
def test_a_relative_file_is_in_the_folder_of_the_file_that_names_it(
    tmp_path: Path, written: str, found: str
) -> None:
    root = tmp_path / "50% of #1?"
    write(root / "dueline.toml", f'store = "{written}"\napp = "tasks:app"\n')
    (root / "below").mkdir()
    config = find_config(environment={}, folder=root / "below")
    quoted = f"sqlite:///{tmp_path}/50%25 of %231%3F"
    assert config == Config(found.format(quoted), "tasks:app", root)
    assert find_config(environment={}, folder=root) == Config(written, "tasks:app")
    given = {"DUELINE_STORE": written, "DUELINE_APP": "other:app"}
    assert find_config(environment=given, folder=root / "below") == Config(written, "other:app")


def test_without_arguments_it_is_the_process_that_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "dueline.toml", 'store = "s"\n')
    monkeypatch.setenv("DUELINE_APP", "tasks:app")
    assert find_config() == Config("s", "tasks:app")


def test_no_file_is_read_where_none_is_needed(tmp_path: Path) -> None:
    write(tmp_path / "dueline.toml", "broken")
    assert find_config(store="s", app="a", environment={}, folder=tmp_path) == Config("s", "a")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("store = ", "cannot be read"),
        ("store = 3", "invalid key 'store'"),
        ('shop = "x"', "invalid key 'shop'"),
        ("[store]\nurl = 'x'", "invalid key 'store'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, why: str) -> None:
    path = write(tmp_path / "dueline.toml", text)
    with pytest.raises(ConfigError, match=why) as raised:
        find_config(environment={}, folder=tmp_path)
    assert str(path) in raised.value.message
    assert raised.value.hint


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "dueline.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        find_config(environment={}, folder=tmp_path)


# --- importing -------------------------------------------------------------------------------


def test_a_module_of_the_current_folder_is_imported(folder: Path) -> None:
    write(folder / "shop_tasks.py", "app = 'mine'\nother = 'its'\n")
    assert load_object("shop_tasks:app") == "mine"
    assert load_object("shop_tasks") == "mine"
    assert load_object("shop_tasks:other") == "its"


def test_a_module_inside_a_package_is_imported(folder: Path) -> None:
    write(folder / "shop" / "__init__.py", "")
    write(folder / "shop" / "jobs.py", "app = 'mine'\n")
    assert load_object("shop.jobs:app") == "mine"


def test_a_file_is_imported_under_its_stem_with_its_folder_on_the_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "deep" / "beside_it.py", "value = 7\n")
    write(folder / "deep" / "script_x.py", "import beside_it\napp = beside_it.value, __name__\n")
    assert load_object("deep/script_x.py") == (7, "script_x")
    assert sys.modules["script_x"].app == (7, "script_x")
    monkeypatch.chdir(folder / "deep")
    assert load_object(f"{folder}/deep/script_x.py:app") == (7, "script_x")


@pytest.mark.parametrize(
    ("place", "text", "why", "hint"),
    [
        ("gone_x:app", None, "'gone_x' cannot be imported", "the current folder"),
        ("gone_x.py:app", None, "no file gone_x.py", "FILE.py:ATTR"),
        ("broken_x:app", "import nowhere_x", "'broken_x' cannot be imported", "Install nowhere_x"),
        ("broken_x:app", "1 / 0", "ZeroDivisionError: division by zero", "import broken_x"),
        ("broken_x:app", "x = (", "SyntaxError", "import broken_x"),
        ("broken_x.py:app", "1 / 0", "ZeroDivisionError", ""),
        ("broken_x:app", "", "has no 'app'", "MODULE:ATTR"),
        ("broken_x:apps", "app = 1", "has no 'apps'", "MODULE:ATTR"),
        ("broken_x", "app = None", "has no 'app'", "MODULE:ATTR"),
        (":app", None, "cannot be imported|fails while", ""),
    ],
)
def test_an_app_that_cannot_be_had_is_explained(
    folder: Path, place: str, text: str | None, why: str, hint: str
) -> None:
    if text is not None:
        write(folder / "broken_x.py", text)
    with pytest.raises(ConfigError, match=why) as raised:
        load_object(place)
    assert hint in raised.value.hint


def test_a_file_that_fails_leaves_no_half_made_module(folder: Path) -> None:
    write(folder / "broken_y.py", "half = 1\n1 / 0\n")
    with pytest.raises(ConfigError):
        load_object("broken_y.py")
    assert "broken_y" not in sys.modules


def test_only_an_application_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Dueline("memory://")
    module(monkeypatch, "some_tasks", app=app, word="app")
    assert load_app("some_tasks:app") is app
    with pytest.raises(ConfigError, match="some_tasks:word is a str, not a Dueline application"):
        load_app("some_tasks:word")


# --- naming ----------------------------------------------------------------------------------


def module(monkeypatch: pytest.MonkeyPatch, name: str, **names: object) -> ModuleType:
    """Make a module that counts as imported."""
    made = ModuleType(name)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def test_an_object_is_found_where_it_is_a_global(monkeypatch: pytest.MonkeyPatch) -> None:
    target = object()
    assert place_of(target) is None
    module(monkeypatch, "place_x", thing=target)
    assert place_of(target) == "place_x:thing"


def test_a_module_in_no_package_is_named_by_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target, other = object(), object()
    module(monkeypatch, "place_x", thing=target, __file__=str(tmp_path / "place_x.py"))
    assert place_of(target) == f"{tmp_path.resolve()}/place_x.py:thing"
    module(monkeypatch, "place_x.y", thing=other, __file__=str(tmp_path / "place_x" / "y.py"))
    assert place_of(other) == "place_x.y:thing"


def test_a_script_is_named_by_its_file_and_only_where_no_module_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = object()
    module(monkeypatch, "__main__", thing=target, __file__=str(tmp_path / "run.py"))
    assert place_of(target) == f"{tmp_path.resolve()}/run.py:thing"
    module(monkeypatch, "place_y", other=target)
    assert place_of(target) == "place_y:other"


def test_an_object_of_an_interactive_session_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    target = object()
    module(monkeypatch, "__main__", thing=target)
    assert place_of(target) is None


def test_a_script_goes_by_the_stem_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module_name("shop.jobs") == "shop.jobs"
    module(monkeypatch, "__main__", __file__=os.path.join("x", "run_me.py"))  # noqa: PTH118
    assert module_name("__main__") == "run_me"
    module(monkeypatch, "__main__")
    assert re.fullmatch("__main__", module_name("__main__"))


def test_a_program_from_standard_input_cannot_be_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = object()
    program = ModuleType("__main__")
    program.__file__, vars(program)["thing"] = "<stdin>", target
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert place_of(target) is None
    program.__file__ = str(tmp_path / "work.py")
    assert place_of(target) == f"{tmp_path.resolve()}/work.py:thing"


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("place", ["", "dueline.toml", "shop.py"])
def test_code_that_any_user_may_write_is_not_read(tmp_path: Path, place: str) -> None:
    (tmp_path / "dueline.toml").write_text('app = "shop:app"\n', encoding="utf-8")
    (tmp_path / "shop.py").write_text("app = 1\n", encoding="utf-8")
    assert find_config(folder=tmp_path, environment={}).app == "shop:app"
    (tmp_path / place).chmod(0o777)
    with pytest.raises(ConfigError, match="any user may write to"):
        find_config(folder=tmp_path, environment={})
    (tmp_path / place).chmod(0o700)
    assert find_config(folder=tmp_path, environment={}).app == "shop:app"

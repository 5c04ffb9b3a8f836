"""Files around the code: policies that agree, owners of packages, targets of workflows."""

import re
import tomllib

import yaml

from tests.harness.markdown import ROOT

PACKAGES = ROOT / "src" / "dueline"


def read(name: str) -> str:
    """Read a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def test_each_package_has_an_owner_and_a_page() -> None:
    rows = re.findall(
        r"^/src/dueline/(\S+)/ +@\S+ +# (\S+)$", read(".github/CODEOWNERS"), re.MULTILINE
    )
    folders = [path for path in PACKAGES.iterdir() if (path / "__init__.py").exists()]
    folders += [path for path in (PACKAGES / "stores").iterdir() if (path / "__init__.py").exists()]
    packages = {path.relative_to(PACKAGES).as_posix() for path in folders} - {"stores"}
    assert {name for name, _ in rows} == packages
    assert [page for _, page in rows if not (ROOT / page).is_file()] == []


def test_support_and_security_say_the_same() -> None:
    sentence = re.compile(r"Until 1\.0, .*?before it")
    assert sentence.findall(read("SECURITY.md")) == sentence.findall(read("SUPPORT.md"))
    assert "SECURITY.md#report-a-vulnerability" in read("SUPPORT.md")
    assert "SECURITY.md#report-a-vulnerability" in read("CODE_OF_CONDUCT.md")
    assert "## Report a vulnerability" in read("SECURITY.md")


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.MULTILINE))
    loops = re.search(
        r"^KILL_LOOPS := \$\(addprefix kills-,(.+)\)$", read("Makefile"), re.MULTILINE
    )
    assert loops is not None
    targets |= {f"kills-{name}" for name in loops[1].split()}
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            for step in job["steps"]:
                if step.get("run", "").startswith("make "):
                    words = re.sub(r"-[oj] \S+|[A-Z]+=\S+", "", step["run"]).split()[1:]
                    assert set(words) <= targets, step["run"]


def test_the_stages_of_ci_are_jobs() -> None:
    workflow = read(".github/workflows/ci.yml")
    stages = set(
        re.findall(r"make --no-print-directory(?: -o check)? ([a-z][a-z-]*)", read(".ci/run"))
    )
    assert [stage for stage in stages if not re.search(rf"make .*\b{stage}\b", workflow)] == []


def test_one_version_stands_everywhere() -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert f'VERSION = "{version}"' in read("src/dueline/core/version.py")
    assert f"## [{version}]" in read("CHANGELOG.md")

"""Count packages, the imports between them and the longest chain of those.

A package here is one directly under `dueline`; each store and each part of `dueline.spark` counts
by itself. The limits hold the layout of ARCHITECTURE.md; a circle is an error.
"""

import argparse
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from graphlib import CycleError, TopologicalSorter

import grimp

ROOT = "dueline"
SPLIT = ("stores", "spark")
"""Packages whose subpackages count by themselves."""

# `terminal` draws for `cli` and `api`, so that nothing else imports its library.
PACKAGES_MAX = 35
ARROWS_MAX = 161
CHAIN_MAX = 10


def package_of(module: str, packages: AbstractSet[str]) -> str:
    """Return the package that a module counts to, without the root."""
    _, *names = module.split(".")
    if len(names) > 1 and names[0] in SPLIT and f"{ROOT}.{names[0]}.{names[1]}" in packages:
        return ".".join(names[:2])
    return names[0]


def imports_of(graph: grimp.ImportGraph) -> Mapping[str, AbstractSet[str]]:
    """Return for each package the packages that it imports."""
    modules = sorted(graph.modules - {ROOT, f"{ROOT}.__main__"})
    packages = {module for module in modules if graph.find_children(module)}
    imports: dict[str, set[str]] = {package_of(module, packages): set() for module in modules}
    for module in modules:
        own = package_of(module, packages)
        for imported in graph.find_modules_directly_imported_by(module) - {ROOT}:
            other = package_of(imported, packages)
            if other != own:
                imports[own].add(other)
    return imports


def longest_chain(imports: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return the longest chain of packages, each importing the next.

    Raises:
        CycleError: Packages import each other in a circle.
    """
    chains: dict[str, list[str]] = {}
    for package in TopologicalSorter(imports).static_order():
        below = [chains[other] for other in imports[package]]
        chains[package] = [package, *max(below, key=len, default=[])]
    return max(chains.values(), key=len)


def main() -> None:
    """Print the numbers; exit with 1 where one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrows", action="store_true", help="list the imports of each package")
    listed = parser.parse_args().arrows
    imports = imports_of(grimp.build_graph(ROOT))
    if listed:
        for package, others in sorted(imports.items()):
            print(f"{package}: {', '.join(sorted(others))}")
    try:
        chain = longest_chain(imports)
    except CycleError as error:
        raise SystemExit(f"Packages import each other in a circle: {error.args[1]}") from error
    arrows = sum(map(len, imports.values()))
    print(
        f"{len(imports)} packages (at most {PACKAGES_MAX}), {arrows} arrows (at most {ARROWS_MAX}),"
        f" longest chain {len(chain)} (at most {CHAIN_MAX}), no circle"
    )
    if len(imports) > PACKAGES_MAX or arrows > ARROWS_MAX or len(chain) > CHAIN_MAX:
        raise SystemExit(f"Too many. The longest chain: {' > '.join(chain)}")


if __name__ == "__main__":
    main()

"""The layers of the package: upper modules import lower ones, adapters never each other.

Every import counts, wherever it stands: inside functions and under TYPE_CHECKING too. A module
without a place in the table fails, so that somebody gives it one.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "reservation_service"
ROOT = Path(__file__).parent.parent / PACKAGE

# Top to bottom. A name stands for a module or for a whole subpackage.
LAYERS = [
    ["__main__"],
    ["cli", "demo"],
    ["operating"],
    ["command_line"],
    ["service"],
    ["admission", "monitoring", "chores"],
    [
        *("web", "webhooks", "alarms", "housekeeping", "waker", "storage", "telemetry", "keys"),
        *("metrics", "readiness"),
    ],
    ["config"],
    ["actor", "feed"],
    ["store", "events"],
    ["refusals"],
    ["reservation", "retry", "patience", "access", "divergence"],
    ["errors", "clock", "correlation"],
    ["__init__"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# The only imports within a layer.
SIDEWAYS = {("cli", "demo"), ("store", "events")}

# A port that an adapter implements may stand in the adapter that uses it.
PORTS = {("waker", "alarms")}

# Wired in one place: everybody else is handed values and an `observe`.
ONLY_FOR = {
    "config": {"cli", "command_line", "demo", "service", "admission", "monitoring", "chores"},
    "telemetry": {"cli", "demo", "service"},
    "metrics": {"monitoring"},
}


class Import(NamedTuple):
    """`name` is what is taken out of the module `target`, None for the module itself."""

    target: str
    name: str | None


def imports(tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (inside(alias.name, None) for alias in aliases if is_ours(alias.name))
            case ast.ImportFrom(module=module, names=aliases, level=level):
                assert level == 0, f"line {node.lineno}: a relative import"
                if module is not None and is_ours(module):
                    yield from (inside(module, alias.name) for alias in aliases)
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)):
                assert called not in {"import_module", "__import__"}, (
                    f"line {node.lineno}: {called}"
                )


def is_ours(dotted: str) -> bool:
    return dotted.split(".", maxsplit=1)[0] == PACKAGE


def inside(dotted: str, name: str | None) -> Import:
    parts = dotted.split(".")[1:]
    if parts:
        return Import(parts[0], name)
    if name is None:
        return Import("__init__", None)
    return Import(name, None) if is_module(name) else Import("__init__", name)


def is_module(name: str) -> bool:
    return name in RANK or (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()


def verdict(module: str, imported: Import) -> str | None:
    """Why `module` may not have this import; None when it may."""
    target, name = imported
    if target not in RANK:
        return f"{target} has no place in the table"
    if module == target:
        return None
    if module not in ONLY_FOR.get(target, {module}):
        return f"{target} is not for {module}"
    if RANK[module] < RANK[target] or (module, target) in SIDEWAYS:
        return None
    if (module, target) in PORTS and name is not None and name in protocols(target):
        return None
    return f"{module} may not import {target}"


def protocols(module: str) -> set[str]:
    tree = ast.parse((ROOT / f"{module}.py").read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    }


def place(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def complaints(module: str, source: str) -> list[str]:
    if module not in RANK:
        return [f"{module} has no place in the table"]
    verdicts = (verdict(module, imported) for imported in imports(ast.parse(source)))
    return sorted({found for found in verdicts if found is not None})


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def test_the_package_is_there() -> None:
    assert {"actor", "reservation", "storage"} <= {place(path) for path in sources()}


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_lower_layers_only(path: Path) -> None:
    assert complaints(place(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("module", "planted", "complaint"),
    [
        ("actor", "import reservation_service.web.api", "actor may not import web"),
        ("store", "from reservation_service import actor", "store may not import actor"),
        ("web", "from reservation_service.storage.sqlite import X", "web may not import storage"),
        ("feed", "import reservation_service.web", "feed may not import web"),
        ("events", "from reservation_service.feed import X", "events may not import feed"),
        ("clock", "from reservation_service.errors import X", "clock may not import errors"),
        ("alarms", "from reservation_service.waker import X", "alarms may not import waker"),
        ("waker", "from reservation_service.alarms import X", "waker may not import alarms"),
        ("web", "from reservation_service.config import X", "config is not for web"),
        ("alarms", "from reservation_service.telemetry import X", "telemetry is not for alarms"),
        ("housekeeping", "import reservation_service.alarms", "housekeeping may not import alarms"),
        (
            "reservation",
            "import reservation_service.refusals",
            "reservation may not import refusals",
        ),
        ("refusals", "import reservation_service.store", "refusals may not import store"),
        ("actor", "import reservation_service.new", "new has no place in the table"),
        ("new", "import asyncio", "new has no place in the table"),
        ("actor", "def f():\n    import reservation_service.cli", "actor may not import cli"),
    ],
)
def test_a_planted_import_is_caught(module: str, planted: str, complaint: str) -> None:
    assert complaints(module, planted) == [complaint]

"""The counted part of the house style: sizes, names of modules, no sleeping in tests."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "reservation_service").rglob("*.py"))
# Where real processes live in real time, a test may have to look again after a while.
REAL_TIME = {"process", "system", "torture"}
TESTS = [
    path
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if path.relative_to(ROOT / "tests").parts[0] not in REAL_TIME
]
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "base", "misc"}

type_of_function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[type_of_function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, type_of_function) and code(node):
            yield node


def code(function: type_of_function) -> list[ast.stmt]:
    """Its statements without the docstring; none for a stub."""
    return [
        statement
        for statement in function.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]


def lines(function: type_of_function) -> int:
    """From `def` to the end; a docstring is a contract and costs nothing."""
    assert function.end_lineno is not None
    first = function.body[0]
    documented = first not in code(function)
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def sleeps(source: str) -> list[int]:
    """The lines that sleep; `sleep(0)` only lets others run."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) == "sleep"
        and [getattr(argument, "value", None) for argument in node.args] != [0]
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_file_has_at_most_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_function_has_at_most_50_lines(path: Path) -> None:
    assert {f.name: lines(f) for f in functions(path) if lines(f) > 50} == {}


def test_functions_are_small_as_a_rule() -> None:
    sizes = [lines(function) for path in MODULES for function in functions(path)]
    assert median(sizes) <= 9
    assert quantiles(sizes, n=10)[-1] <= 30


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_is_named_after_what_it_is(path: Path) -> None:
    assert path.stem not in FORBIDDEN_NAMES
    assert path.stem not in sys.stdlib_module_names


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_tests_do_not_sleep(path: Path) -> None:
    assert sleeps(path.read_text()) == []


def test_a_planted_sleep_is_caught() -> None:
    assert sleeps("async def f():\n    await asyncio.sleep(0)\n    await asyncio.sleep(0.1)") == [3]

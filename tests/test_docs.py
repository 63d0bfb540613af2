"""What the documents name exists: tests, log events with their fields, settings, links."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from reservation_service.config import KEYS, Settings

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted((ROOT / "reservation_service").rglob("*.py"))
OBSERVERS = {"observe", "_observe", "logger"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> str:
    """The text without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


# Tests


@cache
def names_of_tests() -> set[str]:
    files = list((ROOT / "tests").rglob("test_*.py"))
    functions = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    return {file.stem for file in files} | {
        node.name for node in functions if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_every_test_that_is_named_exists(path: Path) -> None:
    named = set(re.findall(r"\btest_\w+", path.read_text()))
    assert named - names_of_tests() == set()


def test_every_promise_of_the_readme_names_its_test() -> None:
    table = (ROOT / "README.md").read_text().split("| --- | --- |\n")[1].split("\n\n")[0]
    promises = table.splitlines()
    assert len(promises) >= 10
    assert [promise for promise in promises if "`test_" not in promise] == []


# Log events


class Observed(NamedTuple):
    """One call that makes a log line; an open one may add more fields."""

    name: str
    fields: frozenset[str]
    is_open: bool


def observed(source: str) -> Iterator[Observed]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(name))],
            ) if called in OBSERVERS:
                fields = frozenset(camel(word.arg) for word in node.keywords if word.arg)
                yield Observed(name, fields, None in [word.arg for word in node.keywords])


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def documented() -> dict[str, frozenset[str]]:
    text = (ROOT / "docs" / "operations.md").read_text()
    _, _, table = text.partition("| event | when | fields |\n| --- | --- | --- |\n")
    lines = (line.strip("|").split("|") for line in table.split("\n\n")[0].splitlines())
    return {
        name.strip(" `"): frozenset(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", fields)))
        for name, _, fields in lines
    }


def complaints(calls: list[Observed], table: dict[str, frozenset[str]]) -> list[str]:
    found = [f"{name} is never logged" for name in table.keys() - {call.name for call in calls}]
    for name, fields, is_open in calls:
        expected = table.get(name)
        if expected is None:
            found.append(f"{name} is not in the table")
        elif fields - expected or (expected - fields and not is_open):
            found.append(f"{name} has other fields: {sorted(fields ^ expected)}")
    return found


def test_the_log_table_has_every_event_with_its_fields() -> None:
    calls = [call for path in SOURCES for call in observed(path.read_text())]
    assert len(calls) >= 15
    assert complaints(calls, documented()) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("self._observe('other')", ["a is never logged", "other is not in the table"]),
        ("observe('a', one_field=1, another=2)", ["a has other fields: ['another']"]),
        ("observe('a')", ["a has other fields: ['oneField']"]),
        ("observe('a', **fields)", []),
        ("observe('a', two=2, **fields)", ["a has other fields: ['oneField', 'two']"]),
    ],
)
def test_a_planted_log_event_is_caught(source: str, complaint: list[str]) -> None:
    assert complaints(list(observed(source)), {"a": frozenset({"oneField"})}) == complaint


# Settings, dependencies


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_every_setting_that_is_named_exists(path: Path) -> None:
    sections = "|".join(Settings.model_fields)
    files = r"(?!py`|toml`|yaml`|db`)"
    named = set(re.findall(rf"`((?:{sections})\.{files}[a-z_]+)[` =]", path.read_text()))
    assert named - set(KEYS) == set()


def test_every_dependency_has_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"].values()
    wanted = project["project"]["dependencies"] + [text for group in groups for text in group]
    names = {Requirement(text).name for text in wanted if isinstance(text, str)}
    record = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text()
    assert names == set(re.findall(r"^\| `([\w-]+)` \|", record, re.MULTILINE))


# Links


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path, text: str) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if not link.startswith(("http://", "https://")):
            name, _, anchor = link.partition("#")
            target = path.parent / name
            leads = target.exists() if name else True
            if leads and anchor:
                leads = anchor in anchors(target.read_text() if name else text)
            if not leads:
                yield link


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert list(broken_links(path, path.read_text())) == []


@pytest.mark.parametrize("link", ["nowhere.md", "#nothing", "docs/operations.md#nothing"])
def test_a_broken_link_is_caught(link: str) -> None:
    assert list(broken_links(ROOT / "README.md", f"# One\n[one](#one) [it]({link})")) == [link]


@pytest.mark.parametrize("path", [*DOCUMENTS, *SOURCES], ids=relative)
def test_every_document_that_is_spoken_of_exists(path: Path) -> None:
    spoken_of = set(re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text()))
    assert [name for name in sorted(spoken_of) if not (ROOT / name).exists()] == []

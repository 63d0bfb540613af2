"""The fields of JSON bodies: what each accepts, and what to say when it gets anything else.

A number with a zero fraction (5.0, 5e0) is an integer in JSON and accepted as one.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from reservation_service.web.problems import BadRequest

TIMESTAMP_MAX = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IntegerField:
    """A required integer from `least` through `most`; reading raises BadRequest, as with all."""

    name: str
    least: int
    most: int
    sentence: str

    def read(self, document: Document) -> int:
        value = document.get(self.name)
        if type(value) is int and self.least <= value <= self.most:
            return value
        raise BadRequest("invalid-field", self.sentence)


@dataclass(frozen=True, slots=True)
class OptionalIntegerField:
    """An integer from `least` through `most`, or None where the field is absent."""

    name: str
    least: int
    most: int
    sentence: str

    def read(self, document: Document) -> int | None:
        if self.name not in document:
            return None
        return IntegerField(self.name, self.least, self.most, self.sentence).read(document)


@dataclass(frozen=True, slots=True)
class FlagField:
    """true or false; false where the field is absent."""

    name: str

    def read(self, document: Document) -> bool:
        value = document.get(self.name, False)
        if isinstance(value, bool):
            return value
        raise BadRequest("invalid-field", f"{self.name} must be true or false.")


@dataclass(frozen=True, slots=True)
class HolderField:
    """The client's own secret name, or None where the field is absent."""

    name: str = "holder"
    # half of a surrogate pair is what bytes that are no UTF-8 become in a header
    pattern: ClassVar[re.Pattern[str]] = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")

    def read(self, document: Document) -> str | None:
        if self.name not in document:
            return None
        value = document[self.name]
        if isinstance(value, str) and self.pattern.fullmatch(value):
            return value
        raise BadRequest(
            "invalid-field",
            f"{self.name} must be a string of 1 through 200 characters without control characters.",
        )


@dataclass(frozen=True, slots=True)
class JsonField:
    """Any JSON, as text of at most `bytes_max`; None where the field is absent or null."""

    name: str
    bytes_max: int

    def read(self, document: Document) -> str | None:
        value = document.get(self.name)
        if value is None:
            return None
        try:
            text = msgspec.json.encode(value)
        except (ValueError, RecursionError):
            text = b" " * (self.bytes_max + 1)
        if len(text) > self.bytes_max:
            raise BadRequest(
                "invalid-field", f"{self.name} must be at most {self.bytes_max} bytes of JSON."
            )
        return text.decode()


def refuse_unknown(names: Collection[str], known: Collection[str]) -> None:
    """Raises BadRequest for the first name that is not known."""
    for name in names:
        if name not in known:
            raise BadRequest("unknown-field", f"Unknown field {_shown(name)}.")


_NAME_SHOWN_MAX = 40


def _shown(name: str) -> str:
    shown = name if len(name) <= _NAME_SHOWN_MAX else f"{name[:_NAME_SHOWN_MAX]}…"
    return msgspec.json.encode(shown).decode()

"""The fields of requests, as types: what each accepts, and what to say when it gets anything else.

Bodies are msgspec structs of such types; the same types make the OpenAPI document. A number with a
zero fraction (5.0, 5e0) is an integer in JSON, and is one before it gets here.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from reservation_service.web.problems import BadRequest

TIMESTAMP_MAX = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""

HOLDER_MAX = 200

ID_PATTERN = "[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])"
ID_SENTENCE = "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens."

PAGE_DEFAULT = 50
PAGE_MAX = 500

Document = Mapping[str, Any]
B = TypeVar("B", bound="Body")


class Body(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What a request's body may have in it; every field's type has its sentence."""


def field_meta(sentence: str, **rules: Any) -> Meta:
    """What a field must be, as rules for programs and as the sentence of a refusal."""
    return Meta(description=sentence, **rules)


Holder = Annotated[
    str,
    field_meta(
        "holder must be a string of 1 through 200 characters without control characters.",
        min_length=1,
        max_length=HOLDER_MAX,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$(?!\n)",  # $ alone would let a last line break through
        examples=["128-random-bits"],
    ),
]
Generation = Annotated[
    int,
    field_meta("generation must be a positive integer.", ge=1, le=TIMESTAMP_MAX, examples=[1]),
]
Timestamp = Annotated[
    int,
    field_meta(
        "now must be a positive integer timestamp.",
        ge=1,
        le=TIMESTAMP_MAX,
        examples=[1_795_971_630_000],
    ),
]
Flag = Annotated[bool, field_meta("ifStillFree must be true or false.")]


def ttl_between(least: int, most: int) -> Any:
    """The type of `ttlSeconds` where these are the bounds."""
    sentence = f"ttlSeconds must be an integer from {least} through {most}."
    return Annotated[int, field_meta(sentence, ge=least, le=most, examples=[min(60, most)])]


def checked(document: Document, kind: type[B]) -> B:
    """The document as this kind of body. Raises BadRequest for the first thing that is wrong."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError:
        _refuse(document, kind)
        raise


def _refuse(document: Document, kind: type[Body]) -> None:
    """Unknown fields first, then those that are required, then the others."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    refuse_unknown(document, fields)
    for name, field in sorted(fields.items(), key=lambda item: not item[1].required):
        if not (name in document or field.required) or _fits(document.get(name), field.type):
            continue
        raise BadRequest("invalid-field", _sentence(field.type))


def _fits(value: Any, type_: Any) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


def _sentence(type_: Any) -> str:
    """That of the type itself, or of what a field may be that need not be there."""
    metas = [meta for meta in getattr(type_, "__metadata__", ()) if isinstance(meta, Meta)]
    return metas[0].description or "" if metas else _sentence(get_args(type_)[0])


def refuse_unknown(names: Collection[str], known: Collection[str]) -> None:
    """Raises BadRequest for the first name that is not known."""
    for name in names:
        if name not in known:
            raise BadRequest("unknown-field", f"Unknown field {_shown(name)}.")


def page_limit(query: Mapping[str, str]) -> int:
    """How many items a page may have, by default `PAGE_DEFAULT`. Raises BadRequest."""
    text = query.get("limit", str(PAGE_DEFAULT))
    if text.isascii() and text.isdigit() and len(text) <= len(str(PAGE_MAX)):
        limit = int(text)
        if 1 <= limit <= PAGE_MAX:
            return limit
    raise BadRequest("invalid-field", f"limit must be an integer from 1 through {PAGE_MAX}.")


_NAME_SHOWN_MAX = 40


def _shown(name: str) -> str:
    shown = name if len(name) <= _NAME_SHOWN_MAX else f"{name[:_NAME_SHOWN_MAX]}…"
    return msgspec.json.encode(shown).decode()

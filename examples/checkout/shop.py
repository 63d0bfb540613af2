"""The shop's own server: the page and the few things that a page must not do by itself.

It takes the payment and confirms, it gives back what a closed tab has left behind, and it tells
the page where the reservation service is. Everything else the page asks the service directly.
"""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web

from examples.checkout import hall
from examples.checkout.payments import Payment, Payments, TooManyPayments, UnknownPayment
from examples.checkout.presence import Hold, Presence
from examples.checkout.reservations import NoAnswer, Reservations

PAGE = Path(__file__).parent / "page"
BODY_BYTES_MAX = 4_096

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
T = TypeVar("T")


class PaymentBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is paid, and whose hold it is."""

    seat: Name
    holder: Name


class HoldBody(msgspec.Struct, forbid_unknown_fields=True):
    """A hold as the page knows it."""

    seat: Name
    generation: int


class VisitBody(msgspec.Struct, forbid_unknown_fields=True):
    """A page comes, or goes and leaves this hold."""

    holder: Name
    page: Name
    hold: HoldBody | None = None


class Shop:
    """The handlers, in front of the service at `service_url`, which `reservations` calls."""

    def __init__(
        self, service_url: str, reservations: Reservations, *, hold_seconds: int, grace_s: float
    ) -> None:
        self._service_url = service_url
        self._hold_seconds = hold_seconds
        self._reservations = reservations
        self._payments = Payments(reservations.confirm)
        self._presence = Presence(self._give_back, grace_s)

    def build_app(self) -> web.Application:
        """An application that serves the page and its calls."""
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.on_response_prepare.append(self._protect)
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/hall", self._hall),
                web.post("/visits/arrive", self._arrive),
                web.post("/visits/leave", self._leave),
                web.post("/payments", self._pay),
                web.post("/payments/{id}/approve", self._approve),
                web.post("/payments/{id}/decline", self._decline),
                web.static("/page", PAGE),
            ]
        )
        return app

    async def close(self) -> None:
        """Stop what is under way in the background."""
        await self._presence.close()
        await self._payments.close()

    async def _protect(self, _request: web.Request, answer: web.StreamResponse) -> None:
        """Scripts, styles and calls of this page and its service; nothing of anybody else."""
        answer.headers["Content-Security-Policy"] = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            f"connect-src 'self' {self._service_url}; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.headers.setdefault("Cache-Control", "no-cache")

    async def _index(self, _request: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGE / "index.html")

    async def _hall(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "serviceUrl": self._service_url,
                "holdSeconds": self._hold_seconds,
                "priceCents": hall.PRICE_CENTS,
                "currency": hall.CURRENCY,
                "rows": hall.rows(),
            }
        )

    async def _arrive(self, request: web.Request) -> web.Response:
        visit = await _read(request, VisitBody)
        self._presence.arrive(visit.holder, visit.page)
        return web.Response(status=204)

    async def _leave(self, request: web.Request) -> web.Response:
        visit = await _read(request, VisitBody)
        hold = None if visit.hold is None else Hold(_seat(visit.hold.seat), visit.hold.generation)
        self._presence.leave(visit.holder, visit.page, hold)
        return web.Response(status=204)

    async def _pay(self, request: web.Request) -> web.Response:
        body = await _read(request, PaymentBody)
        try:
            return _shown(self._payments.begin(_seat(body.seat), body.holder))
        except TooManyPayments:
            raise _refusal(web.HTTPServiceUnavailable, "Too many payments; try later.") from None

    async def _approve(self, request: web.Request) -> web.Response:
        """In real life the bank calls this and not the page."""
        try:
            return _shown(await self._payments.approve(request.match_info["id"]))
        except UnknownPayment:
            raise _refusal(web.HTTPNotFound, "There is no such payment.") from None

    async def _decline(self, request: web.Request) -> web.Response:
        try:
            return _shown(self._payments.decline(request.match_info["id"]))
        except UnknownPayment:
            raise _refusal(web.HTTPNotFound, "There is no such payment.") from None

    async def _give_back(self, holder: str, hold: Hold) -> None:
        """Release what a closed tab has left, unless it is paid for just now."""
        if self._payments.is_unsettled(hold.seat, holder):
            return
        with suppress(NoAnswer):  # it frees itself at its deadline
            await self._reservations.release(hold.seat, holder, hold.generation)


async def _read(request: web.Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.DecodeError as error:
        raise _refusal(web.HTTPBadRequest, f"{error}.") from error


def _seat(text: str) -> str:
    if text not in hall.SEATS:
        raise _refusal(web.HTTPBadRequest, "There is no such seat.")
    return text


def _shown(payment: Payment) -> web.Response:
    """A payment without its holder, who is a secret."""
    document: dict[str, Any] = {
        "paymentId": payment.payment_id,
        "seat": payment.seat,
        "status": payment.status,
        "sentence": payment.sentence,
    }
    return web.json_response(document)


def _refusal(kind: type[web.HTTPException], sentence: str) -> web.HTTPException:
    """An answer that has its reason where the service's answers have it."""
    return kind(
        text=msgspec.json.encode({"detail": sentence}).decode(), content_type="application/json"
    )

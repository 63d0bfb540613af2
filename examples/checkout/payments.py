"""Payments: money is charged once, and then the seat is confirmed or the money goes back.

The order is the point. The bank takes its time and knows nothing of deadlines, so a charge may
come after the hold has ended. `ifStillFree` then still gets the seat unless somebody else has it.
No charge is left without an outcome: confirming is repeated until the service has decided.

They are kept in memory; a real shop keeps them in its database and goes on after a restart.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, repeat

from examples.checkout.reservations import Answer, NoAnswer

PAYMENTS_MAX = 1_000
ANSWER_SECONDS_MAX = 8.0
"""How long an approval waits for the outcome before it is answered `unsettled`."""

PAUSES_S = (0.2, 0.5, 1.0, 2.0)
PAUSE_CAP_S = 5.0

Confirm = Callable[[str, str], Awaitable[Answer]]
Sleep = Callable[[float], Awaitable[None]]


class Status(StrEnum):
    """`unsettled` is charged, and neither confirmed nor refunded yet."""

    AWAITING_APPROVAL = "awaiting-approval"
    DECLINED = "declined"
    UNSETTLED = "unsettled"
    CONFIRMED = "confirmed"
    REFUNDED = "refunded"


class UnknownPayment(Exception):
    """There is no payment of this ID."""


class TooManyPayments(Exception):
    """Every payment that is remembered still needs its outcome."""


@dataclass(slots=True, eq=False)
class Payment:
    """One attempt to pay one seat; `sentence` is the service's reason for a refund."""

    seat: str
    holder: str
    payment_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    status: Status = Status.AWAITING_APPROVAL
    sentence: str | None = None
    settling: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Nothing is left to do, and a new attempt may begin."""
        return self.status in {Status.DECLINED, Status.REFUNDED}


class Payments:
    """All payments of the shop; `confirm` is the service's call."""

    def __init__(self, confirm: Confirm, sleep: Sleep = asyncio.sleep) -> None:
        self._confirm = confirm
        self._sleep = sleep
        self._payments: dict[str, Payment] = {}

    def begin(self, seat: str, holder: str) -> Payment:
        """A payment that waits for the bank; the present one, where one is under way."""
        if present := self._present(seat, holder):
            return present
        self._make_room()
        payment = Payment(seat, holder)
        self._payments[payment.payment_id] = payment
        return payment

    async def approve(self, payment_id: str) -> Payment:
        """The bank says yes: charge, then confirm or refund. Approving again changes nothing."""
        payment = self._find(payment_id)
        if payment.status is Status.AWAITING_APPROVAL:
            payment.status = Status.UNSETTLED  # here a real shop takes the money
            payment.settling = asyncio.create_task(self._settle(payment))
        if payment.settling is not None:
            await asyncio.wait([payment.settling], timeout=ANSWER_SECONDS_MAX)
        return payment

    def decline(self, payment_id: str) -> Payment:
        """The bank says no, unless it has said yes before."""
        payment = self._find(payment_id)
        if payment.status is Status.AWAITING_APPROVAL:
            payment.status = Status.DECLINED
        return payment

    def is_unsettled(self, seat: str, holder: str) -> bool:
        """Whether money was taken for this seat and its outcome is still open."""
        present = self._present(seat, holder)
        return present is not None and present.status is Status.UNSETTLED

    async def close(self) -> None:
        """Stop settling."""
        settling = [payment.settling for payment in self._payments.values() if payment.settling]
        for task in settling:
            task.cancel()
        await asyncio.gather(*settling, return_exceptions=True)

    async def _settle(self, payment: Payment) -> None:
        for pause_s in chain(PAUSES_S, repeat(PAUSE_CAP_S)):
            try:
                answer = await self._confirm(payment.seat, payment.holder)
            except NoAnswer:
                await self._sleep(pause_s)
            else:
                # Refunding, too, is where a real shop calls its bank.
                payment.status = Status.CONFIRMED if answer.is_done else Status.REFUNDED
                payment.sentence = answer.sentence
                return

    def _find(self, payment_id: str) -> Payment:
        try:
            return self._payments[payment_id]
        except KeyError:
            raise UnknownPayment from None

    def _present(self, seat: str, holder: str) -> Payment | None:
        return next(
            (
                payment
                for payment in self._payments.values()
                if (payment.seat, payment.holder) == (seat, holder) and not payment.is_over
            ),
            None,
        )

    def _make_room(self) -> None:
        """Forget the oldest payment that took no money, or whose outcome is known."""
        if len(self._payments) < PAYMENTS_MAX:
            return
        for payment in self._payments.values():
            if payment.status is not Status.UNSETTLED:
                del self._payments[payment.payment_id]
                return
        raise TooManyPayments

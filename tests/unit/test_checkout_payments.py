"""The example's payments: charged once, then confirmed or refunded, whatever the service does."""

from collections.abc import AsyncIterator

import pytest

from examples.checkout import payments as module
from examples.checkout.payments import Payments, Status, TooManyPayments, UnknownPayment
from examples.checkout.reservations import Answer, NoAnswer

CONFIRMED = Answer(is_done=True, sentence=None)
TAKEN = Answer(is_done=False, sentence="Somebody else has taken this reservation.")


class Service:
    """Answers what it is told to, and counts how often it is asked."""

    def __init__(self) -> None:
        self.answers: list[Answer | None] = []
        self.asked = 0

    async def confirm(self, _seat: str, _holder: str) -> Answer:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            raise NoAnswer
        return answer


class Pauses:
    """Pauses that take no time and are noted."""

    def __init__(self) -> None:
        self.taken_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.taken_s.append(seconds)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def payments(service: Service, pauses: Pauses) -> AsyncIterator[Payments]:
    made = Payments(service.confirm, pauses.sleep)
    yield made
    await made.close()


async def test_an_approved_payment_is_confirmed_once(payments: Payments, service: Service) -> None:
    service.answers = [CONFIRMED]
    payment = payments.begin("hall-a1", "holder")
    for _ in range(2):
        assert (await payments.approve(payment.payment_id)).status is Status.CONFIRMED
    assert payments.decline(payment.payment_id).status is Status.CONFIRMED
    assert service.asked == 1


async def test_a_refused_confirmation_is_a_refund_with_the_services_reason(
    payments: Payments, service: Service
) -> None:
    service.answers = [TAKEN]
    payment = await payments.approve(payments.begin("hall-a1", "holder").payment_id)
    assert (payment.status, payment.sentence) == (Status.REFUNDED, TAKEN.sentence)
    assert payments.begin("hall-a1", "holder") is not payment


async def test_confirming_is_repeated_until_the_service_has_decided(
    payments: Payments, service: Service, pauses: Pauses
) -> None:
    service.answers = [None, None, None, None, None, None, CONFIRMED]
    payment = await payments.approve(payments.begin("hall-a1", "holder").payment_id)
    assert payment.status is Status.CONFIRMED
    assert pauses.taken_s == [0.2, 0.5, 1.0, 2.0, 5.0, 5.0]


async def test_a_charge_without_an_outcome_is_unsettled(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0)
    payments = Payments(service.confirm)
    payment = await payments.approve(payments.begin("hall-a1", "holder").payment_id)
    assert payment.status is Status.UNSETTLED
    assert payments.is_unsettled("hall-a1", "holder")
    assert not payments.is_unsettled("hall-a1", "somebody else")
    await payments.close()


async def test_paying_again_meets_the_payment_that_is_under_way(payments: Payments) -> None:
    payment = payments.begin("hall-a1", "holder")
    assert payments.begin("hall-a1", "holder") is payment
    assert payments.begin("hall-a1", "somebody else") is not payment
    payments.decline(payment.payment_id)
    assert payments.begin("hall-a1", "holder") is not payment


async def test_a_declined_payment_charges_nothing(payments: Payments, service: Service) -> None:
    payment = payments.begin("hall-a1", "holder")
    payments.decline(payment.payment_id)
    assert (await payments.approve(payment.payment_id)).status is Status.DECLINED
    assert service.asked == 0


async def test_an_unknown_payment_is_told(payments: Payments) -> None:
    with pytest.raises(UnknownPayment):
        await payments.approve("unknown")


async def test_money_that_was_taken_is_not_forgotten_at_the_limit(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0)
    monkeypatch.setattr(module, "PAYMENTS_MAX", 1)
    payments = Payments(service.confirm)
    forgotten = payments.begin("hall-a1", "holder")
    payment = payments.begin("hall-a2", "holder")
    with pytest.raises(UnknownPayment):
        payments.decline(forgotten.payment_id)
    await payments.approve(payment.payment_id)
    with pytest.raises(TooManyPayments):
        payments.begin("hall-a3", "holder")
    await payments.close()

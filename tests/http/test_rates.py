"""How often one caller may call: what is counted, for whom, and when it is over."""

from pathlib import Path

import pytest

from reservation_service.web import rates
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.http.callers import CALLS, Call, bearer, make, new_key
from tests.support.harness import Answer, ServiceHarness

READ = CALLS["GET /reservations/{id}"]
BY_ADDRESS: dict[str, object] = {"per_address": "3/second"}
NONE: dict[str, object] = {"mode": "none"}
PROXIED: dict[str, object] = {"trusted_proxies": ["127.0.0.1", "10.0.0.0/8"]}


def limited(answer: Answer, seconds: int = 1) -> bool:
    if answer.status != 429:
        return False
    assert_problem(answer, 429, "rate-limited", "Too many calls; try again later.")
    assert answer.headers["Retry-After"] == str(seconds)
    return True


async def admitted(service: ServiceHarness, headers: dict[str, str] | None = None) -> int:
    """How many calls are let through until the first that is not."""
    for count in range(20):
        answer = await service.request("GET", READ.path, headers=headers or {})
        if limited(answer):
            return count
    raise AssertionError("nothing is limited")


async def test_nothing_is_limited_until_it_is_configured(service: ServiceHarness) -> None:
    for _ in range(50):
        assert (await make(service, READ)).status == 200


@pytest.mark.parametrize("auth", [{}, {"mode": "none"}])
async def test_an_address_gets_its_rate_and_again_when_the_window_is_over(
    start_service: StartService, auth: dict[str, object]
) -> None:
    service = await start_service(auth=auth, rate_limit=BY_ADDRESS)
    assert await admitted(service) == 3
    service.clock.advance(999)
    assert limited(await make(service, READ))
    service.clock.advance(1)
    assert await admitted(service) == 3


async def test_retry_after_is_when_the_window_is_over(start_service: StartService) -> None:
    service = await start_service(rate_limit={"per_address": "1/minute"})
    assert (await make(service, READ)).status == 200
    assert limited(await make(service, READ), 60)
    service.clock.advance(58_500)
    assert limited(await make(service, READ), 2)
    service.clock.advance(1_500)
    assert (await make(service, READ)).status == 200


async def test_a_limited_call_changes_nothing(start_service: StartService) -> None:
    service = await start_service(rate_limit={"per_address": "1/second"})
    await make(service, READ)
    answer = await make(service, Call("POST", "/reservations/seat-1", {"ttlSeconds": 60}))
    assert limited(answer)
    service.clock.advance(1_000)
    assert (await service.status("seat-1"))["status"] == "missing"


async def test_each_key_has_a_rate_of_its_own_wherever_it_is_used(
    start_service: StartService, database: Path
) -> None:
    shop, other = (new_key(database, "reserve", name) for name in ("shop", "other"))
    service = await start_service(
        rate_limit={"per_key": "5/second", "per_address": "3/second"}, server=PROXIED
    )
    assert await admitted(service, bearer(shop)) == 5
    assert limited(
        await service.request(
            "GET", READ.path, headers=bearer(shop) | {"X-Forwarded-For": "192.0.2.9"}
        )
    )
    assert await admitted(service, bearer(other)) == 5


async def test_guessing_keys_is_counted_by_address_and_limited_before_it_is_answered(
    start_service: StartService, database: Path
) -> None:
    good = new_key(database, "reserve")
    service = await start_service(rate_limit=BY_ADDRESS)
    for path in ("/whoami", READ.path, "/whoami"):
        guess = await service.request("GET", path, headers=bearer("rsk_guess"))
        assert_problem(guess, 401, "unknown-key")
    assert limited(await service.request("GET", "/whoami", headers=bearer("rsk_guess")))
    assert limited(await service.get(READ.path))
    assert (await make(service, READ, good)).status == 200


async def test_whoever_looks_after_the_service_always_gets_an_answer(
    start_service: StartService,
) -> None:
    service = await start_service(rate_limit=BY_ADDRESS)
    assert await admitted(service) == 3
    assert [(await service.get("/")).status for _ in range(10)] == [200] * 10


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("198.51.100.7, 192.0.2.1", "203.0.113.9, 192.0.2.1", True),
        ("192.0.2.1, 10.0.0.7", "192.0.2.1", True),
        ("192.0.2.1, nonsense", "192.0.2.2, nonsense", True),
        (f"192.0.2.1{7 * ', 10.0.0.7'}", f"192.0.2.2{7 * ', 10.0.0.7'}", False),
        (f"192.0.2.1{8 * ', 10.0.0.7'}", f"192.0.2.2{8 * ', 10.0.0.7'}", True),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
    ],
)
async def test_behind_a_trusted_proxy_the_client_is_whom_the_proxy_names(
    start_service: StartService, first: str, second: str, is_same: bool
) -> None:
    service = await start_service(auth=NONE, rate_limit=BY_ADDRESS, server=PROXIED)
    assert await admitted(service, {"X-Forwarded-For": first}) == 3
    assert await admitted(service, {"X-Forwarded-For": second}) == (0 if is_same else 3)


async def test_nobody_else_is_believed(start_service: StartService) -> None:
    service = await start_service(
        auth=NONE, rate_limit=BY_ADDRESS, server={"trusted_proxies": ["192.0.2.0/24"]}
    )
    assert await admitted(service, {"X-Forwarded-For": "192.0.2.1"}) == 3
    assert await admitted(service, {"X-Forwarded-For": "192.0.2.2"}) == 0


async def test_callers_without_number_cost_no_memory_without_end(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "CALLERS_MAX", 4)
    service = await start_service(auth=NONE, rate_limit=BY_ADDRESS, server=PROXIED)
    assert await admitted(service, {"X-Forwarded-For": "192.0.2.1"}) == 3
    for last in range(2, 5):
        assert await admitted(service, {"X-Forwarded-For": f"192.0.2.{last}"}) == 3
    assert await admitted(service, {"X-Forwarded-For": "192.0.2.1"}) == 0
    assert await admitted(service, {"X-Forwarded-For": "192.0.2.5"}) == 3
    assert await admitted(service, {"X-Forwarded-For": "192.0.2.1"}) == 3

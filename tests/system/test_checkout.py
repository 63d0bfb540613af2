"""The example's page in a real Chromium: what one browser does, and what another sees of it.

Every test has seats of its own in one hall. Waits are Playwright's: they look until it is so.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Route, expect, sync_playwright

from tests.process.server import ROOT
from tests.system.checkout import FLAGS, Checkout, Visitor

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

PATIENCE_MS = 20_000
GRACE_SECONDS = 5
SKEW = """
    const skew = %d, RealDate = Date;
    globalThis.Date = class extends RealDate {
        constructor(...given) { given.length ? super(...given) : super(RealDate.now() + skew); }
        static now() { return RealDate.now() + skew; }
    };
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=FLAGS.split()
        )
        yield chromium
        chromium.close()


def served(folder: Path, *options: str, **settings: object) -> Iterator[Checkout]:
    """A checkout with a service of its own, which may hold for a second."""
    settings = {"reservations__ttl_seconds_min": 1} | settings
    grace = str(GRACE_SECONDS)
    made = Checkout(folder, "--service-port", "0", "--grace-seconds", grace, *options, **settings)
    yield made
    assert made.end() == 0


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seats") / "seats.db"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, database: Path) -> Iterator[Checkout]:
    yield from served(tmp_path_factory.mktemp("checkout"), "--database", str(database))


@pytest.fixture(scope="module")
def operator(checkout: Checkout, database: Path) -> str:
    """A key for everything."""
    return checkout.operator(database)


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Holds that last two seconds."""
    yield from served(tmp_path_factory.mktemp("hurried"), "--hold-seconds", "2")


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(browser: Browser, checkout: Checkout) -> Iterator[Visit]:
    """Opens the page in a new context; whatever happens in it, its scripts do not fail."""
    made: list[tuple[BrowserContext, Visitor]] = []

    def visit(url: str = checkout.url, script: str = "", **options: Any) -> Visitor:
        context = browser.new_context(reduced_motion="reduce", **options)
        context.set_default_timeout(PATIENCE_MS)
        if script:
            context.add_init_script(script)
        made.append((context, Visitor(context, url)))
        return made[-1][1]

    yield visit
    for context, _ in made:
        context.close()
    assert [visitor.errors for _, visitor in made if visitor.errors] == []


# Holding


def test_a_held_seat_is_seen_by_another_as_taken_with_the_time_that_is_left(visit: Visit) -> None:
    one, another = visit(), visit()
    one.hold("hall-a1")
    another.sees("hall-a1", "held")
    says = re.compile(r"^Row A, seat 1, held by somebody else, [12]:\d\d left$")
    expect(another.seat("hall-a1")).to_have_accessible_name(says)
    expect(one.seat("hall-a1")).to_have_accessible_name("Row A, seat 1, held for you")


def test_a_taken_seat_is_refused_in_the_services_own_words(
    visit: Visit, checkout: Checkout
) -> None:
    one, another = visit(), visit()
    one.hold("hall-a2")
    held = checkout.row("hall-a2")
    another.choose("hall-a2")
    another.says("Somebody else holds this reservation; choose another or try again later.")
    assert checkout.row("hall-a2") == held
    another.is_in("choosing")


def test_every_browser_has_a_secret_of_its_own(visit: Visit) -> None:
    one, another = visit(), visit()
    assert re.fullmatch("[0-9a-f]{32}", one.holder)
    assert one.holder != another.holder
    one.hold("hall-a3")
    assert [url for url in one.requests if one.holder in url] == []


def test_a_hold_whose_answer_was_lost_is_simply_asked_for_again(
    visit: Visit, checkout: Checkout
) -> None:
    one = visit()
    lost: list[str] = []

    def lose_the_first(route: Route) -> None:
        answer = route.fetch()
        if lost:
            route.fulfill(response=answer)
        else:
            lost.append(answer.text())
            route.abort()

    one.page.route("**/reservations/hall-a4", lose_the_first)
    one.hold("hall-a4")
    assert json.loads(lost[0])["status"] == "held"
    assert checkout.row("hall-a4")["generation"] == 1


def test_choosing_another_seat_gives_the_first_one_back(visit: Visit, checkout: Checkout) -> None:
    one = visit()
    one.hold("hall-a5")
    one.hold("hall-a6")
    one.sees("hall-a5", "free")
    assert checkout.row("hall-a5")["status"] == "released"


# News


def asks_for_all(visitor: Visitor) -> int:
    """How often the page has asked for every seat; what has changed is asked for by name."""
    return sum(url.count("id=hall-") > 1 for url in visitor.requests if "/reservations?" in url)


def test_what_others_do_is_seen_by_the_feed_and_nobody_asks_in_vain(visit: Visit) -> None:
    one, another = visit(), visit()
    one.hold("hall-f1")
    another.sees("hall-f1", "held")
    asked = asks_for_all(another)
    one.press("Give up")
    another.sees("hall-f1", "free")
    another.page.wait_for_timeout(3_000)
    assert asks_for_all(another) == asked
    assert [url for url in another.requests if "/events?after=latest" in url] != []


def test_an_expiry_is_seen_without_asking(visit: Visit, checkout: Checkout, operator: str) -> None:
    one, another = visit(), visit()
    one.hold("hall-f2")
    another.sees("hall-f2", "held")
    asked = asks_for_all(another)
    over = {"now": checkout.row("hall-f2")["expiresAt"]}
    assert checkout.call("POST", "/reservations/hall-f2/replay-alarm", over, operator)["changed"]
    another.sees("hall-f2", "free")
    assert asks_for_all(another) == asked


def test_a_stream_that_is_lost_comes_again_and_nothing_is_missed(visit: Visit) -> None:
    one, another = visit(), visit()
    another.page.route("**/events?*", lambda route: route.abort(), times=1)
    another.page.reload()
    one.hold("hall-f3")
    another.sees("hall-f3", "held")
    streams = [url for url in another.requests if "/events?after=latest" in url]
    one.press("Give up")
    another.sees("hall-f3", "free")
    assert len(streams) >= 2


def test_seats_are_asked_for_while_there_is_no_stream_to_be_had(visit: Visit) -> None:
    one, another = visit(), visit()
    another.page.route("**/events?*", lambda route: route.fulfill(status=503))
    another.page.reload()
    one.hold("hall-f4")
    another.sees("hall-f4", "held")
    one.press("Give up")
    another.sees("hall-f4", "free")


# Time


@pytest.mark.parametrize("skew_ms", [3_600_000, -3_600_000])
def test_the_countdown_follows_server_time_whatever_the_browsers_clock_says(
    visit: Visit, checkout: Checkout, skew_ms: int
) -> None:
    seat = f"hall-b{1 if skew_ms > 0 else 2}"
    one = visit(script=SKEW % skew_ms)
    one.hold(seat)
    skewed = one.page.evaluate("Date.now()") / 1000 - time.time()
    assert skewed == pytest.approx(skew_ms / 1000, abs=60)
    for _ in range(2):
        most, shown, least = (
            checkout.seconds_left(seat),
            one.seconds_left,
            checkout.seconds_left(seat),
        )
        assert least - 2 <= shown <= most + 2
        expect(one.page.locator("#time")).not_to_have_text(f"{shown // 60}:{shown % 60:02}")


def test_more_time_is_had_by_extending(visit: Visit, checkout: Checkout) -> None:
    one, another = visit(), visit()
    one.hold("hall-b3")
    held = checkout.row("hall-b3")
    expect(one.page.locator("#time")).to_have_text(re.compile("1:5[0-8]"))
    one.press("More time")
    expect(one.page.locator("#time")).to_have_text(re.compile("2:00|1:59"))
    extended = checkout.row("hall-b3")
    assert extended["expiresAt"] > held["expiresAt"]
    assert extended["generation"] == held["generation"]
    another.sees("hall-b3", "held")


def test_a_hold_that_is_over_is_told_and_can_be_made_again(visit: Visit, hurried: Checkout) -> None:
    one, another = visit(hurried.url), visit(hurried.url)
    one.hold("hall-b4")
    one.is_in("late")
    one.says("Your time is up.")
    another.sees("hall-b4", "free")
    one.press("Hold it again")
    another.sees("hall-b4", "held")
    assert hurried.row("hall-b4")["generation"] == 2


# Paying


def test_a_paid_seat_is_sold_for_everybody_and_no_browser_confirms(
    visit: Visit, checkout: Checkout
) -> None:
    one, another = visit(), visit()
    one.hold("hall-c1")
    one.press("Pay")
    one.press("Approve")
    one.is_in("bought")
    one.says("Row C, seat 1 is yours")
    one.sees("hall-c1", "bought")
    another.sees("hall-c1", "sold")
    assert checkout.row("hall-c1")["status"] == "confirmed"
    another.choose("hall-c1")
    another.says("This reservation is confirmed; choose another.")
    assert [url for url in one.requests if "confirm" in url] == []


def test_a_declined_payment_leaves_the_hold_as_it_is(visit: Visit, checkout: Checkout) -> None:
    one = visit()
    one.hold("hall-c3")
    held = checkout.row("hall-c3")
    one.press("Pay")
    one.press("Decline")
    one.says("The bank has declined, and nothing was charged.")
    one.is_in("holding")
    assert checkout.row("hall-c3")["expiresAt"] == held["expiresAt"]


def test_paying_late_gets_the_seat_while_nobody_has_taken_it(
    visit: Visit, hurried: Checkout
) -> None:
    one, another = visit(hurried.url), visit(hurried.url)
    one.hold("hall-c4")
    one.press("Pay")
    expect(one.page.locator("#bank-text")).to_contain_text("Nobody has taken the seat yet")
    another.sees("hall-c4", "free")
    one.press("Approve")
    one.is_in("bought")
    one.says("after your time was up")
    another.sees("hall-c4", "sold")


def test_paying_late_is_refunded_when_somebody_else_has_the_seat(
    visit: Visit, checkout: Checkout, operator: str
) -> None:
    one, another = visit(), visit()
    one.hold("hall-c5")
    one.press("Pay")
    over = {"now": checkout.row("hall-c5")["expiresAt"]}
    assert checkout.call("POST", "/reservations/hall-c5/replay-alarm", over, operator)["changed"]
    another.sees("hall-c5", "free")
    another.hold("hall-c5")
    expect(one.page.locator("#bank-text")).to_contain_text("somebody else has taken it")
    one.press("Approve")
    one.is_in("refunded")
    one.says("Somebody else has taken this reservation; refund the payment.")
    one.sees("hall-c5", "held")
    another.sees("hall-c5", "mine")
    assert checkout.row("hall-c5")["generation"] == 2


def test_nobody_confirms_without_the_shops_key(visit: Visit, checkout: Checkout) -> None:
    one = visit()
    one.hold("hall-c8")
    unpaid = checkout.call("POST", "/reservations/hall-c8/confirm", {"holder": one.holder})
    assert unpaid["code"] == "key-required"
    assert checkout.row("hall-c8")["status"] == "held"


def test_a_payment_for_a_hold_that_was_given_back_is_refunded(
    visit: Visit, checkout: Checkout
) -> None:
    one = visit()
    one.hold("hall-c6")
    one.press("Pay")
    released = checkout.call("POST", "/reservations/hall-c6/release", {"holder": one.holder})
    assert released["changed"]
    one.press("Approve")
    one.is_in("refunded")
    one.says("This hold was released; hold the reservation again.")


def test_the_outcome_of_a_payment_is_asked_for_until_it_is_known(visit: Visit) -> None:
    one = visit()

    def is_not_settled_yet(route: Route) -> None:
        payment_id = route.request.url.split("/")[-2]
        payment = {"paymentId": payment_id, "seat": "hall-c7", "status": "unsettled"}
        route.fulfill(json=payment)

    one.page.route("**/approve", is_not_settled_yet, times=1)
    one.hold("hall-c7")
    one.press("Pay")
    one.press("Approve")
    one.is_in("unsettled")
    one.press("Look again")
    one.is_in("bought")


# Leaving


def test_a_seat_that_is_given_up_is_free_for_the_other(visit: Visit) -> None:
    one, another = visit(), visit()
    one.hold("hall-d1")
    another.sees("hall-d1", "held")
    one.press("Give up")
    one.says("You have given Row D, seat 1 back.")
    another.sees("hall-d1", "free")
    another.hold("hall-d1")
    one.sees("hall-d1", "held")


def test_closing_the_tab_frees_the_seat_long_before_its_deadline(
    visit: Visit, checkout: Checkout
) -> None:
    one, another = visit(), visit()
    one.hold("hall-d2")
    another.sees("hall-d2", "held")
    one.page.close()
    another.sees("hall-d2", "free")
    assert checkout.row("hall-d2")["status"] == "released"


def test_a_reload_keeps_the_hold(visit: Visit, checkout: Checkout) -> None:
    one, another = visit(), visit()
    one.hold("hall-d3")
    held = checkout.row("hall-d3")
    one.page.reload()
    one.sees("hall-d3", "mine")
    one.waits_until(one.seconds_left - GRACE_SECONDS - 1)
    another.sees("hall-d3", "held")
    assert checkout.row("hall-d3") == held


# The page


def test_a_page_of_an_origin_that_is_not_configured_is_refused(
    visit: Visit, checkout: Checkout, tmp_path: Path
) -> None:
    elsewhere = Checkout(tmp_path, "--service-url", checkout.service_url)
    try:
        one = visit(elsewhere.url)
        trouble = one.page.get_by_role("alert")
        expect(trouble).to_contain_text(f'its cors.origins needs "{elsewhere.url}"')
        expect(one.page.locator("#seats")).to_have_attribute("aria-busy", "true")
        with pytest.raises(Exception, match="Failed to fetch"):
            one.page.evaluate("url => fetch(url)", checkout.service_url)
    finally:
        assert elsewhere.end() == 0


def test_a_seat_is_bought_by_keyboard_alone(visit: Visit) -> None:
    one = visit()
    expect(one.page.locator("#seats")).to_have_attribute("aria-busy", "false")
    for key in ("Tab", *["ArrowDown"] * 4, "ArrowRight", "Enter"):
        one.page.keyboard.press(key)
    one.sees("hall-e2", "mine")
    one.is_in("holding")
    for key in ("Tab", "Enter"):
        one.page.keyboard.press(key)
    expect(one.page.get_by_role("button", name="Approve")).to_be_focused()
    one.page.keyboard.press("Enter")
    one.sees("hall-e2", "bought")
    expect(one.page.locator("#ticket-title")).to_be_focused()


def test_the_page_fits_a_small_phone(visit: Visit) -> None:
    one = visit(viewport={"width": 320, "height": 568})
    one.hold("hall-e3")
    assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for part in (one.seat("hall-e3"), one.page.locator("#extend")):
        box = part.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) >= 24


def test_ctrl_c_ends_the_page_and_the_service(tmp_path: Path) -> None:
    both = Checkout(tmp_path, "--service-port", "0")
    assert both.row("hall-a1")["status"] == "missing"
    assert both.end(signal.SIGINT) == 0
    for url in (both.url, both.service_url):
        with pytest.raises(ConnectionRefusedError):
            HTTPConnection(urlsplit(url).netloc).connect()


def test_a_port_that_is_taken_is_told_in_one_sentence(checkout: Checkout) -> None:
    port = str(urlsplit(checkout.url).port)
    command = [sys.executable, "-m", "examples.checkout", "--port", port]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"Error: Cannot listen on 127.0.0.1:{port}: Address already in use.\n"

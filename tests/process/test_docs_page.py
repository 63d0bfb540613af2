"""The page of the API in a real browser that reaches nothing but the service."""

import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.process.conftest import MakeServer
from tests.system.checkout import FLAGS

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

PATIENCE_MS = 20_000


def test_the_page_shows_every_call_and_asks_nobody_else(make_server: MakeServer) -> None:
    server = make_server().start()
    complaints: list[str] = []
    requests: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=FLAGS.split()
        )
        page = chromium.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"http://127.0.0.1:{server.port}/docs")
        calls = page.locator(".opblock")
        expect(calls).to_have_count(17, timeout=PATIENCE_MS)
        expect(page.locator(".opblock-summary-path").first).to_be_visible()
        chromium.close()
    assert complaints == []
    origin = f"http://127.0.0.1:{server.port}/"
    assert [url for url in requests if not url.startswith((origin, "data:"))] == []
    server.stop()

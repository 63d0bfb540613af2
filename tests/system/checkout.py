"""The example as people run it, and visitors with browsers of their own."""

import json
import os
import re
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Locator, Page, expect

from reservation_service.access import Scope
from reservation_service.keys.key_file import KeyFile
from tests.process.server import ROOT, environment, eventually, wall_ms

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
"""Chromium's: alone, and calling nobody by itself."""


class Checkout:
    """What `make example` runs, on free ports."""

    def __init__(self, folder: Path, *options: str, **settings: object) -> None:
        self._stderr = folder / "stderr"
        command = [sys.executable, "-m", "examples.checkout", "--port", "0", *options]
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        addresses = re.findall(r"http://[\w.:]+\d", line)
        assert len(addresses) == 2, (line, self._stderr.read_text())
        self.url, self.service_url = addresses

    def call(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        """What the service answers to somebody who is no browser."""
        connection = HTTPConnection(urlsplit(self.service_url).netloc, timeout=20)
        try:
            text = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            if token:
                headers["Authorization"] = f"Bearer {token}"
            connection.request(method, path, text, headers)
            answer = connection.getresponse()
            self._server_time = int(answer.headers["Server-Time"])
            return json.load(answer)
        finally:
            connection.close()

    def operator(self, database: Path) -> str:
        """A key for everything, once it is in force."""
        token = KeyFile(database).add("staff", Scope.OPERATE, wall_ms())
        eventually(lambda: "name" in self.call("GET", "/whoami", token=token))
        return token

    def row(self, seat: str) -> Any:
        return self.call("GET", f"/reservations/{seat}")

    def seconds_left(self, seat: str) -> float:
        """Of the hold, by the service's own time."""
        return float(self.row(seat)["expiresAt"] - self._server_time) / 1000

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it as a terminal does: the signal goes to both processes. Its exit status."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)
        self._process.communicate(timeout=20)
        assert not re.search("failed|Traceback", self._stderr.read_text())
        return self._process.returncode


class Visitor:
    """A browser of somebody's own, at the checkout."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.errors: list[object] = []
        self.requests: list[str] = []
        context.on("weberror", lambda error: self.errors.append(error.error))
        context.on("request", lambda request: self.requests.append(request.url))
        self.page: Page = context.new_page()
        self.page.goto(url)

    def seat(self, seat: str) -> Locator:
        return self.page.locator(f'[data-seat="{seat}"]')

    def sees(self, seat: str, state: str) -> None:
        expect(self.seat(seat)).to_have_attribute("data-state", state)

    def choose(self, seat: str) -> None:
        """As soon as the hall is there."""
        expect(self.page.locator("#seats")).to_have_attribute("aria-busy", "false")
        self.seat(seat).click()

    def hold(self, seat: str) -> None:
        self.choose(seat)
        self.sees(seat, "mine")
        self.is_in("holding")

    def is_in(self, phase: str) -> None:
        expect(self.page.locator("#ticket")).to_have_attribute("data-phase", phase)

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=re.compile(f"^{name}")).click()

    def says(self, text: str) -> None:
        expect(self.page.locator("#ticket")).to_contain_text(text)

    def waits_until(self, seconds: int) -> None:
        """Until so few are left."""
        self.page.wait_for_function(
            """most => {
                const [minutes, seconds] = document.getElementById("time").textContent.split(":");
                return 60 * minutes + Number(seconds) <= most;
            }""",
            arg=seconds,
        )

    @property
    def holder(self) -> str:
        stored = self.page.evaluate("sessionStorage.getItem('checkout')")
        return str(json.loads(stored)["holder"])

    @property
    def seconds_left(self) -> int:
        minutes, seconds = self.page.locator("#time").inner_text().split(":")
        return 60 * int(minutes) + int(seconds)

"""The command line: the page, the shop's server and the service, until Ctrl-C."""

import asyncio
import os
import signal
import socket
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
from aiohttp import web

from examples.checkout.reservations import Reservations
from examples.checkout.service_process import ServiceEnded, ServiceProcess
from examples.checkout.shop import Shop

HOST = "127.0.0.1"
SHUTDOWN_SECONDS = 1.0
KEY_VARIABLE = "CHECKOUT_SERVICE_KEY"
"""Where the key for a service that runs already is; an argument would show it to everybody."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says; a port of 0 is any free one."""

    port: int
    service_port: int
    service_url: str | None
    database: Path | None
    hold_seconds: int
    grace_seconds: float


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--port", default=8788, help="The page's port, 0 for any free one.")
@click.option("--service-port", default=8787, help="The service's port, 0 for any free one.")
@click.option("--service-url", help="A service that runs already, instead of one of its own.")
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    help="The service's SQLite file; without it one that is gone at the end.",
)
@click.option("--hold-seconds", default=120, help="How long a seat is held.")
@click.option("--grace-seconds", default=5.0, help="How long the seat of a closed tab is kept.")
def main(**options: Any) -> None:
    """Serve a small checkout, and the reservation service beside it."""
    sys.exit(asyncio.run(run(Options(**options))))


async def run(options: Options) -> int:
    """Serve until Ctrl-C (0), or until the service ends on its own (1)."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as opened:
        try:
            service = await _open(options, opened)
        except ServiceEnded as ended:
            raise click.ClickException("The reservation service did not start.") from ended
        return await _wait(stop, service)


async def _open(options: Options, opened: AsyncExitStack) -> ServiceProcess | None:
    """Open everything in order: the service has to know the page's port as an origin."""
    listener = opened.enter_context(_listener(options.port))
    page_url = f"http://{HOST}:{listener.getsockname()[1]}"
    service, service_url = None, (options.service_url or "").rstrip("/")
    if not service_url:
        scratch = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="checkout-")))
        service = ServiceProcess(scratch, [page_url, page_url.replace(HOST, "localhost")])
        opened.push_async_callback(service.stop)
        service_url = await service.start(options.database, options.service_port)
    key = service.key if service else os.environ.get(KEY_VARIABLE, "")
    await _serve(await _shop(service_url, key, options, opened), listener, opened)
    click.echo(f"The page is at {page_url}, the reservation service at {service_url}.")
    click.echo("Open the page in two browser windows. Ctrl-C ends both servers.")
    return service


async def _shop(
    service_url: str, key: str, options: Options, opened: AsyncExitStack
) -> web.Application:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    session = await opened.enter_async_context(aiohttp.ClientSession(service_url, headers=headers))
    shop = Shop(
        service_url,
        Reservations(session),
        hold_seconds=options.hold_seconds,
        grace_s=options.grace_seconds,
    )
    opened.push_async_callback(shop.close)
    return shop.build_app()


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise click.ClickException(f"Cannot listen on {HOST}:{port}: {reason}.") from error


async def _serve(app: web.Application, listener: socket.socket, opened: AsyncExitStack) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    opened.push_async_callback(runner.cleanup)
    await runner.setup()
    await web.SockSite(runner, listener).start()


async def _wait(stop: asyncio.Event, service: ServiceProcess | None) -> int:
    """Wait for Ctrl-C, or for the service to end; it gets the same Ctrl-C from the terminal."""
    waits: list[asyncio.Task[object]] = [asyncio.create_task(stop.wait())]
    if service is not None:
        waits.append(asyncio.create_task(service.wait()))
    _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in left:
        wait.cancel()
    return 0 if stop.is_set() else 1


if __name__ == "__main__":
    main()

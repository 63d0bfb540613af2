"""Addresses: which ones only this machine reaches, and whose a request is."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from aiohttp import web

Network = IPv4Network | IPv6Network

HOPS_MAX = 8
"""Proxies that may stand one behind another; a longer list is read no further."""

_SUBSCRIBER_BITS = 64
"""What one IPv6 subscriber has at least; a limit on less could be walked around."""


async def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`. Raises OSError for no address."""
    if _is_address(host.partition("%")[0]):
        return ip_address(host.partition("%")[0]).is_loopback
    found = await asyncio.get_running_loop().getaddrinfo(host, None)
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


@lru_cache(maxsize=128)
def is_own_name(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header can only mean this service, and no name of somebody else's.

    A page whose own name is made to lead here (DNS rebinding) sends that name. Addresses and names
    without a dot are nobody's to sell.
    """
    name = host.partition(":")[0].removesuffix(".").lower()
    return (
        "." not in name  # [::1]:8787 is none either
        or not name.strip("0123456789.")
        or name in names
        or name.endswith(".localhost")
    )


def client_of(request: web.BaseRequest, trusted: Sequence[Network]) -> str:
    """Whom a request comes from: the peer, or the one before it where the peer is trusted.

    X-Forwarded-For is read from its end, where trusted proxies write; what is before the first
    address that is not theirs, anybody may have made up.
    """
    client = request.remote or ""
    if trusted and _is_in(client, trusted):
        given = ",".join(request.headers.getall("X-Forwarded-For", []))
        for hop in reversed([part.strip() for part in given.rsplit(",", HOPS_MAX)[-HOPS_MAX:]]):
            if not _is_address(hop):
                break
            client = hop
            if not _is_in(hop, trusted):
                break
    return _subscriber(client)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_in(text: str, networks: Sequence[Network]) -> bool:
    return _is_address(text) and any(ip_address(text) in network for network in networks)


def _subscriber(text: str) -> str:
    if not _is_address(text):
        return text
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ip_network((int(address), _SUBSCRIBER_BITS), strict=False))
    return text

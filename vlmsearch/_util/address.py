"""Addresses of servers, as URLs have them."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address, ip_address

_LABEL = "[A-Za-z0-9_-]{1,63}"
_ADDRESS = re.compile(rf"(?:({_LABEL}(?:\.{_LABEL})*\.?)|\[([^\]]*)\])(?::([0-9]{{1,5}}))?")
_MAX_PORT = 65535


def parse_address(text: str) -> tuple[str, int | None] | None:
    """Return host and port of ``host:8000``, ``[::1]:8000`` or ``host``; None where ``text`` is no address."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    name, inside, digits = match.groups()
    port = None if digits is None else int(digits)
    if port is not None and not 1 <= port <= _MAX_PORT:
        return None
    if name is None:
        try:
            IPv6Address(inside)
        except AddressValueError:
            return None
    return name or inside, port


def has_port(text: str) -> bool:
    """Return whether ``text`` is an address with a port."""
    address = parse_address(text)
    return address is not None and address[1] is not None


def is_loopback(host: str) -> bool:
    """Check whether ``host`` is written as this machine itself. It is a name or an address, in brackets or not."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"

"""Allowed hosts and addresses of URLs: protection against server-side request forgery."""

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from kosmos_rag.core.config import UrlSettings
from kosmos_rag.core.errors import SourceError

_CREDENTIALS = frozenset(
    map(ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)
"""Metadata services of clouds, which return credentials to any process of the machine."""
_NAT64 = IPv6Network("64:ff9b::/96")


URLS = "ingestion.urls"
"""The section of the settings that documents are fetched by."""


def is_allowed(host: str, patterns: Sequence[str]) -> bool:
    """Return whether a host matches a pattern.

    `*.example.org` matches all hosts below it.
    """
    name = host.lower().rstrip(".")
    return any(name == pattern or (pattern[:2] == "*." and name.endswith(pattern[1:])) for pattern in patterns)


def require_allowed(host: str, settings: UrlSettings, section: str = URLS) -> None:
    """Raise SourceError `refused` for a host that the settings do not allow.

    Args:
        section: Where the settings are, for messages.
    """
    if not is_allowed(host, settings.allowed_hosts):
        raise SourceError("refused", f"host {host} is not in {section}.allowed_hosts; add it if it is to be reached")


def resolve_allowed(host: str, port: int, settings: UrlSettings, *, section: str = URLS) -> list[str]:
    """Resolve a host to its allowed addresses.

    Connect to these only: a second look-up may answer differently.

    Args:
        port: Port of the connection.
        settings: Allowed hosts, and whether private addresses are.
        section: Where the settings are, for messages.

    Raises:
        SourceError: `refused`: the host or one of its addresses is not allowed. `unavailable`: it has no address.
    """
    require_allowed(host, settings, section)
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError("unavailable", f"host {host} has no address: {reason}; check the name") from error
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in entries))
    for address in addresses:
        if not is_reachable(address, allow_private=settings.allow_private):
            raise SourceError(
                "refused",
                f"host {host} has the address {address}, which is not a public one; "
                f"for an intranet set {section}.allow_private",
            )
    return addresses


def is_reachable(address: str, *, allow_private: bool) -> bool:
    """Return whether an address may be connected to.

    A public one, or with `allow_private` a private or loopback one. Never a link-local one, nor one of a cloud's
    metadata service. An IPv4 address embedded in IPv6 counts.
    """
    ip = _extract_ipv4(ip_address(address))
    if ip in _CREDENTIALS:
        return False
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or (ip.is_reserved and not ip.is_loopback):
        return False
    if isinstance(ip, IPv6Address) and ip.is_site_local:
        return False
    return ip.is_global or allow_private


def _extract_ipv4(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address embedded in one of IPv6, else the address."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)

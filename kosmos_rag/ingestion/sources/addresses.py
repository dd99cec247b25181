"""Which hosts may be asked, and at which addresses: what keeps a URL from reaching into the own network."""

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from kosmos_rag.core.config import UrlSettings
from kosmos_rag.core.errors import SourceError

_CREDENTIALS = frozenset(
    map(ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)
"""Where clouds hand out credentials to whoever asks from within."""
_NAT64 = IPv6Network("64:ff9b::/96")


def is_allowed(host: str, patterns: Sequence[str]) -> bool:
    """Whether a host is one of the patterns, or below one that begins with `*.`."""
    name = host.lower().rstrip(".")
    return any(name == pattern or (pattern[:2] == "*." and name.endswith(pattern[1:])) for pattern in patterns)


def checked_addresses(host: str, port: int, settings: UrlSettings) -> list[str]:
    """Return the addresses of a host, to connect to these and no others: a second look-up may answer differently.

    Raises SourceError: `refused` where the host is not allowed or any of its addresses is not one to connect to,
    `unavailable` where it has none.
    """
    if not is_allowed(host, settings.allowed_hosts):
        raise SourceError("refused", f"host {host} is not in ingestion.urls.allowed_hosts; add it if it is to be read")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError("unavailable", f"host {host} has no address: {reason}; check the name") from error
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
    for address in addresses:
        if not is_reachable(address, allow_private=settings.allow_private):
            raise SourceError(
                "refused",
                f"host {host} has the address {address}, which is not a public one; "
                "for an intranet set ingestion.urls.allow_private",
            )
    return addresses


def is_reachable(address: str, *, allow_private: bool) -> bool:
    """Whether an address may be connected to: a public one, or with `allow_private` a private or loopback one.

    Never one of a single link, nor one where a cloud keeps credentials. An IPv4 address within one of IPv6 counts.
    """
    ip = _innermost(ip_address(address))
    if ip in _CREDENTIALS:
        return False
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or (ip.is_reserved and not ip.is_loopback):
        return False
    if isinstance(ip, IPv6Address) and ip.is_site_local:
        return False
    return ip.is_global or allow_private


def _innermost(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that one of IPv6 leads to, else the address itself."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)

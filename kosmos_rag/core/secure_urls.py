"""URLs of servers that receive or send secrets."""

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def is_secure_url(url: str) -> bool:
    """Whether a URL has TLS, or is of this machine, and names no user.

    `http://localhost:x@host/` is of `host`: the part before `@` is a user.
    """
    parts = _split(url)
    if parts is None or not parts.hostname or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def is_loopback_url(url: str) -> bool:
    """Whether a URL is of this machine."""
    parts = _split(url)
    host = "" if parts is None else (parts.hostname or "").removesuffix(".")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL.

    The result is None where it is malformed, or where parsers disagree about its host.
    """
    if not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for what is no number
    except ValueError:
        return None
    return parts

"""Templates to pages, and the files that pages fetch, under an address that changes when they do."""

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def render(template: str, **values: Any) -> str:
    """Return a page or a part of one. A value that the template names and nobody gives is an error."""
    return _environment().get_template(template).render(values)


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Return what pages fetch: content and media type, by file name."""
    folder = files(__package__).joinpath("assets")
    return {
        entry.name: (entry.read_bytes(), _TYPES.get(f".{entry.name.rpartition('.')[2]}") or "application/octet-stream")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.is_file()
    }


@cache
def edition() -> str:
    """Return a hash of all assets: part of their address, so that a browser may keep them for good."""
    digest = hashlib.sha256()
    for name, (content, _) in assets().items():
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()[:12]


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("kosmos_rag.apps.http.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"amount": amount, "size": size, "when": when, "ms": milliseconds, "tail": tail}
    environment.globals |= {"asset": lambda name: f"/assets/{edition()}/{name}"}
    return environment


def amount(number: float) -> str:
    """Write a count with thin spaces between its thousands."""
    return f"{number:,.0f}".replace(",", "\u202f")


def size(count: float) -> str:
    """Write a number of bytes for a reader."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def milliseconds(value: float) -> str:
    """Write milliseconds with as many digits as say something."""
    if value < 10:
        return f"{value:.2f}" if value < 1 else f"{value:.1f}"
    return amount(value)


def when(moment: datetime | None) -> str:
    """Write a time, in UTC."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def tail(source: str) -> str:
    """Return the last part of a path or an address: what a reader tells sources apart by."""
    return source.rstrip("/").rpartition("/")[2] or source

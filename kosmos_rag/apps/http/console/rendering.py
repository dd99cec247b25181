"""Renders templates, and serves static assets under a versioned path."""

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kosmos_rag.apps.http.wings import load_http_wings

if TYPE_CHECKING:
    from jinja2 import Environment

_SWAGGER_UI = ("swagger-ui-bundle.js", "swagger-ui.css")
"""Files of the package fastapi-offline that show the OpenAPI document."""
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def render(template: str, **values: Any) -> str:
    """Render a template. A missing value is an error."""
    return _environment().get_template(template).render(values)


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Return content and media type of the static assets, by file name."""
    console = [entry for entry in files(__package__).joinpath("assets").iterdir() if entry.is_file()]
    swagger_ui = [files("fastapi_offline").joinpath("static", name) for name in _SWAGGER_UI]
    return {
        entry.name: (entry.read_bytes(), _TYPES.get(f".{entry.name.rpartition('.')[2]}") or "application/octet-stream")
        for entry in sorted([*console, *swagger_ui], key=lambda entry: entry.name)
    }


@cache
def assets_version() -> str:
    """Return a hash of all assets, a part of their path.

    Browsers may cache the assets forever.
    """
    digest = hashlib.sha256()
    for name, (content, _) in assets().items():
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()[:12]


@cache
def _environment() -> "Environment":
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    of_wings = [wing.templates for wing in load_http_wings() if wing.templates is not None]
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("kosmos_rag.apps.http.console"), *map(PackageLoader, of_wings)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": format_count,
        "size": format_bytes,
        "when": format_time,
        "ago": format_age,
        "ms": format_milliseconds,
        "tail": last_segment,
    }
    environment.globals |= {"asset": lambda name: f"/assets/{assets_version()}/{name}"}
    return environment


def format_count(number: float) -> str:
    """Format a count with thin spaces as thousands separators."""
    return f"{number:,.0f}".replace(",", "\u202f")


def format_bytes(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def format_milliseconds(value: float) -> str:
    """Format milliseconds with two or three significant digits."""
    if value < 10:
        return f"{value:.2f}" if value < 1 else f"{value:.1f}"
    return format_count(value)


def format_time(moment: datetime | None) -> str:
    """Format a time in UTC."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


_UNITS = (("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400))


def format_age(moment: datetime | None, now: datetime | None = None) -> str:
    """Format a time relative to now; after a month as a date.

    Args:
        moment: the time; None gives an empty text.
        now: the present time; None for the clock.
    """
    if moment is None:
        return ""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    distance = abs(seconds)
    if distance < 10:
        return "now"
    if distance >= 31 * 86_400:
        return moment.astimezone(UTC).strftime("%Y-%m-%d")
    name, length = next((low for low, high in pairwise(_UNITS) if distance < high[1]), _UNITS[-1])
    count = int(distance / length)
    text = f"{count} {name}{'' if count == 1 else 's'}"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def last_segment(source: str) -> str:
    """Return the last part of a path or URL."""
    return source.rstrip("/").rpartition("/")[2] or source

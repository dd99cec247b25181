"""Passwords are shown nowhere."""

import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kosmos_rag.core.config import DatabaseSettings, Settings, flatten, mask_password
from kosmos_rag.core.config.display import show
from kosmos_rag.core.errors import ConfigError

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("embedded", "embedded"),
        ("postgresql://user:s3cr3t@host/db", "postgresql://user:***@host/db"),
        ("postgres://user:s3cr3t@host:5432/db?x=1", "postgres://user:***@host:5432/db?x=1"),
        ("postgresql://user:s3cr3t@s3cr3t@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user:s3c/s3cr3t@host/db", "postgresql://user:***@host/db"),
        ("postgresql://:s3cr3t@host/db", "postgresql://:***@host/db"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://host/db?user=u&password=s3cr3t&x=1", "postgresql://host/db?user=u&password=***&x=1"),
        ("postgresql://host/db?sslpassword=s3cr3t", "postgresql://host/db?sslpassword=***"),
        ("host=h password=s3cr3t dbname=d", "host=h password=*** dbname=d"),
        ("host=h password = 'a s3cr3t' dbname=d", "host=h password = *** dbname=d"),
        ("user:s3cr3t@host/db", "user:***@host/db"),
        ("https://host/keys?sig=s3cr3t&x=1", "https://host/keys?***"),
        ("https://u:s3cr3t@host/keys#s3cr3t", "https://u:***@host/keys#***"),
        ("https://host/v1", "https://host/v1"),
        ("no keys at 'https://host/keys?sig=s3cr3t': 403", "no keys at 'https://host/keys?***': 403"),
    ],
)
def test_mask_password__hides_it_and_nothing_else(url: str, masked: str) -> None:
    assert mask_password(url) == masked


@given(password=st.text(min_size=1))
def test_mask_password__of_any_characters(password: str) -> None:
    assert mask_password(f"postgresql://user:{password}@host/db") == "postgresql://user:***@host/db"


def test_flatten__masks_every_url() -> None:
    names = ("url", "worker_url", "admin_url")
    urls = {f"database.{name}": f"postgresql://{name}:{SECRET}@host/db" for name in names}
    settings = Settings.load(overrides=urls)
    flat = flatten(settings)
    assert [flat[key] for key in urls] == [f"postgresql://{name}:***@host/db" for name in names]
    assert settings.database.url == urls["database.url"]


def test_flatten__masks_the_query_of_every_address() -> None:
    """`config show` masks passwords and the queries of URLs."""
    addresses = {
        "language_model.url": f"https://host/v1?key={SECRET}",
        "service.tokens.keys": f"https://host/keys?sig={SECRET}",
    }
    more = {"service.tokens.issuer": f"https://issuer?x={SECRET}", "service.tokens.audience": "kosmos"}
    settings = Settings.load(overrides=addresses | more)
    assert SECRET not in str(flatten(settings))
    assert flatten(settings)["service.tokens.keys"] == "https://host/keys?***"
    assert settings.service.tokens.keys == addresses["service.tokens.keys"]


def test_repr__has_no_url() -> None:
    settings = Settings(database=DatabaseSettings(url=f"postgresql://u:{SECRET}@h/d"))
    assert SECRET not in f"{settings} {settings!r} {settings.database}"


@pytest.mark.parametrize(
    "text",
    [
        f"database: {{url: 'mysql://u:{SECRET}@h/d'}}",
        f"database: {{worker_url: 'postgresql://u:{SECRET}@h/d'}}",
        f"database: 'postgresql://u:{SECRET}@h/d'",
        f"database: {{url: ['postgresql://u:{SECRET}@h/d']}}",
        f"database: {{url: 'host=h password={SECRET}'}}",
        f"database: {{pool_size: 'postgresql://u:{SECRET}@h/d'}}",
        f"database: {{'postgresql://u:{SECRET}@h/d': 1}}",
        f"'postgresql://u:{SECRET}@h/d'",
        f"database: {{password: {SECRET}}}",
    ],
)
def test_error__from_a_file_hides_the_password(text: str) -> None:
    Path("rag-config.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Settings.load()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_error__from_the_environment_hides_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_DATABASE__ADMIN_URL", f"postgresql://u:{SECRET}@h/d")
    monkeypatch.setenv("KOSMOS_DATABASE", f"postgresql://u:{SECRET}@h/d")
    with pytest.raises(ConfigError) as caught:
        Settings.load()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_error__of_a_section_built_directly_hides_the_password() -> None:
    for key in ("url", "worker_url"):
        with pytest.raises(ValidationError) as caught:
            DatabaseSettings.model_validate({key: f"mysql://u:{SECRET}@h/d"})
        assert SECRET not in str(caught.value)


def test_show__is_json_and_cut_when_long() -> None:
    assert show(None) == "null"
    assert show(["\n", True]) == '["\\n", true]'
    assert len(show("x" * 10_000)) == 201

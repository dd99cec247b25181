"""Addresses and keys of model servers: what is refused, and what is shown nowhere."""

import pytest

from kosmos_rag.core.config import EmbeddingSettings, Settings, flatten
from kosmos_rag.core.config.presets import changes, load
from kosmos_rag.core.errors import ConfigError

KEY = "sk-secret-0123456789"
SECTIONS = ("rag.embedding", "rag.next_embedding", "rag.reranking")


@pytest.mark.parametrize("section", SECTIONS)
def test_key__is_read_from_the_environment_and_shown_nowhere(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"KOSMOS_{section.upper().replace('.', '__')}__API_KEY", KEY)
    settings = Settings.load(overrides={f"{section}.url": f"https://host/v1?key={KEY}"})
    output = flatten(settings)
    assert output[f"{section}.api_key"] == "**********"
    assert output[f"{section}.url"] == "https://host/v1?***"
    assert KEY not in f"{settings!r} {settings} {output}"


def test_hash_of_the_settings__does_not_depend_on_the_key() -> None:
    with_key = Settings.load(overrides={"rag.embedding.api_key": KEY})
    other = Settings.load(overrides={"rag.embedding.api_key": "another"})
    assert with_key.settings_hash == other.settings_hash


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("localhost:8000", "an address that starts with http:// or https://"),
        ("file:///etc/passwd", "an address that starts with http:// or https://"),
        ("http://", "an address that starts with http:// or https://"),
        ("http://host/a b", "an address that starts with http:// or https://"),
        (f"http://me:{KEY}@host/v1", "no user and password: set api_key in the environment"),
    ],
)
def test_address__that_is_none_or_has_a_password_is_refused(section: str, url: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=rf"{section}\.url is .*{remedy}") as raised:
        Settings.load(overrides={f"{section}.url": url})
    assert KEY not in str(raised.value)


def test_address__may_have_an_at_sign_in_its_path() -> None:
    assert EmbeddingSettings(url="http://host/models/@cf/baai").url == "http://host/models/@cf/baai"


@pytest.mark.parametrize("key", ["url", "api_key", "protocol"])
@pytest.mark.parametrize("section", ["embedding", "reranking"])
def test_preset__cannot_send_texts_elsewhere(section: str, key: str, tmp_path: object) -> None:
    """A preset belongs to a collection: its owner must not choose where the texts of a process go."""
    preset = f"{tmp_path}/mine.yaml"
    with open(preset, "w") as file:  # noqa: PTH123
        file.write(f"rag: {{{section}: {{{key}: 'http://elsewhere'}}}}")
    with pytest.raises(ConfigError):
        load(preset, Settings(), validate=lambda _: None)
    with pytest.raises(ConfigError):
        changes("mine", {f"rag.{section}.{key}": "http://elsewhere"}, Settings(), validate=lambda _: None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"matryoshka": "server"}, r"matryoshka is .server. .*url is null .*: there is no server to request it"),
        ({"dimensions": 384}, "that model gives 768 dimensions"),
    ],
)
def test_matryoshka__needs_a_server_or_a_longer_vector(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings.load(overrides={f"rag.embedding.{key}": value for key, value in values.items()})
    shorter = Settings.load(overrides={"rag.embedding.matryoshka": "client", "rag.embedding.dimensions": 384})
    assert shorter.rag.embedding.dimensions == 384

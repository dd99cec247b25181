"""Specs that cannot be used are refused with one line that says why."""

import json
from typing import Any

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.ingestion.sources.registry import create_source


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "kind must be one of confluence, folder, git, imap, jira, json_lines, rclone, s3, site, sql, urls"),
        ({"kind": "ftp"}, 'source of kind "ftp"'),
        ({"kind": ["folder"]}, "kind must be one of"),
        ({"kind": "folder"}, "path is missing"),
        ({"kind": "folder", "path": " "}, "it must name a file or a folder"),
        ({"kind": "folder", "path": "/x", "exlude": []}, "did you mean exclude?"),
        ({"kind": "folder", "path": "/x", "zzz": 1}, "known are kind, "),
        ({"kind": "folder", "path": "/x", "include": "*.md"}, "include is"),
        ({"kind": "folder", "path": "/x", "include": ["!"]}, "include contains a pattern"),
        ({"kind": "folder", "path": "/x", "acl": []}, "acl is []"),
        ({"kind": "folder", "path": "/x", "acl": "finance"}, "acl is"),
        ({"kind": "folder", "path": "/x", "acl": ["a\x00"]}, "acl.0 is"),
        ({"kind": "folder", "path": "/x", "gitignore": "yes"}, "gitignore is"),
        ({"kind": "urls", "urls": []}, "urls is []"),
        ({"kind": "urls", "urls": ["ftp://example.org/a"]}, "http:// or https://"),
        ({"kind": "urls", "urls": ["file:///etc/passwd"]}, "http:// or https://"),
        ({"kind": "urls", "urls": ["https://u:secret@example.org/"]}, "user or password"),
        ({"kind": "urls", "urls": ["https://[::1"]}, "no valid address"),
        ({"kind": "s3", "bucket": ""}, "bucket is"),
        ({"kind": "s3", "bucket": "b", "endpoint_url": "http://key:secret@store/"}, "endpoint_url is"),
        ({"kind": "s3", "bucket": "b", "secret_access_key": "x"}, "secret_access_key is not a key"),
        ({"kind": "sql", "name": "a/b", "url_env": "URL", "query": "SELECT 1"}, "name is"),
        ({"kind": "sql", "name": "a", "url_env": "postgresql://x", "query": "SELECT 1"}, "url_env is"),
        ({"kind": "json_lines", "path": "/x", "id_field": ""}, "id_field is"),
    ],
)
def test_open__refuses_what_cannot_be_used(spec: dict[str, Any], message: str, ingestion: IngestionSettings) -> None:
    with pytest.raises(RequestError) as caught:
        create_source(spec, ingestion)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()
    assert "secret@" not in str(caught.value)


def test_open__names_the_variable_that_is_not_set(ingestion: IngestionSettings) -> None:
    spec = {"kind": "sql", "name": "a", "url_env": "NO_SUCH_VARIABLE", "query": "SELECT 1"}
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE is not set"):
        create_source(spec, ingestion)


def test_open__does_not_show_the_password_of_a_database(
    ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"kind": "sql", "name": "a", "url_env": "KB_URL", "query": "SELECT 1"}
    for url in ("nonsense", "oracle9://u:hunter2@host/db", "postgresql://u:hunter2@host:port/db"):
        monkeypatch.setenv("KB_URL", url)
        with pytest.raises(ConfigError, match="KB_URL contains no usable URL") as caught:
            create_source(spec, ingestion)
        assert "hunter2" not in str(caught.value)


def test_open__reads_nothing(ingestion: IngestionSettings) -> None:
    for spec in ({"kind": "folder", "path": "/nowhere"}, {"kind": "json_lines", "path": "/nowhere.jsonl"}):
        listing = create_source(json.loads(json.dumps(spec)), ingestion).listing()
        assert listing.failures == []
        assert list(listing) == []
        assert [failure.code for failure in listing.failures] == ["not_found"]

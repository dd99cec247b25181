"""Objects of a bucket as documents, against a server of the S3 protocol."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import GONE, ConfigError, SourceError
from kosmos_rag.ingestion.sources.registry import create_source
from tests.s3_server import serve_s3
from tests.unit.ingestion.sources.web_server import Server


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of the server."""
    with serve_s3() as address:
        yield address


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """A client's view of an empty bucket of this test's own."""
    import boto3

    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"b{abs(hash(request.node.name))}"
    result = boto3.resource("s3", endpoint_url=endpoint).Bucket(name)
    result.create()
    return result


def _put(bucket: Any, *keys: str) -> None:
    for key in keys:
        bucket.put_object(Key=key, Body=key.encode())


def test_objects__under_a_prefix_are_documents(bucket: Any, endpoint: str, opened: Any) -> None:
    _put(bucket, "docs/b.md", "docs/a ü%+.md", "other/c.md")
    source = opened(
        kind="s3", bucket=bucket.name, prefix="docs/", endpoint_url=endpoint, acl=["hr"], metadata={"team": "x"}
    )
    listing = source.listing()
    documents = [source.load(entry) for entry in listing]
    assert listing.complete
    assert [document.source for document in documents] == [
        f"s3://{bucket.name}/docs/a ü%+.md",
        f"s3://{bucket.name}/docs/b.md",
    ]
    assert [document.data.decode() for document in documents] == ["docs/a ü%+.md", "docs/b.md"]
    assert {document.acl for document in documents} == {("hr",)}


def test_objects__that_mark_folders_are_passed_over(bucket: Any, endpoint: str, opened: Any) -> None:
    bucket.put_object(Key="docs/", Body=b"")
    bucket.put_object(Key="docs/named/", Body=b"words")
    _put(bucket, "docs/a.md")
    listing = opened(kind="s3", bucket=bucket.name, endpoint_url=endpoint).listing()
    assert [entry.locator["key"] for entry in listing] == ["docs/a.md", "docs/named/"]


def test_listing__goes_on_past_the_first_page(
    bucket: Any, endpoint: str, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    keys = [str(number) for number in range(8)]
    _put(bucket, *keys)
    listing = opened(kind="s3", bucket=bucket.name, endpoint_url=endpoint).listing()
    assert [entry.locator["key"] for entry in listing] == keys
    assert listing.complete


def test_mark__changes_with_the_object(bucket: Any, endpoint: str, opened: Any) -> None:
    def etag(**spec: Any) -> str | None:
        [entry] = opened(kind="s3", bucket=bucket.name, endpoint_url=endpoint, **spec).listing()
        return str(entry.etag)

    _put(bucket, "a")
    first = etag()
    assert etag() == first
    assert etag(acl=["hr"]) != first
    bucket.put_object(Key="a", Body=b"other")
    assert etag() != first


def test_load__of_an_object_that_is_gone_or_too_large(bucket: Any, endpoint: str, opened: Any) -> None:
    _put(bucket, "gone", "grown")
    source = opened(kind="s3", bucket=bucket.name, endpoint_url=endpoint)
    entries = list(source.listing())
    bucket.Object("gone").delete()
    bucket.put_object(Key="grown", Body=bytes(1024 * 1024 + 1))
    codes = []
    for entry in entries:
        with pytest.raises(SourceError) as caught:
            source.load(entry)
        codes.append(caught.value.code)
    assert codes == [GONE, "too_large"]


def test_load__of_an_object_in_an_archive_waits_for_the_next_pass(bucket: Any, endpoint: str, opened: Any) -> None:
    bucket.put_object(Key="a", Body=b"x", StorageClass="GLACIER")
    source = opened(kind="s3", bucket=bucket.name, endpoint_url=endpoint)
    [entry] = source.listing()
    with pytest.raises(SourceError, match="InvalidObjectState") as caught:
        source.load(entry)
    assert (caught.value.code, caught.value.retryable) == ("refused", False)


def test_listing__of_no_such_bucket_or_store(bucket: Any, endpoint: str, opened: Any) -> None:
    for name, url, code in (
        ("missing-bucket", endpoint, "not_found"),
        ("b", "http://127.0.0.1:9", "unavailable"),
        ("no bucket name", endpoint, "unreadable"),
    ):
        listing = opened(kind="s3", bucket=name, endpoint_url=url).listing()
        assert list(listing) == []
        assert [failure.code for failure in listing.failures] == [code]
        assert listing.failures[0].message.isprintable()


def test_listing__without_credentials(endpoint: str, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    listing = opened(kind="s3", bucket="b", endpoint_url=endpoint).listing()
    assert list(listing) == []
    assert [failure.code for failure in listing.failures] == ["no_permission"]


def test_listing__with_a_token_that_is_refused(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    error = b"<Error><Code>InvalidToken</Code><Message>The token is invalid</Message></Error>"
    with Server.run() as server:
        server.replies["/b?list-type=2&prefix=&encoding-type=url"] = lambda handler: handler.send(400, error)
        listing = opened(kind="s3", bucket="b", endpoint_url=server.url().rstrip("/")).listing()
        assert list(listing) == []
    assert [failure.code for failure in listing.failures] == ["no_permission"]


def test_open__says_how_to_install_boto3(ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigError, match=r"pip install 'kosmos-rag\[s3\]'"):
        create_source({"kind": "s3", "bucket": "b"}, ingestion)


def test_covers__the_objects_under_the_prefix(bucket: Any, endpoint: str, opened: Any) -> None:
    listing = opened(kind="s3", bucket=bucket.name, prefix="docs/", endpoint_url=endpoint).listing()
    assert listing.covers(f"s3://{bucket.name}/docs/gone.md")
    assert not listing.covers(f"s3://{bucket.name}/other.md")
    assert not listing.covers(f"s3://{bucket.name}2/docs/gone.md")

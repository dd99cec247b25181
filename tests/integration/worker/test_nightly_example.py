"""examples/nightly_s3: a bucket that a worker mirrors, over the S3 protocol."""

import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from kosmos_rag import Engine
from tests.integration.worker.working import Work, counts, last_run
from tests.s3_server import serve_s3

EXAMPLE = Path(__file__).parents[3] / "examples" / "nightly_s3"


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The address of a server of the S3 protocol."""
    with serve_s3() as address:
        yield address


def test_nights__mirror_the_bucket(engine: Engine, work: Work, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    spec: dict[str, Any] = {**yaml.safe_load((EXAMPLE / "source.yaml").read_text()), "endpoint_url": endpoint}
    (enqueue,) = (
        shlex.split(line)
        for line in (EXAMPLE / "nightly.sh").read_text().splitlines()
        if line.startswith("kosmos-rag enqueue")
    )
    names = dict(pairwise(enqueue))
    handbook = engine.tenant(names["--tenant"], collection=names["--collection"])
    bucket = boto3.resource("s3", endpoint_url=endpoint).Bucket(spec["bucket"])
    bucket.create()

    def night() -> dict[str, int]:
        handbook.jobs.enqueue(spec)
        work()
        return counts(last_run(handbook))

    bucket.put_object(Key="handbook/leave.md", Body=b"# Leave\n\nEmployees get 20 days of leave.\n")
    bucket.put_object(Key="handbook/travel.md", Body=b"# Travel\n\nTrains are paid.\n")
    bucket.put_object(Key="drafts/plan.md", Body=b"# Plan\n")
    assert night() == {"new": 2}
    bucket.put_object(Key="handbook/leave.md", Body=b"# Leave\n\nEmployees get 25 days of leave.\n")
    bucket.Object("handbook/travel.md").delete()
    assert night() == {"changed": 1, "removed": 1}
    assert night() == {"unchanged": 1}
    (hit,) = handbook.search("days of leave")
    assert hit.source == "s3://company-documents/handbook/leave.md"
    assert "25 days" in hit.text

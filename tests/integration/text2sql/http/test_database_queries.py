"""Queries on a described database over HTTP."""

from pathlib import Path

import pytest

from kosmos_rag import Settings
from kosmos_rag.apps.client import Client
from kosmos_rag.core import errors
from tests.integration.apps.http.serving import Signer
from tests.integration.apps.http.serving import serving as http_serving
from tests.integration.text2sql.shop import opened_shop

pytestmark = pytest.mark.emptied_database


def test_rows__come_over_http_as_from_the_library(
    settings: Settings, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        opened_shop(settings, signer, tmp_path, monkeypatch) as engine,
        http_serving(engine, signer) as running,
        Client(running.url, signer.token(tenant="acme")) as client,
    ):
        rows = client.query_schema(
            "SELECT id, colour FROM goods WHERE colour = :c", database="shop", parameters={"c": "red"}
        )
        assert (rows.columns, rows.rows, rows.truncated) == (("id", "colour"), ((1, "red"),), False)
        with pytest.raises(errors.RequestError, match="only SELECT is run"):
            client.query_schema("DELETE FROM goods", database="shop")
        answer = client.ask_schema("colours of the goods")
        assert answer.result is not None
        assert (answer.database, answer.result.rows) == ("shop", (("red",),))
        assert answer.citations[0].to_dict() == {"id": "schema_model:shop.goods", "table": "goods", "column": None}
        with Client(running.url, signer.token(tenant="globex")) as other, pytest.raises(errors.NotFound):
            other.query_schema("SELECT colour FROM goods", database="shop")

"""Access reviews over HTTP, by the client and in the console."""

import csv
import io
import json
import re
import uuid

import pytest

from kosmos_rag import SourceDocument
from kosmos_rag.apps.client import Client
from kosmos_rag.core.errors import NotFound
from tests.integration.apps.http.console_visits import extract_text, visitor
from tests.integration.apps.http.serving import Running

HR, BOARD = "department:hr", "department:board"


@pytest.fixture
def served(running_with_views: Running) -> Running:
    running_with_views.tenant().ingest(
        [
            SourceDocument(source="=leave.md", data=b"# Leave\n", acl=(HR, BOARD)),
            SourceDocument(source="notes.md", data=b"# Notes\n", acl=("user:anna",)),
            SourceDocument(source="open.md", data=b"# Open\n"),
        ]
    )
    return running_with_views


def _document(served: Running, source: str) -> uuid.UUID:
    return served.tenant().document_ids([source])[0]


def test_client__reviews_documents_and_readers(served: Running) -> None:
    with Client(served.url, served.key("auditor", "admin")) as client:
        grants = client.document_access(_document(served, "=leave.md"))
        assert [(grant.principal, grant.origin) for grant in grants] == [(BOARD, "list"), (HR, "list")]
        first = client.reader_access([HR, "user:anna"], limit=2)
        rest = client.reader_access([HR, "user:anna"], limit=2, cursor=first.next)
        assert [grant.source for grant in (*first.items, *rest.items)] == ["=leave.md", "notes.md", "open.md"]
        assert rest.next is None
        with pytest.raises(NotFound):
            client.document_access(uuid.uuid4())


def test_route__asks_for_one_of_both(served: Running) -> None:
    with served.client(scope="admin") as client:
        for query in ("", f"?document_id={uuid.uuid4()}&principal=everyone"):
            assert client.get(f"/v1/access{query}").status_code == 422
        assert client.get("/v1/access?principal=everyone&cursor=x").status_code == 422


def test_console__shows_who_may_read_and_exports_it(served: Running) -> None:
    document_id = _document(served, "=leave.md")
    with visitor(served, "admin", principals=(HR,)) as client:
        page = client.get(f"/documents/{document_id}")
        assert f'href="/access/documents/{document_id}"' in page.text
        review = client.get(f"/access/documents/{document_id}")
        assert "Who may read Leave" in extract_text(review)
        assert [BOARD in review.text, HR in review.text, "console" in review.text] == [True] * 3
        rows = list(csv.DictReader(io.StringIO(client.get(f"/access/export/csv?document_id={document_id}").text)))
        assert [(row["source"], row["principal"]) for row in rows] == [("'=leave.md", BOARD), ("'=leave.md", HR)]
        assert client.get(f"/access/documents/{uuid.uuid4()}").status_code == 404
    with visitor(served, "read", principals=(HR,)) as client:
        assert "/access" not in client.get(f"/documents/{document_id}").text


def test_console__shows_what_a_reader_may_read_and_leads_to_the_view(served: Running) -> None:
    with visitor(served, "admin") as client:
        page = client.get("/access", params={"reader": "anna", "principals": f"{HR}, "})
        assert "anna may read 3 documents" in extract_text(page)
        export = re.findall(r'href="(/access/export/jsonl[^"]*)"', page.text)[0].replace("&amp;", "&")
        response = client.get(export)
        assert response.headers["content-disposition"] == 'attachment; filename="access.jsonl"'
        lines = [json.loads(line) for line in response.text.splitlines()]
        assert [(line["source"], line["principal"]) for line in lines] == [
            ("=leave.md", HR),
            ("notes.md", "user:anna"),
            ("open.md", "everyone"),
        ]
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
        assert client.post("/view-as", data=fields).headers["location"] == "/documents"
        listing = client.get("/documents").text
        assert [name in listing for name in ("=leave.md", "notes.md", "open.md")] == [True] * 3

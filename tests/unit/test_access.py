"""Readers of a document by its department."""

from typing import Any

import pytest

from kosmos_rag.config import AccessSettings
from kosmos_rag.errors import IngestionError
from kosmos_rag.ingestion.access import governed
from kosmos_rag.records import EVERYONE, SourceDocument

BY_FOLDER = AccessSettings(by="folder", open=("general",), privileged=("Manager", "Auditor"))
HR = ("department:hr", "role:Auditor", "role:Manager")


def document(source: str = "kb/hr/leave.pdf", **changes: Any) -> SourceDocument:
    return SourceDocument(source=source, data=b"x", **changes)


@pytest.mark.parametrize(
    ("given", "readers"),
    [
        (document(), HR),
        (document("kb/general/canteen.txt"), (EVERYONE,)),
        (document("kb/it/a.txt", metadata={"department": "hr"}), HR),
        (document(metadata={"department": "general"}), (EVERYONE,)),
        (document(readers=("board",)), ("board",)),
        (document(readers=("board", EVERYONE)), ("board", EVERYONE)),
    ],
)
def test_governed__readers_follow_from_the_department(given: SourceDocument, readers: tuple[str, ...]) -> None:
    once = governed(given, BY_FOLDER)
    assert once.readers == readers
    assert governed(once, BY_FOLDER) == once


def test_governed__leaves_documents_alone_unless_asked() -> None:
    assert governed(document(), AccessSettings()).readers == (EVERYONE,)


@pytest.mark.parametrize(
    ("by", "given"),
    [("folder", document("leave.pdf")), ("metadata", document()), ("metadata", document(metadata={"department": ""}))],
)
def test_governed__without_a_department_is_refused(by: Any, given: SourceDocument) -> None:
    with pytest.raises(IngestionError, match="has no department") as caught:
        governed(given, AccessSettings(by=by))
    assert caught.value.code == "no_department"


def test_governed__another_key_names_another_kind_of_principal() -> None:
    settings = AccessSettings(by="metadata", key="project")
    assert governed(document(metadata={"project": "apollo"}), settings).readers == ("project:apollo",)

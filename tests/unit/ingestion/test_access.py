"""Readers of a document by its department."""

from typing import Any

import pytest
from pydantic import ValidationError

from kosmos_rag.core.config import AccessSettings
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import EVERYONE, SourceDocument, find_department
from kosmos_rag.ingestion.acl import apply_access_policy

BY_FOLDER = AccessSettings(
    department_from="folder",
    departments=("hr", "it", "finance", "general"),
    open=("general",),
    privileged=("Manager", "Auditor", "Manager"),
)
HR = ("department:hr", "role:Auditor", "role:Manager")


def document(source: str = "kb/hr/leave.pdf", **changes: Any) -> SourceDocument:
    return SourceDocument(source=source, data=b"x", **changes)


@pytest.mark.parametrize(
    ("source", "readers"),
    [
        (document(), HR),
        (document("kb/general/canteen.txt"), (EVERYONE,)),
        (document("kb/it/a.txt", metadata={"department": "hr"}), HR),
        (document(metadata={"department": "general"}), (EVERYONE,)),
        (document("kb/it/a.txt", metadata={"department": " hr "}), HR),
        (document("kb/hr/2024/general/leave.pdf"), HR),
        (document("kb/general/../hr/leave.pdf"), HR),
        (document("https://general/hr/leave.html?from=/it/"), HR),
        (document(acl=(EVERYONE, EVERYONE)), HR),
        (document(acl=[EVERYONE]), HR),
        (document(acl=("board",)), ("board",)),
        (document(acl=(EVERYONE, "board", EVERYONE)), ("board", EVERYONE)),
    ],
)
def test_governed__readers_follow_from_the_department(source: SourceDocument, readers: tuple[str, ...]) -> None:
    once = apply_access_policy(source, BY_FOLDER)
    assert once.acl == readers
    assert apply_access_policy(once, BY_FOLDER) == once


def test_governed__leaves_documents_alone_unless_asked() -> None:
    assert apply_access_policy(document(), AccessSettings()).acl == (EVERYONE,)


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        (BY_FOLDER, document("leave.pdf")),
        (BY_FOLDER, document("kb/HR/leave.pdf")),
        (BY_FOLDER, document("kb/legal/leave.pdf")),
        (BY_FOLDER, document("https://hr/leave.html?from=/hr/x#/hr/x")),
        (AccessSettings(department_from="metadata"), document()),
    ],
)
def test_governed__without_a_department_is_refused(settings: AccessSettings, source: SourceDocument) -> None:
    with pytest.raises(IngestionError, match="has no department") as caught:
        apply_access_policy(source, settings)
    assert caught.value.code == "no_department"


@pytest.mark.parametrize("value", ["", " ", ["hr", "it"], 7, {"name": "hr"}, "hr\x00", "legal", "HR"])
def test_governed__a_department_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(IngestionError, match="department in the metadata of kb/hr/leave") as caught:
        apply_access_policy(document(metadata={"department": value}), BY_FOLDER)
    assert caught.value.code == "bad_department"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"department_from": "folder"}, "departments is"),
        ({"department_from": "metadata", "departments": ("hr",), "open": ("general",)}, "among the departments"),
    ],
)
def test_settings__without_their_departments_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        AccessSettings(**values)


@pytest.mark.parametrize(
    ("source", "metadata", "department"),
    [
        ("kb/hr/2024/leave.pdf", {}, "2024"),
        ("/leave.pdf", {}, None),
        ("https://intra.example/leave.html", {}, None),
        ("kb/hr/leave.pdf", {"department": ["it"]}, None),
    ],
)
def test_department__without_a_list_is_the_folder_that_the_file_lies_in(
    source: str, metadata: dict[str, Any], department: str | None
) -> None:
    assert find_department(metadata, source, key="department", by_folder=True) == department


def test_governed__another_key_names_another_kind_of_principal() -> None:
    settings = AccessSettings(department_from="metadata", key="project")
    assert apply_access_policy(document(metadata={"project": "apollo"}), settings).acl == ("project:apollo",)

"""The department of a document, by the settings of its collection."""

from typing import Any

import pytest

from kosmos_rag.core.config import RagSettings
from kosmos_rag.retrieval.departments import DepartmentRule
from kosmos_rag.retrieval.snapshot import PresetOverlay

PLAIN: dict[str, Any] = {}
PREFERRED = {"signals": {"department_match": {"by_folder": True}}}
ENFORCED = {"access": {"department_from": "folder", "departments": ("hr", "it", "general"), "open": ("general",)}}
BY_METADATA = {"access": {"department_from": "metadata", "key": "unit"}}


@pytest.mark.parametrize(
    ("settings", "source", "metadata", "acl", "department"),
    [
        (PLAIN, "kb/hr/leave.txt", {}, [], "general"),
        (PLAIN, "kb/hr/leave.txt", {"department": "it"}, [], "it"),
        (PLAIN, "leave.txt", {}, ["department:hr"], "hr"),
        (PREFERRED, "kb/hr/leave.txt", {}, [], "hr"),
        (PREFERRED, "kb/hr/leave.txt", {"department": "it"}, [], "it"),
        (PREFERRED, "leave.txt", {}, ["everyone", "role:Manager"], "general"),
        (ENFORCED, "kb/hr/2026/leave.txt", {}, [], "hr"),
        (ENFORCED, "kb/board/leave.txt", {}, ["department:it"], "it"),
        (ENFORCED, "https://hr/board/leave", {}, [], "general"),
        (BY_METADATA, "hr/leave.txt", {"unit": "it", "department": "hr"}, [], "it"),
        (BY_METADATA, "hr/leave.txt", {}, ["department:hr", "unit:legal"], "legal"),
    ],
)
def test_department__is_of_metadata_folder_or_acl(
    settings: dict[str, Any], source: str, metadata: dict[str, Any], acl: list[str], department: str
) -> None:
    rule = DepartmentRule.from_settings(RagSettings(**settings))
    assert rule.in_use == (settings is not PLAIN)
    assert rule.department(metadata, source, acl) == department


@pytest.mark.parametrize(
    ("overlay", "department"),
    [
        (PresetOverlay(access=None, department_match=None, require_approved=None), "general"),
        (PresetOverlay(access=None, department_match={"by_folder": True}, require_approved=None), "hr"),
        (PresetOverlay(access=ENFORCED["access"], department_match=None, require_approved=True), "hr"),
    ],
)
def test_department__by_the_preset_of_a_collection_where_the_question_names_none(
    overlay: PresetOverlay, department: str
) -> None:
    rule = DepartmentRule.from_settings(RagSettings(), overlay)
    assert rule.department({}, "kb/hr/leave.txt", []) == department
    assert rule.in_use == (department == "hr")

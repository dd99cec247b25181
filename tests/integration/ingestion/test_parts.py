"""Large files of rows from end to end: parts as documents that come and go with the file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder


def build_table(rows: int) -> str:
    """Build a table with a padded column: much to read, and little to store."""
    return "order,customer,note\n" + "".join(
        f"{number},customer{number},chair{' ' * 2_000}\n" for number in range(rows)
    )


@pytest.fixture
def scope(settings: Settings, tenant_name: str) -> Iterator[Tenant]:
    parsing = settings.ingestion.parsing.model_copy(update={"text_mb": 1})
    ingestion = settings.ingestion.model_copy(update={"parsing": parsing})
    with Engine(settings.model_copy(update={"ingestion": ingestion}), embedder=HashingEmbedder()) as engine:
        yield engine.tenant(tenant_name)


def list_parts(scope: Tenant) -> list[str]:
    return sorted(document.source for document in scope.documents())


def test_ingest__parts_follow_the_length_of_the_file(scope: Tenant, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(build_table(900))
    report = scope.ingest([file], root=".")
    assert report.failed == ()
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3, 4)]
    [hit] = scope.search("customer854", 1).hits
    assert hit.source == "orders.csv#part-4"
    assert "order: 854; customer: customer854" in hit.text
    assert hit.title == "orders"

    file.write_text(build_table(600))
    report = scope.ingest([file], root=".")
    assert (report.unchanged, report.removed) == (2, 1)
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]

    file.write_text(build_table(10))
    assert scope.ingest([file], root=".").removed == 3
    assert list_parts(scope) == ["orders.csv"]

    file.write_text(build_table(600))
    assert scope.ingest([tmp_path], root=".", prune=True).removed == 1
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]

    assert scope.delete("orders.csv") == 3
    assert list_parts(scope) == []


def test_ingest__a_file_that_cannot_be_read_keeps_its_parts(scope: Tenant, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(build_table(600))
    scope.ingest([tmp_path], root=".")
    file.unlink()
    file.symlink_to(file.name)
    report = scope.ingest([tmp_path], root=".", prune=True)
    assert ([failure.source for failure in report.failed], report.removed) == (["orders.csv"], 0)
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]


def test_ingest__a_file_with_the_name_of_a_part_stays(scope: Tenant, tmp_path: Path) -> None:
    for name in ("orders.csv", "orders.csv#part-2"):
        (tmp_path / name).write_text(build_table(3))
    for _ in range(2):
        assert scope.ingest([tmp_path], root=".", prune=True).removed == 0
        assert list_parts(scope) == ["orders.csv", "orders.csv#part-2"]


@pytest.mark.parametrize("prune", [False, True])
def test_ingest__documents_stay_until_one_that_replaces_them_is_stored(
    scope: Tenant, tmp_path: Path, *, prune: bool
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(build_table(600))
    scope.ingest([tmp_path], root=".")
    file.write_bytes(b"\x7fELF" + bytes(2_000))
    report = scope.ingest([tmp_path], root=".", prune=prune)
    assert (len(report.failed), report.removed) == (1, 0)
    assert list_parts(scope) == [f"orders.csv#part-{number}" for number in (1, 2, 3)]


def test_ingest__documents_that_are_passed_in_become_parts(scope: Tenant) -> None:
    for rows, names in ((600, [f"orders.csv#part-{number}" for number in (1, 2, 3)]), (3, ["orders.csv"])):
        scope.ingest([SourceDocument(source="orders.csv", data=build_table(rows).encode())])
        assert list_parts(scope) == names


def test_erase__the_parts_of_a_file_go_with_its_name(scope: Tenant) -> None:
    scope.ingest([SourceDocument(source="orders.csv", data=build_table(600).encode())])
    assert scope.erase(source="orders.csv").erased["documents"] == 3
    assert list_parts(scope) == []

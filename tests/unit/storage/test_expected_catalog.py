"""What the preflight expects names every table of the metadata."""

from kosmos_rag.storage.expected_catalog import TABLES, VERSION, WITH_ACL
from kosmos_rag.storage.tables import metadata


def test_every_table__is_expected_with_its_kind() -> None:
    tables = {table.name: set(table.columns.keys()) for table in metadata.sorted_tables}
    assert set(tables) == TABLES - {VERSION}, "name a new table in one of the groups of storage/expected_catalog.py"
    assert {name for name, columns in tables.items() if "acl" in columns} == WITH_ACL

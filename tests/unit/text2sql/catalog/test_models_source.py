"""SQLAlchemy models as a source."""

import pytest
from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from kosmos_rag.core.errors import RequestError
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.model import ForeignKey as Key
from kosmos_rag.text2sql.catalog.sources import from_models


def test_models__give_classes_keys_comments_enums_and_relationships(example: DatabaseSchema) -> None:
    assert len(example.tables) == 14
    statistics = example.table("program_statistics")
    assert statistics is not None
    assert (statistics.model, statistics.module, statistics.source_file) == (
        "ProgramStatistics", "programs", "programs.py",
    )  # fmt: skip
    assert statistics.foreign_keys == (
        Key(columns=("program_id",), table="programs", target=("id",)),
        Key(columns=("variant_id",), table="program_variants", target=("id",)),
    )
    assert statistics.unique == (("program_id", "variant_id"),)
    count = statistics.column("success_count")
    assert count is not None
    assert (count.type, count.nullable, count.comment) == ("INTEGER", False, "Runs that succeeded")
    runs = example.table("local_llm_decision_runs")
    assert runs is not None
    status = runs.column("status")
    assert status is not None
    assert status.enum == ("pending", "running", "succeeded", "failed", "cancelled")
    programs = example.table("programs")
    assert programs is not None
    assert [item.table for item in programs.relationships] == ["program_statistics", "program_variants"]
    lifecycle = programs.column("lifecycle")
    assert lifecycle is not None
    assert (lifecycle.enum, lifecycle.default) == (("draft", "active", "retired"), "draft")


def test_models__composite_and_self_referencing_keys_are_whole(example: DatabaseSchema) -> None:
    reviews, categories = example.table("output_reviews"), example.table("program_categories")
    assert reviews is not None
    assert categories is not None
    assert Key(columns=("run_id", "position"), table="run_outputs", target=("run_id", "position")) in (
        reviews.foreign_keys
    )
    assert categories.foreign_keys == (Key(columns=("parent_id",), table="program_categories", target=("id",)),)


def test_metadata__alone_has_tables_without_classes_and_keys_may_be_circles() -> None:
    metadata = MetaData()
    Table("a", metadata, Column("id", Integer, primary_key=True), Column("b_id", ForeignKey("b.id")))
    Table("b", metadata, Column("id", Integer, primary_key=True), Column("a_id", ForeignKey("a.id")))
    Table("c", metadata, Column("x", ForeignKey("elsewhere.z.id")), schema="s")
    schema = from_models(metadata, name="circle")
    assert [(table.full_name, table.model) for table in schema.tables] == [("a", None), ("b", None), ("s.c", None)]
    assert schema.tables[0].foreign_keys[0].table == "b"
    assert schema.tables[2].foreign_keys == (Key(columns=("x",), table="elsewhere.z", target=("id",)),)


def test_models__inherited_tables_stand_for_the_class_that_brought_them() -> None:
    class Base(DeclarativeBase):
        pass

    class Animal(Base):
        __tablename__ = "animals"
        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str]
        __mapper_args__ = {"polymorphic_on": "kind"}  # noqa: RUF012

    class AardvarkInSameTable(Animal):
        __mapper_args__ = {"polymorphic_identity": "aardvark"}  # noqa: RUF012

    assert [table.model for table in from_models(Base).tables] == ["Animal"]


def test_unique__of_indexes_only_where_they_are_over_whole_columns() -> None:
    metadata = MetaData()
    result = Table("a", metadata, Column("x", String), Column("y", String), Column("z", String))
    Index("whole", result.c.x, unique=True)
    Index("partial", result.c.y, unique=True, postgresql_where=result.c.z.is_(None))
    assert from_models(metadata).tables[0].unique == (("x",),)


@pytest.mark.parametrize(
    ("check", "values"),
    [
        ("x IN ('a', 'b''c')", ("a", "b'c")),
        ("((x)::text = ANY ((ARRAY['a'::character varying, 'b or c'::character varying])::text[]))", ("a", "b or c")),
        ("x IN ('a') OR y", ()),
        ("x <> 'a'", ()),
        ("length(x) > 3", ()),
    ],
)
def test_checks__that_list_values_are_enums(check: str, values: tuple[str, ...]) -> None:
    metadata = MetaData()
    Table("a", metadata, Column("x", String), CheckConstraint(check))
    assert from_models(metadata).tables[0].columns[0].enum == values


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("programs", "no import path"),
        ("no.such.module:Base", "cannot be imported"),
        ("programs:NoSuchBase", "cannot be imported"),
        ("json:loads", "neither a declarative base"),
        (MetaData(), "has no tables"),
    ],
)
def test_models__that_are_none_are_refused(example: DatabaseSchema, where: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        from_models(where)


def test_models__with_an_unknown_dialect_are_refused(example: DatabaseSchema) -> None:
    with pytest.raises(RequestError, match="no dialect"):
        from_models("programs:Base", dialect="nosql")

"""SQLAlchemy models as a source: a declarative base, a MetaData, or the import path of either."""

import importlib
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import RequestError, first_line
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, Relationship
from kosmos_rag.text2sql.catalog.sources.tables import table_record

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table
    from sqlalchemy.orm import Mapper


def from_models(where: Any, *, name: str | None = None, dialect: str = "postgresql") -> DatabaseSchema:
    """Read models: a declarative base, a MetaData, or `package.module:Base`.

    An import path runs the code that it names: take it from operators only. `dialect` says how types are written.
    Raises RequestError where there is no such module, name, table or dialect, and where the models do not fit together.
    """
    base = _imported(where) if isinstance(where, str) else where
    metadata = _metadata(base, where)
    if not metadata.tables:
        raise RequestError(f"{_shown(where)} has no tables: import the modules of its models there, or before")
    models = _models(base)
    written = _dialect(dialect)
    return DatabaseSchema(
        name=name or (where.partition(":")[0].partition(".")[0] if isinstance(where, str) else "database"),
        dialect=dialect,
        tables=tuple(table_record(table, written, **models.get(table, {})) for table in metadata.tables.values()),
    )


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise RequestError(f"{_shown(path)} is no import path: write package.module:Base")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module is anybody's code
        raise RequestError(
            f"{_shown(path)} cannot be imported ({one_line(first_line(error))}); correct the path, or the module: "
            "its package must be installed, or its folder be in PYTHONPATH"
        ) from error
    return found


def _metadata(base: Any, where: Any) -> "MetaData":
    from sqlalchemy import MetaData

    metadata = getattr(base, "metadata", base)
    if not isinstance(metadata, MetaData):
        raise RequestError(f"{_shown(where)} is neither a declarative base nor a MetaData: name one of these")
    return metadata


def _models(base: Any) -> dict["Table", dict[str, Any]]:
    """Return what is known of the class of each table."""
    from sqlalchemy.exc import SQLAlchemyError

    registry = getattr(base, "registry", None)
    if registry is None:
        return {}
    mappers = sorted(registry.mappers, key=lambda mapper: (mapper.class_.__module__, mapper.class_.__qualname__))
    try:
        # A class that inherits its table describes only a part of it: the one that brought the table stands for it.
        own = (m for m in mappers if m.inherits is None or m.local_table is not m.inherits.local_table)
        return {mapper.local_table: _model(mapper) for mapper in own}
    except SQLAlchemyError as error:
        raise RequestError(f"the models do not fit together: {one_line(first_line(error))}; correct them") from error


def _model(mapper: "Mapper[Any]") -> dict[str, Any]:
    related = [(item.key, getattr(item.mapper.local_table, "fullname", None)) for item in mapper.relationships]
    module = mapper.class_.__module__
    return {
        "model": mapper.class_.__name__,
        "module": module,
        "source_file": f"{module.replace('.', '/')}.py",
        "relationships": tuple(Relationship(name=key, table=table) for key, table in sorted(related) if table),
    }


def _dialect(name: str) -> Any:
    from sqlalchemy.dialects import registry
    from sqlalchemy.exc import NoSuchModuleError

    try:
        return registry.load(name)()
    except NoSuchModuleError as error:
        raise RequestError(f"{_shown(name)} is no dialect of SQLAlchemy: use postgresql or sqlite") from error


def _shown(where: Any) -> str:
    return one_line(where if isinstance(where, str) else repr(where))

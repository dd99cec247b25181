"""SQLAlchemy models as a schema source.

They are a declarative base, a MetaData, or an import path of either.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import RequestError, first_line
from kosmos_rag.text2sql.catalog.model import DatabaseSchema, Relationship
from kosmos_rag.text2sql.catalog.sources.tables import table_record

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table
    from sqlalchemy.orm import Mapper


def from_models(models: Any, *, name: str | None = None, dialect: str = "postgresql") -> DatabaseSchema:
    """Read a schema from SQLAlchemy models.

    An import path runs the code that it names: take it from operators only.

    Args:
        models: A declarative base, a MetaData, or `package.module:Base`.
        name: Name of the schema; that of the outermost package by default.
        dialect: SQLAlchemy dialect in which types are written.

    Raises:
        RequestError: The module, name, table or dialect does not exist, or the models are inconsistent.
    """
    base = _import_object(models) if isinstance(models, str) else models
    metadata = _metadata(base, models)
    if not metadata.tables:
        raise RequestError(f"{_describe(models)} has no tables: import the modules of its models there, or before")
    class_info = _models(base)
    type_dialect = _dialect(dialect)
    return DatabaseSchema(
        name=name or (models.partition(":")[0].partition(".")[0] if isinstance(models, str) else "database"),
        dialect=dialect,
        tables=tuple(
            table_record(table, type_dialect, **class_info.get(table, {})) for table in metadata.tables.values()
        ),
    )


def _import_object(path: str) -> Any:
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise RequestError(f"{_describe(path)} is no import path: write package.module:Base")
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except Exception as error:  # the module is anybody's code
        raise RequestError(
            f"{_describe(path)} cannot be imported ({one_line(first_line(error))}); correct the path, or the module: "
            "its package must be installed, or its folder be in PYTHONPATH"
        ) from error
    return target


def _metadata(base: Any, models: Any) -> "MetaData":
    from sqlalchemy import MetaData

    metadata = getattr(base, "metadata", base)
    if not isinstance(metadata, MetaData):
        raise RequestError(f"{_describe(models)} is neither a declarative base nor a MetaData: name one of these")
    return metadata


def _models(base: Any) -> dict["Table", dict[str, Any]]:
    """Return the class information of each mapped table."""
    from sqlalchemy.exc import SQLAlchemyError

    registry = getattr(base, "registry", None)
    if registry is None:
        return {}
    mappers = sorted(registry.mappers, key=lambda mapper: (mapper.class_.__module__, mapper.class_.__qualname__))
    try:
        # A class that inherits its table describes only a part of it: the class that defines the table is taken.
        mapped = (m for m in mappers if m.inherits is None or m.local_table is not m.inherits.local_table)
        return {mapper.local_table: _model(mapper) for mapper in mapped}
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
        raise RequestError(f"{_describe(name)} is no dialect of SQLAlchemy: use postgresql or sqlite") from error


def _describe(models: Any) -> str:
    return one_line(models if isinstance(models, str) else repr(models))

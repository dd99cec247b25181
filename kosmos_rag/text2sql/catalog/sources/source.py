"""A schema source as a record that a job can contain.

It names an environment variable, never a password.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources.database import SampleRules, from_database
from kosmos_rag.text2sql.catalog.sources.dbt import from_dbt
from kosmos_rag.text2sql.catalog.sources.models import from_models
from kosmos_rag.text2sql.catalog.sources.schema_json import from_json
from kosmos_rag.text2sql.recipes import read_recipes
from kosmos_rag.text2sql.records import Recipe

SourceKind = Literal["json", "database", "models", "dbt"]
_LISTS = ("namespaces", "samples", "not_sampled")


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaSource:
    """A source of a schema, read now or later by a worker."""

    kind: SourceKind
    location: str
    """Path of a file; for `database` the variable of the environment that holds the URL; for `models` their import
    path, whose module is run."""
    namespaces: tuple[str, ...] = ()
    """Namespaces of a database; none is the default one."""
    recipes: str | None = None
    """Path of a YAML file of recipes; None keeps those of the collection."""
    samples: tuple[str, ...] = ()
    """Full names of the tables of a database of which sample values are read, `*` for all; none is none."""
    not_sampled: tuple[str, ...] = ()
    """Regular expressions of `table.column` that are never sampled."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Build a source from the values of `as_json`.

        Raises:
            RequestError: The values are not those of a source.
        """
        try:
            source = cls(**{**values, **{key: tuple(values.get(key, ())) for key in _LISTS}})
        except TypeError as error:
            raise RequestError(f"the source of a schema cannot be used ({error}); put it in again") from None
        if source.kind not in get_args(SourceKind):
            raise RequestError(f"a schema of kind {source.kind!r}: take {', '.join(get_args(SourceKind))}")
        return source

    def as_json(self) -> dict[str, Any]:
        """Return the source as JSON values."""
        return {key: list(value) if key in _LISTS else value for key, value in asdict(self).items()}

    @property
    def identity(self) -> dict[str, Any]:
        """Key of the source; recipes and samples are not part of it."""
        return {"kind": self.kind, "location": self.location, "namespaces": list(self.namespaces), "recipes": None}

    def read(self) -> DatabaseSchema:
        """Read the schema.

        Also raises what the reader of the source's kind raises.

        Raises:
            ConfigError: The environment variable is not set.
        """
        if self.kind == "json":
            return from_json(Path(self.location))
        if self.kind == "dbt":
            manifest = Path(self.location)
            catalog = manifest.with_name("catalog.json")
            return from_dbt(manifest, catalog if catalog.is_file() else None)
        if self.kind == "models":
            return from_models(self.location)
        if not (url := os.environ.get(self.location)):
            raise ConfigError(f"{self.location} is not set: put the URL of the database into that variable")
        rules = SampleRules.from_options(self.samples, self.not_sampled)
        return from_database(url, schemas=self.namespaces or (None,), samples=rules)

    def read_recipes(self, schema: DatabaseSchema) -> list[Recipe] | None:
        """Return the recipes of the file; None if none is named.

        Raises:
            ConfigError: The file cannot be read.
            SchemaInvalid: A recipe is invalid.
        """
        return read_recipes(Path(self.recipes), schema) if self.recipes else None

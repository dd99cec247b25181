"""kosmos-rag schema: what a question needs of the schema of a database."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos_rag.apps.cli.common import (
    EveryOption,
    PrincipalOption,
    console,
    print_json,
    reader,
)
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.apps.cli.search import QuestionArgument
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.text2sql.catalog.model import DatabaseSchema
    from kosmos_rag.text2sql.catalog.sources import SchemaSource
    from kosmos_rag.text2sql.catalog.sources.source import SourceKind
    from kosmos_rag.text2sql.linking.grounder import BuildReport
    from kosmos_rag.text2sql.linking.result import GroundingResult

app = typer.Typer(help="Schemas of databases: the tables, columns and joins that a question needs.")
synonyms_app = typer.Typer(help="Words that people use for tables and columns.")
app.add_typer(synonyms_app, name="synonyms")

RecipesOption = Annotated[
    Path | None,
    typer.Option(
        "--recipes",
        help="YAML file of recipes of your own, in place of those that stand there; without it these stay, as far as "
        "the schema still has their tables, columns and keys.",
    ),
]
CollectionOption = Annotated[
    str, typer.Option("--collection", "-C", metavar="NAME", help="Collection of the schemas; goes by a preset.")
]
PresetOption = Annotated[str, typer.Option("--preset", "-p", help="Preset of a collection that is made for this.")]
_ONE_SOURCE = "name one source of the schema: --file, --url, --url-env, --models or --dbt"
_EVALUATED = "schema-eval"
"""A collection of its own: the schemas of an evaluation take the place of all that is there."""
MaxTokensOption = Annotated[int, typer.Option("--max-tokens", help="Budget of the prompt.")]
SynonymsOption = Annotated[Path | None, typer.Option("--synonyms", help="YAML file of synonyms of your own.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """Where a schema comes from: one of these."""

    file: Annotated[Path | None, typer.Option("--file", help="Schema as JSON, as `schema export` writes it.")] = None
    url: Annotated[str | None, typer.Option("--url", help="Read the schema of this database.")] = None
    url_env: Annotated[
        str | None, typer.Option("--url-env", metavar="NAME", help="The same; the variable NAME holds the URL.")
    ] = None
    models: Annotated[
        str | None, typer.Option("--models", metavar="MODULE:NAME", help="SQLAlchemy models; the module is run.")
    ] = None
    dbt: Annotated[
        Path | None, typer.Option("--dbt", help="manifest.json of dbt, with catalog.json beside it or without.")
    ] = None
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", help="Namespace of the database to read; may be repeated.")
    ] = None
    samples: Annotated[
        list[str] | None,
        typer.Option(
            "--samples",
            metavar="TABLE",
            help="Read sample values of this table's columns, * for all tables; may be repeated. Without it none is "
            "read, and never any of a column whose name speaks of people or secrets.",
        ),
    ] = None
    no_samples: Annotated[
        list[str] | None,
        typer.Option("--no-samples", metavar="PATTERN", help="Leave out columns: expression of table.column."),
    ] = None

    def source(self) -> "SchemaSource | None":
        """Return the source that is named; None where it is a URL or none. Raises RequestError where several are."""
        from kosmos_rag.text2sql.catalog.sources import SchemaSource

        given: dict[SourceKind, str | None] = {
            "json": str(self.file.absolute()) if self.file else None,
            "database": self.url_env,
            "models": self.models,
            "dbt": str(self.dbt.absolute()) if self.dbt else None,
        }
        named = [(kind, place) for kind, place in given.items() if place is not None]
        if len(named) > 1:
            raise RequestError(_ONE_SOURCE)
        of_database = {
            "--namespace": tuple(self.namespace or ()),
            "--samples": tuple(self.samples or ()),
            "--no-samples": tuple(self.no_samples or ()),
        }
        if any(kind != "database" for kind, _ in named) and (
            told := [name for name, value in of_database.items() if value]
        ):
            raise RequestError(f"{', '.join(told)} is for databases: give --url or --url-env, or leave it out")
        namespaces, samples, not_sampled = of_database.values()
        return next(
            (
                SchemaSource(kind=kind, location=place, namespaces=namespaces, samples=samples, not_sampled=not_sampled)
                for kind, place in named
            ),
            None,
        )

    def read(self) -> "DatabaseSchema":
        """Read the schema. Raises RequestError where not one source is named."""
        from kosmos_rag.text2sql.catalog.sources import SampleRules, from_database

        source = self.source()
        if source is not None and self.url is None:
            return source.read()
        if self.url is not None and source is None:
            rules = SampleRules.of(self.samples or (), self.no_samples or ())
            return from_database(self.url, schemas=self.namespace or (None,), samples=rules)
        raise RequestError(_ONE_SOURCE)


@app.command("build")
@command
def build(
    given: SourceOptions,
    recipes: RecipesOption = None,
    collection: CollectionOption = "schema",
    preset: PresetOption = "schema",
    *,
    common: TenantOptions,
) -> None:
    """Make a collection of a schema: a document for each table, column and recipe."""
    schema = given.read()
    with common.open_engine() as engine:
        if collection not in _with_preset(engine, common.tenant):
            engine.tenant(common.tenant).collections.create(collection, preset=preset)
        done = _write(engine, common.tenant, collection, schema, recipes)
    _report(done, as_json=common.as_json)


def _with_preset(engine: "Engine", tenant: str) -> set[str]:
    return {info.name for info in engine.tenant(tenant).collections.infos() if info.preset}


def _write(
    engine: "Engine", tenant: str, collection: str, schema: "DatabaseSchema", recipes: Path | None
) -> "BuildReport":
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
    from kosmos_rag.text2sql.recipes import read_recipes

    own = read_recipes(recipes, schema) if recipes else None
    return SchemaGrounding(engine.tenant(tenant, collection=collection)).build(schema, own)


def _report(done: "BuildReport", *, as_json: bool) -> None:
    written = {"new": done.ingest.new, "changed": done.ingest.changed, "removed": done.removed}
    if as_json:
        failed = [failure.source for failure in done.ingest.failed]
        print_json({"database": done.database, "fingerprint": done.fingerprint, **written, "failed": failed})
    elif not any(written.values()):
        console().print(f"{done.database} has not changed")
    else:
        console().print(f"{done.database}: {', '.join(f'{count} {name}' for name, count in written.items())}")
    if done.ingest.failed:
        raise typer.Exit(1)


@app.command("ask")
@command
def ask(
    question: QuestionArgument,
    k: Annotated[int, typer.Option("--limit", "-k", help="Columns to name.")] = 10,
    tables: Annotated[int, typer.Option("--tables", help="Tables to find.")] = 5,
    database: Annotated[str | None, typer.Option("--database", help="Only this database; else all.")] = None,
    max_tokens: MaxTokensOption = 700,
    synonyms: SynonymsOption = None,
    collection: CollectionOption = "schema",
    principal: PrincipalOption = None,
    *,
    common: TenantOptions,
) -> None:
    """Show the tables, columns and joins that a question needs, as a block for a prompt."""
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding

    with common.open_engine() as engine:
        grounding = SchemaGrounding(reader(engine, common.tenant, collection, principal), synonyms=synonyms)
        result = grounding.ask(question, k, database=database, tables=tables, max_tokens=max_tokens)
    if common.as_json:
        print_json(result.as_json())
    else:
        _print(result)


def _print(result: "GroundingResult") -> None:
    out = console()
    if not result.tables:
        out.print("No schema is known here: run kosmos-rag schema build")
        return
    out.print(result.prompt)
    out.print()
    for ref in result.schema_refs:
        parts = ", ".join(f"{name} {value:.2f}" for name, value in ref.parts.items())
        out.print(f"{ref.score:.2f}  {ref.name}  ({parts})", style="dim")
    out.print(f"{result.tokens} tokens, database {result.database}", style="dim")


@app.command("sync")
@command
def sync(
    given: SourceOptions,
    recipes: RecipesOption = None,
    every: EveryOption = None,
    collection: CollectionOption = "schema",
    *,
    common: TenantOptions,
) -> None:
    """Bring a collection up to its source; where nothing has changed, nothing is written."""
    if every is not None:
        from kosmos_rag.text2sql.jobs import enqueue_sync

        source = given.source()
        if source is None or given.url is not None:
            raise RequestError("--every keeps the source in the queue: give --file, --url-env, --models or --dbt")
        with common.open_engine() as engine:
            _check_built(engine, common.tenant, collection)
            own = replace(source, recipes=str(recipes.absolute()) if recipes else None)
            jobs = engine.tenant(common.tenant, collection=collection).jobs
            _tell_job(enqueue_sync(jobs, own, every=timedelta(seconds=every)), as_json=common.as_json)
        return
    schema = given.read()
    with common.open_engine() as engine:
        _check_built(engine, common.tenant, collection)
        done = _write(engine, common.tenant, collection, schema, recipes)
    _report(done, as_json=common.as_json)


def _check_built(engine: "Engine", tenant: str, collection: str) -> None:
    if collection not in _with_preset(engine, tenant):
        raise RequestError(f"there is no collection {collection} of schemas in tenant {tenant}; build it first")


def _tell_job(job: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"jobs": [job]})
    else:
        console().print(f"job {job}: kosmos-rag worker brings the collection up to it again and again")


@app.command("export")
@command
def export(
    given: SourceOptions,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; else standard output.")] = None,
) -> None:
    """Write a schema as JSON, to be looked through, edited and built from."""
    from kosmos_rag.text2sql.catalog.sources import to_json

    text = to_json(given.read())
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


@app.command("eval")
@command
def evaluate(
    tables: Annotated[Path, typer.Option("--tables", help="Schemas in the layout of Spider's tables.json.")],
    questions: Annotated[Path, typer.Option("--questions", help="Questions with db_id, question and query.")],
    max_tokens: MaxTokensOption = 700,
    *,
    common: TenantOptions,
) -> None:
    """Measure how well tables, columns and joins are found that the SQL of questions uses.

    The schemas take the place of all that is in the collection schema-eval.
    """
    from kosmos_rag.text2sql.catalog.sources import from_spider
    from kosmos_rag.text2sql.linking.evaluation import evaluate as measure
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
    from kosmos_rag.text2sql.sql.gold import read_questions

    schemas = from_spider(tables)
    gold = read_questions(questions, schemas)
    with common.open_engine() as engine:
        engine.tenant(common.tenant).collections.create(_EVALUATED, preset="schema")
        grounding = SchemaGrounding(engine.tenant(common.tenant, collection=_EVALUATED))
        grounding.build_all(schemas)
        figures = measure(grounding, gold, max_tokens=max_tokens).as_json()
    if common.as_json:
        print_json(figures)
    else:
        for name, value in figures.items():
            console().print(f"{name:<16} {value:.3f}")


@synonyms_app.command("suggest")
def suggest(
    log: Annotated[Path, typer.Argument(help="JSON Lines: question, and the columns chosen for it.", exists=True)],
    minimum: Annotated[int, typer.Option("--minimum", help="Questions that must agree.")] = 3,
) -> None:
    """Propose synonyms from questions and what was chosen for them, to be looked through and kept by hand."""
    import yaml

    from kosmos_rag.text2sql.linking.synonym_mining import read_log, suggest_synonyms

    entries = [{"from": [found.word], "to": [found.name]} for found in suggest_synonyms(read_log(log), minimum=minimum)]
    typer.echo(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)

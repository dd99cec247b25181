"""kosmos-rag schema: schemas of databases, and schema grounding."""

import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from kosmos_rag.apps.cli.common import (
    EveryOption,
    PrincipalOption,
    QuestionArgument,
    console,
    open_reader,
    print_json,
    warm_up,
)
from kosmos_rag.apps.cli.help import HelpGroup
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.text2sql.catalog.model import DatabaseSchema
    from kosmos_rag.text2sql.catalog.sources import SchemaSource
    from kosmos_rag.text2sql.catalog.sources.source import SourceKind
    from kosmos_rag.text2sql.linking.grounder import BuildReport
    from kosmos_rag.text2sql.linking.result import GroundingResult
    from kosmos_rag.text2sql.records import QueryResult, SqlAnswer

app = typer.Typer(help="Schemas of databases: the tables, columns and joins that a question needs.")
synonyms_app = typer.Typer(help="Synonyms of tables and columns.")
examples_app = typer.Typer(help="Accepted queries, which help with similar questions.")
app.add_typer(synonyms_app, name="synonyms", cls=HelpGroup)
app.add_typer(examples_app, name="examples", cls=HelpGroup)

RecipesOption = Annotated[
    Path | None,
    typer.Option(
        "--recipes",
        help="YAML file of recipes that replaces the stored ones; without it these stay if the schema still has their "
        "tables, columns and keys.",
    ),
]
CollectionOption = Annotated[
    str, typer.Option("--collection", "-C", metavar="NAME", help="Collection of the schemas; it needs a preset.")
]
PresetOption = Annotated[str, typer.Option("--preset", "-p", help="Preset of a new collection.")]
_ONE_SOURCE = "name one source of the schema: --file, --url, --url-env, --models or --dbt"
_EVALUATION_COLLECTION = "schema-eval"
"""A separate collection: an evaluation replaces all its schemas."""
MaxTokensOption = Annotated[int, typer.Option("--max-tokens", help="Token budget of the prompt.")]
SynonymsOption = Annotated[Path | None, typer.Option("--synonyms", help="YAML file of synonyms.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """The source of a schema; exactly one of the first five options."""

    file: Annotated[Path | None, typer.Option("--file", help="Schema as JSON, as `schema export` writes it.")] = None
    url: Annotated[str | None, typer.Option("--url", help="Read the schema of this database.")] = None
    url_env: Annotated[
        str | None,
        typer.Option("--url-env", metavar="NAME", help="As --url, with the URL in the environment variable NAME."),
    ] = None
    models: Annotated[
        str | None, typer.Option("--models", metavar="MODULE:NAME", help="SQLAlchemy models; imports the module.")
    ] = None
    dbt: Annotated[
        Path | None, typer.Option("--dbt", help="manifest.json of dbt; catalog.json in the same folder is read too.")
    ] = None
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", help="Namespace of the database to read; may be repeated.")
    ] = None
    samples: Annotated[
        list[str] | None,
        typer.Option(
            "--samples",
            metavar="TABLE[.COLUMN]",
            help="Read sample values of this table's columns, * for all tables, or up to 500 values of a named column. "
            "May be repeated. By default none are read; columns whose names suggest persons or secrets are never read.",
        ),
    ] = None
    no_samples: Annotated[
        list[str] | None,
        typer.Option(
            "--no-samples", metavar="PATTERN", help="Regular expression of table.column to exclude from --samples."
        ),
    ] = None

    def source(self) -> "SchemaSource | None":
        """Return the source; None for --url or without one.

        Raises RequestError for several.
        """
        from kosmos_rag.text2sql.catalog.sources import SchemaSource

        options: dict[SourceKind, str | None] = {
            "json": str(self.file.absolute()) if self.file else None,
            "database": self.url_env,
            "models": self.models,
            "dbt": str(self.dbt.absolute()) if self.dbt else None,
        }
        sources = [(kind, location) for kind, location in options.items() if location is not None]
        if len(sources) > 1:
            raise RequestError(_ONE_SOURCE)
        database_options = {
            "--namespace": tuple(self.namespace or ()),
            "--samples": tuple(self.samples or ()),
            "--no-samples": tuple(self.no_samples or ()),
        }
        if any(kind != "database" for kind, _ in sources) and (
            misplaced := [name for name, value in database_options.items() if value]
        ):
            raise RequestError(f"{', '.join(misplaced)} needs a database: use --url or --url-env, or omit it")
        namespaces, samples, not_sampled = database_options.values()
        return next(
            (
                SchemaSource(
                    kind=kind, location=location, namespaces=namespaces, samples=samples, not_sampled=not_sampled
                )
                for kind, location in sources
            ),
            None,
        )

    def read(self) -> "DatabaseSchema":
        """Read the schema. Raises RequestError unless exactly one source is named."""
        from kosmos_rag.text2sql.catalog.sources import SampleRules, from_database

        source = self.source()
        if source is not None and self.url is None:
            return source.read()
        if self.url is not None and source is None:
            rules = SampleRules.from_options(self.samples or (), self.no_samples or ())
            return from_database(self.url, schemas=self.namespace or (None,), samples=rules)
        raise RequestError(_ONE_SOURCE)


@app.command("build")
@command
def build(
    options: SourceOptions,
    recipes: RecipesOption = None,
    collection: CollectionOption = "schema",
    preset: PresetOption = "schema",
    *,
    common: TenantOptions,
) -> None:
    """Build a collection of a schema.

    Each table, column and recipe becomes a document.
    """
    schema = options.read()
    with common.open_engine() as engine:
        if collection not in _list_collections_with_preset(engine, common.tenant):
            engine.tenant(common.tenant).collections.create(collection, preset=preset)
        report = _write(engine, common.tenant, collection, schema, recipes)
    _print_report(report, as_json=common.as_json)


def _list_collections_with_preset(engine: "Engine", tenant: str) -> set[str]:
    return {info.name for info in engine.tenant(tenant).collections.infos() if info.preset}


def _write(
    engine: "Engine", tenant: str, collection: str, schema: "DatabaseSchema", recipes: Path | None
) -> "BuildReport":
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
    from kosmos_rag.text2sql.recipes import read_recipes

    own_recipes = read_recipes(recipes, schema) if recipes else None
    return SchemaGrounding(engine.tenant(tenant, collection=collection)).build(schema, own_recipes)


def _print_report(report: "BuildReport", *, as_json: bool) -> None:
    changes = {"new": report.ingest.new, "changed": report.ingest.changed, "removed": report.removed}
    if as_json:
        failed = [failure.source for failure in report.ingest.failed]
        print_json({"database": report.database, "fingerprint": report.fingerprint, **changes, "failed": failed})
    elif not any(changes.values()):
        console().print(f"{report.database} has not changed")
    else:
        console().print(f"{report.database}: {', '.join(f'{count} {name}' for name, count in changes.items())}")
    if report.ingest.failed:
        raise typer.Exit(1)


@app.command("ground")
@command
def ground(
    question: QuestionArgument,
    k: Annotated[int, typer.Option("--limit", "-k", help="Number of columns.")] = 10,
    tables: Annotated[int, typer.Option("--tables", help="Number of tables.")] = 5,
    database: Annotated[str | None, typer.Option("--database", help="Only this database; default: all.")] = None,
    max_tokens: MaxTokensOption = 700,
    synonyms: SynonymsOption = None,
    collection: CollectionOption = "schema",
    principal: PrincipalOption = None,
    *,
    common: TenantOptions,
) -> None:
    """Show the tables, columns and joins that a question needs.

    The output is text for a prompt.
    """
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding

    with common.open_engine() as engine:
        warm_up(engine)
        grounding = SchemaGrounding(open_reader(engine, common.tenant, collection, principal), synonyms=synonyms)
        result = grounding.ask(question, k, database=database, tables=tables, max_tokens=max_tokens)
    if common.as_json:
        print_json(result.to_dict())
    else:
        _print_grounding(result)


def _print_grounding(result: "GroundingResult") -> None:
    out = console()
    if not result.tables:
        for warning in result.warnings:
            out.print(warning)
        return
    out.print(result.prompt)
    out.print()
    for ref in result.schema_refs:
        parts = ", ".join(f"{name} {value:.2f}" for name, value in ref.parts.items())
        out.print(f"{ref.score:.2f}  {ref.name}  ({parts})", style="dim")
    out.print(f"{result.tokens} tokens, database {result.database}", style="dim")


@app.command("query")
@command
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT; values as :name.")],
    database: Annotated[str, typer.Option("--database", help="Name of the database, as its schema has it.")],
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", metavar="NAME=VALUE", help="A value as text; may be repeated.")
    ] = None,
    collection: CollectionOption = "schema",
    principal: PrincipalOption = None,
    *,
    common: TenantOptions,
) -> None:
    """Run one SELECT on a database that text2sql.databases enables."""
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
    from kosmos_rag.text2sql.sql.runner import QueryRunner

    with common.open_engine() as engine:
        reader = open_reader(engine, common.tenant, collection, principal)
        runner = QueryRunner(reader, collection)
        runner.require(database)
        schema = SchemaGrounding(reader).schema(database)
        result = runner.run(schema, sql, dict(map(_parse_parameter, parameter or ())))
    if common.as_json:
        print_json(result.to_dict())
    else:
        _print_rows(result)


def _parse_parameter(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise RequestError(f"--parameter is {text[:80]!r}; write NAME=VALUE")
    return name, value


def _print_rows(result: "QueryResult") -> None:
    from rich.table import Table

    table = Table(*map(escape, result.columns))
    for row in result.to_dict()["rows"]:
        table.add_row(*("" if value is None else escape(str(value)) for value in row))
    out = console()
    out.print(table)
    if result.truncated:
        out.print("there are more rows; see text2sql.max_rows and text2sql.max_bytes", style="dim")


@app.command("ask")
@command
def ask(
    question: QuestionArgument,
    database: Annotated[
        str | None, typer.Option("--database", help="Only this database; default: the likeliest.")
    ] = None,
    synonyms: SynonymsOption = None,
    collection: CollectionOption = "schema",
    principal: PrincipalOption = None,
    *,
    common: TenantOptions,
) -> None:
    """Answer a question with rows; a language model writes the SQL.

    The database has to be enabled by text2sql.databases. `schema ground` shows the prompt.
    """
    from kosmos_rag.text2sql.answer import answer_question
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
    from kosmos_rag.text2sql.sql.runner import QueryRunner

    with common.open_engine() as engine:
        reader = open_reader(engine, common.tenant, collection, principal)
        warm_up(engine)
        grounding = SchemaGrounding(reader, synonyms=synonyms)
        answer = answer_question(reader, grounding, QueryRunner(reader, collection), question, database=database)
    if common.as_json:
        print_json(answer.to_dict())
    else:
        _print_answer(answer)
    if answer.result is None:
        raise typer.Exit(1)


def _print_answer(answer: "SqlAnswer") -> None:
    out = console()
    for attempt in answer.attempts:
        out.print(escape(attempt.sql))
        if attempt.error:
            out.print(escape(f"refused: {attempt.error}"), style="dim")
    if answer.result:
        _print_rows(answer.result)
        out.print(escape(f"from {', '.join(citation.id for citation in answer.citations)}"), style="dim")


@app.command("sync")
@command
def sync(
    options: SourceOptions,
    recipes: RecipesOption = None,
    every: EveryOption = None,
    collection: CollectionOption = "schema",
    *,
    common: TenantOptions,
) -> None:
    """Update a collection from its source; unchanged documents are not written."""
    if every is not None:
        from kosmos_rag.text2sql.jobs import enqueue_sync

        source = options.source()
        if source is None or options.url is not None:
            raise RequestError("--every stores the source in the queue: use --file, --url-env, --models or --dbt")
        with common.open_engine() as engine:
            _check_built(engine, common.tenant, collection)
            source_with_recipes = replace(source, recipes=str(recipes.absolute()) if recipes else None)
            jobs = engine.tenant(common.tenant, collection=collection).jobs
            _print_job(enqueue_sync(jobs, source_with_recipes, every=timedelta(seconds=every)), as_json=common.as_json)
        return
    schema = options.read()
    with common.open_engine() as engine:
        _check_built(engine, common.tenant, collection)
        report = _write(engine, common.tenant, collection, schema, recipes)
    _print_report(report, as_json=common.as_json)


def _check_built(engine: "Engine", tenant: str, collection: str) -> None:
    if collection not in _list_collections_with_preset(engine, tenant):
        raise RequestError(f"there is no collection {collection} of schemas in tenant {tenant}; build it first")


def _print_job(job: uuid.UUID, *, as_json: bool) -> None:
    if as_json:
        print_json({"jobs": [job]})
    else:
        console().print(f"job {job}: kosmos-rag worker updates the collection at this interval")


@app.command("export")
@command
def export(
    options: SourceOptions,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; default: standard output.")
    ] = None,
) -> None:
    """Write a schema as JSON, to review, edit and build from."""
    from kosmos_rag.text2sql.catalog.sources import to_json

    text = to_json(options.read())
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
    """Measure the selection of tables, columns and joins against gold SQL.

    Replaces all schemas in the collection schema-eval.
    """
    from kosmos_rag.text2sql.catalog.sources import from_spider
    from kosmos_rag.text2sql.linking.evaluation import evaluate as measure
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
    from kosmos_rag.text2sql.sql.gold import read_questions

    schemas = from_spider(tables)
    gold = read_questions(questions, schemas)
    with common.open_engine() as engine:
        engine.tenant(common.tenant).collections.create(_EVALUATION_COLLECTION, preset="schema")
        grounding = SchemaGrounding(engine.tenant(common.tenant, collection=_EVALUATION_COLLECTION))
        grounding.build_all(schemas)
        metrics = measure(grounding, gold, max_tokens=max_tokens).as_json()
    if common.as_json:
        print_json(metrics)
    else:
        for name, value in metrics.items():
            console().print(f"{name:<16} {value:.3f}")


@examples_app.command("add")
@command
def add_example(
    question: QuestionArgument,
    sql: Annotated[str, typer.Option("--sql", metavar="SQL", help="The accepted SELECT.")],
    database: Annotated[str, typer.Option("--database", help="Name of the database, as its schema has it.")],
    acl: Annotated[
        list[str] | None, typer.Option("--acl", metavar="PRINCIPAL", help="Who may read it; default: everyone.")
    ] = None,
    collection: CollectionOption = "schema",
    *,
    common: TenantOptions,
) -> None:
    """Accept a query for a question; it replaces the question's earlier one."""
    from kosmos_rag.core.types import EVERYONE
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding

    with common.open_engine() as engine:
        _check_built(engine, common.tenant, collection)
        grounding = SchemaGrounding(engine.tenant(common.tenant, collection=collection))
        example = grounding.add_example(question, sql, database=database, acl=tuple(acl or (EVERYONE,)))
    if common.as_json:
        print_json(example.to_dict())
    else:
        console().print(escape(f"accepted as {example.id}"))


@examples_app.command("list")
@command
def list_examples(
    collection: CollectionOption = "schema", principal: PrincipalOption = None, *, common: TenantOptions
) -> None:
    """List the accepted queries that fit the schemas."""
    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding

    with common.open_engine() as engine:
        examples = SchemaGrounding(open_reader(engine, common.tenant, collection, principal)).examples()
    if common.as_json:
        print_json({"examples": [example.to_dict() for example in examples]})
        return
    out = console()
    for example in examples:
        out.print(escape(f"{example.question}\n  {example.sql}"))
        out.print(escape(f"  {example.id}"), style="dim")
    if not examples:
        out.print("no query was accepted; kosmos-rag schema examples add QUESTION --sql SQL --database NAME")


@examples_app.command("delete")
@command
def delete_example(
    example: Annotated[str, typer.Argument(metavar="ID", help="Id of the example, from `schema examples list`.")],
    collection: CollectionOption = "schema",
    *,
    common: TenantOptions,
) -> None:
    """Delete an accepted query."""
    from kosmos_rag.text2sql.query_examples import KIND

    with common.open_engine() as engine:
        is_example = example.startswith(f"{KIND}:")
        deleted = engine.tenant(common.tenant, collection=collection).delete(example) if is_example else 0
    if not deleted:
        raise RequestError(f"there is no accepted query {example!r}; see kosmos-rag schema examples list")
    if common.as_json:
        print_json({"deleted": deleted})
    else:
        console().print("deleted")


@synonyms_app.command("suggest")
@command
def suggest(
    log: Annotated[
        Path | None,
        typer.Argument(
            help="JSON Lines with questions and the columns chosen for them; default: the accepted queries.",
            exists=True,
            show_default=False,
        ),
    ] = None,
    minimum: Annotated[int, typer.Option("--minimum", help="Minimum number of questions that agree.")] = 3,
    collection: CollectionOption = "schema",
    *,
    common: TenantOptions,
) -> None:
    """Suggest synonyms from accepted queries or a log, for review."""
    import yaml

    from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
    from kosmos_rag.text2sql.linking.synonym_mining import read_log, suggest_synonyms

    if log is not None:
        suggested = suggest_synonyms(read_log(log), minimum=minimum)
    else:
        with common.open_engine() as engine:
            scope = engine.tenant(common.tenant, collection=collection)
            suggested = SchemaGrounding(scope).suggest_synonyms(minimum=minimum)
    entries = [{"from": [synonym.word], "to": [synonym.name]} for synonym in suggested]
    typer.echo(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, default_flow_style=None), nl=False)

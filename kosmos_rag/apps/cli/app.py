"""The command line.

Commands import heavy modules inside their functions: --help must be fast.
"""

import typer

from kosmos_rag.apps.cli import (
    api_key,
    ask,
    audit,
    backup,
    collection,
    config,
    delete,
    doctor,
    documents,
    enqueue,
    erase,
    evaluation,
    experiment,
    index,
    ingest,
    jobs,
    keyword_context,
    mcp,
    migrate,
    monitor,
    reembed,
    schema,
    search,
    serve,
    set_metadata,
    worker,
)
from kosmos_rag.core.version import __version__
from kosmos_rag.ingestion.sandbox.limits import clear_dumpable

app = typer.Typer(
    name="kosmos-rag",
    help="Multi-tenant retrieval on PostgreSQL and pgvector: files in, cited context out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"kosmos-rag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    pass


app.command("ingest")(ingest.ingest)
app.command("enqueue")(enqueue.enqueue)
app.command("worker")(worker.worker)
app.add_typer(jobs.app, name="jobs")
app.command("search")(search.search)
app.command("ask")(ask.ask)
app.command("keyword-context")(keyword_context.keyword_context)
app.command("documents")(documents.documents)
app.command("set-metadata")(set_metadata.set_metadata)
app.command("delete")(delete.delete)
app.command("erase")(erase.erase)
app.add_typer(erase.tenant_app, name="tenant")
app.command("serve")(serve.serve)
app.command("mcp")(mcp.mcp)
app.add_typer(api_key.app, name="api-key")
app.command("migrate")(migrate.migrate)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("doctor")(doctor.doctor)
app.add_typer(collection.app, name="collection")
app.add_typer(index.app, name="index")
app.add_typer(monitor.app, name="monitor")
app.add_typer(reembed.app, name="reembed")
app.add_typer(schema.app, name="schema")
app.add_typer(evaluation.app, name="eval")
app.add_typer(experiment.app, name="experiment")
app.add_typer(audit.app, name="audit")
app.add_typer(config.app, name="config")


def main() -> None:
    """Run the command line.

    Its environment holds URLs and keys, so parser processes must not read its memory.
    """
    clear_dumpable()
    app()

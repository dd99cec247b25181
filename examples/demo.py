"""Ingest the sample knowledge base, ask three questions, and print cited evidence.

    python examples/demo.py [--data-dir FOLDER]

The demo runs on the embedded PostgreSQL in a folder of its own, and needs only pip packages. The commands for the same:

    export KOSMOS_CONFIG=examples/minilm.yaml
    kosmos-rag ingest examples/knowledge_base
    kosmos-rag ask "How is churn calculated?"
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from kosmos_rag import Context, Engine, KosmosError, Settings

HERE = Path(__file__).parent
QUESTIONS = (
    "How is churn calculated?",
    "What do we do when the nightly load is late?",
    "Which table says what an account was paying on a given day?",
)


def show(out: Console, context: Context) -> None:
    """Print a question with its evidence."""
    out.rule(f"[bold]{context.question}")
    for passage in context.passages:
        citation = passage.citation
        out.print(
            f"\n{citation.marker} {Path(citation.source).name} | {citation.location}", style="bold cyan", markup=False
        )
        out.print(passage.text, markup=False, highlight=False)
    timings = context.retrieval.timings_ms
    stages = ", ".join(f"{stage} {timings[stage]:.0f} ms" for stage in context.retrieval.stages)
    out.print(f"\n{len(context.passages)} passages, {context.tokens} tokens ({stages})\n", style="dim")


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=HERE.parent / ".kosmos" / "demo")
    arguments = parser.parse_args()
    out = Console()
    settings = Settings.load(HERE / "minilm.yaml", overrides={"database.data_dir": str(arguments.data_dir)})
    with Engine.open(settings) as engine:
        tenant = engine.tenant("demo")
        with Progress(console=out, transient=True) as progress:
            task = progress.add_task("loading the model", total=None)
            report = tenant.ingest(
                [HERE / "knowledge_base"],
                on_progress=lambda completed, total, source: progress.update(
                    task, completed=completed, total=total, description=Path(source).name
                ),
            )
        out.print(
            f"ingested {HERE.name}/knowledge_base: {report.new} new, {report.changed} changed, "
            f"{report.unchanged} unchanged; {report.chunks} chunks in {report.seconds:.1f} s\n"
        )
        engine.warm_up()
        for question in QUESTIONS:
            show(out, tenant.context(question, k=3))


if __name__ == "__main__":
    try:
        main()
    except KosmosError as error:
        sys.exit(f"error: {error}")

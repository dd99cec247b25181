"""A corporate assistant: departments, a privileged role, a question out of scope, and an answer as a stream.

    python examples/corporate/demo.py [--data-dir FOLDER]

The documents are a part of the sample of generate.py. The preset corporate-enforced gives each document to the readers
of its department, which is the folder. Answers are quotes: no language model is needed.
"""

import argparse
import runpy
import sys
from pathlib import Path

from rich.console import Console

from kosmos_rag import Engine, KosmosError, Settings, SourceDocument
from kosmos_rag.core.types import Answer, AnswerPiece

HERE = Path(__file__).parent
DEPARTMENTS = ("hr", "finance")
QUESTION = "How many vacation days do I get each year when I work full time?"
OUT_OF_SCOPE = "Who won the football world cup in 1998?"
READERS = (
    ("an employee of HR", ("everyone", "department:hr")),
    ("an employee of Finance", ("everyone", "department:finance")),
    ("a manager", ("everyone", "role:Manager")),
)


def load_documents() -> list[SourceDocument]:
    """Return the documents of two departments, in a folder for each."""
    sample = runpy.run_path(str(HERE / "generate.py"))
    return [
        SourceDocument(source=f"{document.department}/{document.name}.txt", data=sample["write_text"](document))
        for document in sample["documents"]()
        if document.department in DEPARTMENTS
    ]


def show(out: Console, answer: Answer) -> None:
    """Print an answer with the documents that it cites."""
    out.print("  refused: " + answer.text if answer.refused else f"  {answer.text}", markup=False, highlight=False)
    cited = [] if answer.refused else sorted({citation.location for citation in answer.citations})
    for location in cited:
        out.print(f"    {location}", style="cyan", markup=False)


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=HERE.parents[1] / ".kosmos" / "demo-corporate")
    arguments = parser.parse_args()
    out = Console()
    settings = Settings.load(HERE.parent / "minilm.yaml", overrides={"database.data_dir": str(arguments.data_dir)})
    with Engine.open(settings) as engine:
        company = engine.tenant("company")
        if "policies" not in {info.name for info in company.collections.infos()}:
            company.collections.create("policies", preset="corporate-enforced")
        with out.status("ingesting the documents of two departments"):
            report = company.with_collection("policies").ingest(load_documents())
        out.print(f"{report.new} new documents, {report.unchanged} unchanged\n")
        out.rule(f"[bold]{QUESTION}")
        for name, principals in READERS:
            out.print(f"{name}:")
            show(out, engine.tenant("company", collection="policies", principals=principals).answer(QUESTION))
        manager = engine.tenant("company", collection="policies", principals=READERS[-1][1])
        out.rule(f"[bold]{OUT_OF_SCOPE}")
        show(out, manager.answer(OUT_OF_SCOPE))
        out.rule("[bold]The first answer again, as a stream")
        with manager.stream_answer(QUESTION) as stream:
            for event in stream:
                if isinstance(event, AnswerPiece):
                    out.print(f"  piece: {event.text!r}", markup=False, highlight=False)


if __name__ == "__main__":
    try:
        main()
    except KosmosError as error:
        sys.exit(f"error: {error}")

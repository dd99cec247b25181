"""Plot recall by the tokens of the prompt, as docs/images/schema-tokens.png.

    python -m benchmarks.schema.curve [--data FOLDER] [--questions N] [--output FILE] [--quick]

It shows which budget has all tables of the SQL. All databases are in one index, and a question does not name its own.
"""

import statistics
from pathlib import Path

from benchmarks.command import command, parse, temporary_folder
from benchmarks.schema.spider import DATA, QUICK_DATA, embedder, load_settings, read_databases
from kosmos_rag import Engine
from kosmos_rag.text2sql.linking.evaluation import prompt_contains_tables
from kosmos_rag.text2sql.linking.grounder import SchemaGrounding
from kosmos_rag.text2sql.sql.gold import read_questions

BUDGETS = (50, 100, 200, 300, 400, 500, 600, 700, 900)
TABLES = (5, 10)
_KEPT = {"retrieval": {"result_cache": 1000}}
"""Each question is searched once for all budgets."""


def main() -> None:
    """Measure, print and draw."""
    parser = command(__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--questions", type=int)
    parser.add_argument("--output", type=Path, default=Path("docs/images/schema-tokens.png"))
    arguments = parse(parser, data=QUICK_DATA, output=temporary_folder() / "schema-tokens.png")
    schemas = read_databases(arguments.data)
    questions = read_questions(arguments.data / "questions.json", schemas)[: arguments.questions]
    lines: dict[int, list[tuple[float, float]]] = {count: [] for count in TABLES}
    model = embedder(quick=arguments.quick)
    with Engine(load_settings("schema", _KEPT, temporary_folder() / "database"), embedder=model) as engine:
        grounding = SchemaGrounding(engine.tenant("spider"))
        grounding.build_all(schemas)
        engine.tenant("spider").indexes.build()
        for tables, points in lines.items():
            for budget in BUDGETS:
                results = [(gold, grounding.ask(gold.question, tables=tables, max_tokens=budget)) for gold in questions]
                recall = statistics.fmean(prompt_contains_tables(result, gold) for gold, result in results)
                tokens = statistics.fmean(result.tokens for _, result in results)
                points.append((tokens, recall))
                print(
                    f"{tables:2} tables, budget {budget:3}: {tokens:.0f} tokens on average, recall {recall:.3f}",
                    flush=True,
                )
    model.save()
    draw(lines, arguments.output)


def draw(lines: dict[int, list[tuple[float, float]]], output: Path) -> None:
    """Draw recall over the mean tokens of the prompt."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for tables, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=f"{tables} tables")
    axes.set(xlabel="mean tokens of the prompt", ylabel="prompts with all tables of the SQL", ylim=(0, 1))
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()

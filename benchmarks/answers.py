"""Measure answers and refusals on questions whose answers are known word by word.

    python -m benchmarks.answers [--set NAME] [--sample N] [--setting KEY=VALUE] [--json FILE] [--quick]

Each question is asked twice: as it is, and without the documents that answer it, which is a question without an
answer in the same words. XQuAD, TAT-QA and MTRAG-UN are read from the evaluation data, documentation trees are
downloaded by pip, the samples are those of examples/. The embedder remembers texts, so its times have no meaning.
With `--setting rag.reranking.enabled=true` and another setting for its model, a reranker scores the units.
Next to the answerer are baselines: the unit nearest by cosine, the first unit of the first passage, and a random unit.
Then it measures how well the citation checker distinguishes true claims from altered ones (benchmarks/claims.yaml).
"""

from typing import Any

import yaml

from benchmarks.answering.measure import measure, score_pair
from benchmarks.answering.record import record_contexts
from benchmarks.answering.sets import LANGUAGES, TREES, load_sets, take_sample
from benchmarks.command import EXAMPLES, ROOT, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder
from benchmarks.remembering import Remembering
from kosmos_rag import Engine, Settings, Tenant
from kosmos_rag.answering.citation_check import check_citations
from kosmos_rag.answering.scorers import EmbeddingScorer, EvidenceScorer, RerankingScorer
from kosmos_rag.apps.cli.common import overrides
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.engine.models import EngineModels
from kosmos_rag.models.reranking.batch_size import RerankBatchSize

SETS = (*(f"xquad-{language}" for language in LANGUAGES), "tatqa", *TREES, "mtragun", "corporate", "analytics")

_DEADLINE_MS = 60_000
"""Of reranking, whose time has no meaning here."""


def measure_checker(tenant: Tenant, embedder: Embedder, citation_format: str) -> dict[str, Any]:
    """Measure how the checker judges claims against the passages of their question."""
    claims = yaml.safe_load((ROOT / "benchmarks" / "claims.yaml").read_text(encoding="utf-8"))
    verdicts: dict[bool, list[bool]] = {True: [], False: []}
    errors = []
    for entry in claims:
        context = tenant.context(entry["question"], k=5)
        for claim, true in [(entry["true"], True), *((false, False) for false in entry["false"])]:
            marked = f"{claim} " + "".join(passage.citation.marker for passage in context.passages)
            report = check_citations(marked, context.passages, embedder=embedder, citation_format=citation_format)
            verdicts[true].append(report.supported)
            if report.supported is not true:
                sentence = report.sentences[0]
                errors.append(
                    f"{sentence.verdict} ({sentence.overlap:.2f}, {sentence.similarity:.2f}, {sentence.reason}): "
                    f"{claim}"
                )
    result = {
        "true": len(verdicts[True]),
        "true_supported": sum(verdicts[True]),
        "altered": len(verdicts[False]),
        "altered_refused": verdicts[False].count(False),
        "errors": errors,
    }
    print("checker", {key: value for key, value in result.items() if key != "errors"})
    print(*errors, sep="\n  ")
    return result


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "answers.json")
    parser.add_argument("--set", action="append", metavar="NAME", help=f"one of {', '.join(SETS)}; may be repeated")
    parser.add_argument("--sample", type=int, metavar="N", help="ask N evenly spaced questions of each set")
    parser.add_argument("--setting", action="append", metavar="KEY=VALUE", help="change a setting; may be repeated")
    arguments = parse(parser, set=["examples"])
    changes = {"rag.reranking.deadline_ms": _DEADLINE_MS, **overrides(arguments.setting)}
    settings = Settings.load(
        EXAMPLES / "minilm.yaml", overrides={**changes, "database.data_dir": str(temporary_folder() / "database")}
    )
    model, answer = Remembering(embedder(settings, quick=arguments.quick)), settings.rag.answer
    reranker, cosine = EngineModels(settings, embedder=model).reranker, EmbeddingScorer(model)
    scorer: EvidenceScorer = cosine
    if reranker is not None:
        scorer = RerankingScorer(reranker, RerankBatchSize(settings.rag.reranking))
    results: dict[str, Any] = {}
    with Engine(settings, embedder=model, reranker=reranker) as engine:
        for answer_set in load_sets(tuple(arguments.set or SETS)):
            sampled = take_sample(answer_set, arguments.sample)
            pairs = [score_pair(pair, scorer, cosine, answer) for pair in record_contexts(engine, sampled)]
            results[answer_set.name] = measure(pairs, answer)
            print(f"{answer_set.name}: {results[answer_set.name]}", flush=True)
            kinds = sorted({pair.question.kind for pair in pairs})
            for kind in kinds if len(kinds) > 1 else ():
                name = f"{answer_set.name}, {kind}"
                results[name] = measure([pair for pair in pairs if pair.question.kind == kind], answer)
                print(f"{name}: {results[name]}", flush=True)
        tenant = engine.tenant("analytics")
        tenant.ingest([EXAMPLES / "knowledge_base"])
        results["checking"] = measure_checker(tenant, model, settings.rag.context.citation_format)
    write_results(arguments.json, results)


if __name__ == "__main__":
    main()

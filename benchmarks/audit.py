"""Measure the cost of the audit log: retrievals with and without it.

    python -m benchmarks.audit [--rounds N] [--records N] [--json FILE] [--quick]

It also measures queries on a log of a million passages. The documents and the questions are those of examples/. Both
engines are open at once and take turns at each question, so other work on the machine affects both alike.
"""

import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import psycopg
import yaml

from benchmarks.command import EXAMPLES, MODEL, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder
from kosmos_rag import Engine, Settings, Tenant

PASSAGES = 10
DOCUMENTS = 10_000

# Records over 300 days, each with ten passages of documents by lot.
RECORDS = """
INSERT INTO kosmos.audit_events (tenant_id, id, at, position, kind, outcome, subject, principals, question,
                               question_sha256, settings_hash, cached, milliseconds)
SELECT %(tenant_id)s, gen_random_uuid(), now() - n * (interval '300 days' / %(records)s),
       nextval('kosmos.audit_event_positions'), 'search', CASE n %% 50 WHEN 0 THEN 'none' ELSE 'hits' END,
       'reader ' || n %% 500, '{everyone}', 'question ' || n %% 1000, md5((n %% 1000)::text), '', false, 10
  FROM generate_series(1, %(records)s) n
"""
PASSAGES_OF_RECORDS = """
INSERT INTO kosmos.audit_passages (tenant_id, event_id, at, rank, shown, document_id, version_id, version,
                                       source, source_hash, chunk_ids, score)
SELECT r.tenant_id, r.id, r.at, p.rank, true, gen_random_uuid(), gen_random_uuid(), 1, p.source, md5(p.source)::uuid,
       ARRAY[gen_random_uuid()], 0.5
  FROM kosmos.audit_events r,
       LATERAL (SELECT rank, '/documents/' || (hashtext(r.id::text || rank) & 2147483647) %% %(documents)s AS source
                  FROM generate_series(1, %(passages)s) rank) p
 WHERE r.tenant_id = %(tenant_id)s
"""


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def _summary(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=20)
    return {"p50_ms": round(statistics.median(times), 2), "p95_ms": round(cuts[-1], 2)}


def cost(plain: Tenant, audited: Tenant, questions: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Return the times of both, and of the difference of each pair."""
    times: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(rounds):
        for question in questions:
            order = [("without", plain), ("with", audited)]
            for name, tenant in order if turn % 2 else reversed(order):
                times[name].append(_ms(partial(tenant.search, question)))
    added = [after - before for before, after in zip(times["without"], times["with"], strict=True)]
    return {name: _summary(seconds) for name, seconds in (times | {"added": added}).items()}


def measure_reading(admin: str, tenant: Tenant, records: int) -> dict[str, float]:
    """Fill a tenant's log, and return how long looking into it takes."""
    values = {"tenant_id": tenant.id, "records": records, "documents": DOCUMENTS, "passages": PASSAGES}
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(RECORDS, values)
        connection.execute(PASSAGES_OF_RECORDS, values)
        connection.execute("ANALYZE kosmos.audit_events, kosmos.audit_passages")
    sealing = _ms(tenant.audit.seal)
    return {
        "records": records,
        "who_saw_p50_ms": _summary(
            [_ms(partial(tenant.audit.list_document_access, f"/documents/{n}")) for n in range(50)]
        )["p50_ms"],
        "find_ms": round(_ms(tenant.audit.find), 1),
        "failed_ms": round(_ms(tenant.audit.list_failed_questions), 1),
        "sealed_records_per_s": round(records / sealing * 1000),
        "verified_records_per_s": round(records / _ms(tenant.audit.verify) * 1000),
    }


def main() -> None:
    """Measure, and print what was found."""
    parser = command(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--records", type=int, default=100_000)
    arguments = parse(parser, rounds=1, records=1000)
    questions = [
        entry["question"] for entry in yaml.safe_load((EXAMPLES / "questions.yaml").read_text(encoding="utf-8"))
    ][:: 10 if arguments.quick else 1]
    folder = str(temporary_folder())
    plain = Settings.load(overrides={**MODEL, "database.data_dir": folder})
    audited = Settings.load(overrides={**MODEL, "database.data_dir": folder, "rag.audit.enabled": True})
    model = embedder(plain, quick=arguments.quick)
    with Engine(plain, embedder=model) as without, Engine(audited, embedder=model) as within:
        tenant = without.tenant("acme")
        tenant.ingest(EXAMPLES / "knowledge_base")
        cost(tenant, within.tenant("acme", subject="bench"), questions, 1)
        report: dict[str, object] = dict(
            cost(tenant, within.tenant("acme", subject="bench"), questions, arguments.rounds)
        )
        admin = within.database.admin_conninfo
        report["reading"] = measure_reading(admin, within.tenant("many"), arguments.records)
    print(json.dumps(report, indent=2))
    write_results(arguments.json, report)


if __name__ == "__main__":
    main()

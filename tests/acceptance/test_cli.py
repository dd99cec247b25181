"""The command line as its users have it: real model, real embedded server, documented output."""

import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.storage.migrate import REVISION
from tests.commands import MINILM, Run, run_command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents and database of this module."""
    folder = tmp_path_factory.mktemp("cli")
    documents = folder / "documents"
    documents.mkdir()
    (documents / "churn.md").write_text(
        "# Metrics\n\n## Churn Calculation\n\nChurn is the number of accounts whose subscription was canceled within "
        "the month, divided by the accounts that were active on its first day.\n\n## Refunds\n\nMoney that went back.\n"
    )
    (documents / "runbook.txt").write_text("When the nightly load is late, page the data engineer on duty.")
    (documents / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more")
    return folder


@pytest.fixture(scope="module")
def kosmos(folder: Path) -> Iterator[Run]:
    """Run a command in this process, over a database of this module's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("KOSMOS_CONFIG", MINILM)
        patch.setenv("KOSMOS_DATABASE__DATA_DIR", str(folder / "database"))
        yield run_command


@pytest.fixture(scope="module")
def ingested(kosmos: Run) -> dict[str, Any]:
    """The report of the first ingestion."""
    result = kosmos("ingest", "documents", "--json")
    assert result.exit_code == 1, "one file of three is broken"
    return dict(json.loads(result.stdout))


pytestmark = pytest.mark.model


def test_ingest__reports_as_json(ingested: dict[str, Any], folder: Path) -> None:
    assert {key: ingested[key] for key in ("new", "changed", "unchanged", "removed")} == {
        "new": 2, "changed": 0, "unchanged": 0, "removed": 0,
    }  # fmt: skip
    assert ingested["chunks"] >= 2
    assert ingested["seconds"] > 0
    [failure] = ingested["failed"]
    assert failure["code"] == "corrupt"
    assert failure["source"] == "documents/broken.pdf"


def test_ingest__again_changes_nothing_and_lists_what_fails(ingested: dict[str, Any], kosmos: Run) -> None:
    result = kosmos("ingest", "documents")
    assert result.exit_code == 1
    assert "0 new, 0 changed, 2 unchanged, 0 removed, 1 failed; 0 chunks" in result.stdout
    assert "failed [corrupt] documents/broken.pdf" in result.stdout


def test_search__as_json_has_the_documented_keys(ingested: dict[str, Any], kosmos: Run, folder: Path) -> None:
    result = kosmos("search", "how is churn calculated", "-k", "2", "--json")
    assert result.exit_code == 0
    payload = json.loads(result.stdout)
    assert {"question", "requested", "returned", "hits", "stages", "timings_ms", "incomplete_reason"} <= payload.keys()
    assert (payload["experiment"], payload["retrieval_id"]) == (None, None)
    assert (payload["question"], payload["requested"], payload["returned"]) == ("how is churn calculated", 2, 2)
    hit = payload["hits"][0]
    assert {"rank", "score", "title", "source", "section", "lines", "pages", "text", "location"} <= hit.keys()
    assert (hit["rank"], hit["section"], hit["pages"]) == (1, ["Metrics", "Churn Calculation"], None)
    assert hit["source"] == "documents/churn.md"
    assert hit["location"].startswith("Churn Calculation | L")
    first, last = hit["lines"]
    lines = (folder / "documents" / "churn.md").read_text().splitlines()
    assert hit["text"] == "\n".join(lines[first - 1 : last])
    start, end = hit["span"]
    assert (folder / "documents" / "churn.md").read_text()[start:end] == hit["text"]


def test_export__has_texts_and_the_spans_of_chunks(ingested: dict[str, Any], kosmos: Run, folder: Path) -> None:
    result = kosmos("documents", "--export", "all.jsonl")
    assert result.exit_code == 0, result.output
    records = {record["source"]: record for record in map(json.loads, (folder / "all.jsonl").read_text().splitlines())}
    assert result.stdout == f"{len(records)} documents in all.jsonl\n"
    churn = records["documents/churn.md"]
    assert churn["text"] == (folder / "documents" / "churn.md").read_text()
    assert len(churn["chunk_spans"]) == churn["chunks"]
    assert all(churn["text"][chunk["start"] : chunk["end"]].strip() for chunk in churn["chunk_spans"])
    assert ["Metrics", "Churn Calculation"] in [chunk["section"] for chunk in churn["chunk_spans"]]
    again = kosmos("documents", "--export", "all.jsonl")
    assert again.exit_code == 1
    assert "all.jsonl exists, and an export overwrites nothing; name another file" in again.output
    assert kosmos("documents", "--export", "-").stdout == (folder / "all.jsonl").read_text()


def test_search__for_people_shows_places_and_shortfall(ingested: dict[str, Any], kosmos: Run) -> None:
    result = kosmos("search", "who is paged when the load is late?")
    assert result.exit_code == 0
    assert " 1. documents/runbook.txt | L1" in result.stdout
    assert "3 of 20 passages: no other passage that the reader may read matches the question" in result.stdout


def test_search__within_a_source(ingested: dict[str, Any], kosmos: Run) -> None:
    payload = json.loads(kosmos("search", "churn", "--source", "documents/runbook.txt", "--json").stdout)
    assert {hit["title"] for hit in payload["hits"]} == {"runbook"}


def test_ask__shows_answer_and_cited_sources(ingested: dict[str, Any], kosmos: Run) -> None:
    result = kosmos("ask", "how is churn calculated?")
    assert result.exit_code == 0
    question, answer, sources = result.stdout.split("\n\n", 2)
    assert question == "Question: how is churn calculated?"
    assert answer.startswith("Churn is the number of accounts whose subscription was canceled within the month")
    assert answer.endswith("[1]")
    assert sources.startswith("Sources\n[1] documents/churn.md | Churn Calculation | L")
    assert "(score " not in sources
    assert "(score " in kosmos("ask", "how is churn calculated?", "--all").stdout


def test_ask__refuses_what_no_document_says(ingested: dict[str, Any], kosmos: Run) -> None:
    result = kosmos("ask", "which exchange rate converts euros into dollars?")
    assert result.exit_code == 0
    assert "I don't have information about that in the approved knowledge base." in result.stdout
    answer = json.loads(kosmos("ask", "which exchange rate converts euros into dollars?", "--json").stdout)
    assert (answer["refused"], answer["sentences"]) == (True, [])


def test_ask__with_context_shows_cited_evidence(ingested: dict[str, Any], kosmos: Run) -> None:
    result = kosmos("ask", "how is churn calculated?", "-k", "1", "--context")
    assert result.exit_code == 0
    assert "Question: how is churn calculated?" in result.stdout
    assert "[1] documents/churn.md | Churn Calculation | L" in result.stdout
    assert "divided by the accounts that were active" in result.stdout
    assert "sentences" not in json.loads(kosmos("ask", "churn", "--context", "--json").stdout)


def test_ask__as_json_has_text_and_citations(ingested: dict[str, Any], kosmos: Run) -> None:
    answer = json.loads(kosmos("ask", "how is churn calculated?", "--json").stdout)
    context = answer["context"]
    assert context["text"].startswith("[1] Metrics | Churn Calculation | L")
    assert context["passages"][0]["citation"]["index"] == 1
    passage = context["passages"][0]
    cited = passage["citation"]
    start, end = passage["span"]
    quote = passage["text"][cited["span"][0] - start : cited["span"][1] - start]
    assert cited["quote_sha256"] == hashlib.sha256(quote.encode()).hexdigest()
    assert end == start + len(passage["text"])
    assert context["tokens"] <= context["max_tokens"] == 4000
    assert not answer["refused"]
    assert answer["confidence"] > 0.5
    cited = answer["sentences"][0]["citation"]
    assert Path(cited["source"]).read_text()[slice(*cited["span"])] == answer["sentences"][0]["text"]
    assert cited["source"].endswith("documents/churn.md")
    assert cited["location"].startswith("Churn Calculation | L")


def test_documents__lists_what_there_is(ingested: dict[str, Any], kosmos: Run, folder: Path) -> None:
    listed = json.loads(kosmos("documents", "--json").stdout)["documents"]
    assert [(Path(d["source"]).name, d["title"], d["version"]) for d in listed] == [
        ("churn.md", "Metrics", 1),
        ("runbook.txt", "runbook", 1),
    ]
    assert "2 documents" in kosmos("documents").stdout
    assert "0 documents" in kosmos("documents", "--tenant", "nobody").stdout


def test_delete__removes_by_path_and_names_what_is_not_there(kosmos: Run, folder: Path) -> None:
    extra = folder / "extra"
    extra.mkdir()
    for name in ("a.txt", "b.txt"):
        (extra / name).write_text(f"words of {name}")
    kosmos("ingest", "extra", "--tenant", "other")
    unknown = kosmos("delete", "nothing.txt", "--tenant", "other")
    assert unknown.exit_code == 1
    assert "has no document 'nothing.txt'" in unknown.stderr
    payload = json.loads(kosmos("delete", "extra", "--tenant", "other", "--json").stdout)
    assert payload["removed"] == 2
    assert "0 documents" in kosmos("documents", "--tenant", "other").stdout


def test_root__and_metadata_of_documents_decide_what_is_found(kosmos: Run, folder: Path) -> None:
    (folder / "kb" / "hr").mkdir(parents=True)
    for name, days in (("leave.txt", 30), ("leave-2025.txt", 20)):
        (folder / "kb" / "hr" / name).write_text(f"Employees have {days} days of annual leave.")
    scope: tuple[str, ...] = ("--tenant", "approvals")
    (folder / "approved.yaml").write_text("rag: {retrieval: {require_approved: true}}")
    assert kosmos("collection", "create", "policies", "--preset", "approved.yaml", *scope).exit_code == 0
    scope = (*scope, "--collection", "policies")

    def list_hits() -> list[str]:
        hits = json.loads(kosmos("search", "days of annual leave", *scope, "--json").stdout)["hits"]
        return sorted(hit["source"] for hit in hits)

    assert json.loads(kosmos("ingest", str(folder / "kb"), "--root", ".", *scope, "--json").stdout)["new"] == 2
    assert "2 unchanged" in kosmos("ingest", "kb", "--root", ".", *scope).stdout
    assert list_hits() == []
    assert kosmos("set-metadata", "hr", "--metadata", "approved=true", *scope).stdout == "2 of 2 documents changed\n"
    assert list_hits() == ["hr/leave-2025.txt", "hr/leave.txt"]
    superseded = ("set-metadata", "hr/leave-2025.txt", "--metadata", "superseded_by=hr/leave.txt")
    assert json.loads(kosmos(*superseded, *scope, "--json").stdout)["changed"] == 1
    assert list_hits() == ["hr/leave.txt"]
    assert kosmos("set-metadata", "hr/leave.txt", "--remove", "approved", *scope).exit_code == 0
    assert list_hits() == []
    refused = kosmos("set-metadata", "hr", *scope)
    assert (refused.exit_code, "there is nothing to change" in refused.stderr) == (1, True)
    refused = kosmos("ingest", "kb", "--root", "../kb", *scope)
    assert (refused.exit_code, "a root is a name such as handbook" in refused.stderr) == (1, True)


@pytest.mark.slow
def test_collections__are_written_read_and_emptied_one_by_one(kosmos: Run, folder: Path) -> None:
    pages = folder / "pages"
    pages.mkdir()
    (pages / "leave.md").write_text("# Leave\n\nThirty days of leave a year.")
    (pages / "plan.sql").write_text("SELECT days FROM leave WHERE id IN (1, 2)")
    tenant = ("--tenant", "shelves")
    assert kosmos("ingest", "pages", *tenant, "--collection", "wiki").exit_code == 0
    assert kosmos("ingest", "pages/leave.md", *tenant).exit_code == 0

    listed = json.loads(kosmos("documents", *tenant, "--json").stdout)["documents"]
    assert [(Path(d["source"]).name, d["collection"], d["language"]) for d in listed] == [
        ("leave.md", "default", "english"),
        ("leave.md", "wiki", "english"),
        ("plan.sql", "wiki", "simple"),
    ]
    stdout = kosmos("documents", *tenant, "-C", "wiki").stdout
    assert [line.split()[:2] for line in stdout.splitlines()[:3]] == [
        ["source", "collection"], ["pages/leave.md", "wiki"], ["pages/plan.sql", "wiki"],
    ]  # fmt: skip
    assert "2 documents" in stdout

    def collections(*options: str) -> set[str]:
        payload = json.loads(kosmos("search", "days of leave", *tenant, *options, "--json").stdout)
        return {place["collection"] for hit in payload["hits"] for place in (hit, *hit["also_in"])}

    assert collections() == {"default", "wiki"}
    assert collections("-C", "wiki") == {"wiki"}
    assert collections("-C", "default") == {"default"}
    assert collections("-C", "unknown") == set()
    cited = json.loads(kosmos("ask", "in", *tenant, "-C", "wiki", "-k", "1", "--json").stdout)
    assert [Path(passage["citation"]["source"]).name for passage in cited["context"]["passages"]] == ["plan.sql"]

    refused = kosmos("delete", "pages/plan.sql", *tenant)
    assert refused.exit_code == 1
    assert "collection 'default' of tenant 'shelves' has no document 'pages/plan.sql'" in refused.stderr
    assert kosmos("delete", "pages", *tenant, "-C", "wiki").stdout == "2 documents removed\n"
    assert "1 document, " in kosmos("documents", *tenant).stdout


@pytest.mark.slow
def test_principal__is_who_reads(ingested: dict[str, Any], kosmos: Run, folder: Path) -> None:
    from kosmos_rag import Engine, SourceDocument

    with Engine.open() as engine:
        engine.tenant("board").ingest(
            [
                SourceDocument(source="minutes", data=b"The churn target of the year.", acl=("board",)),
                SourceDocument(source="notice", data=b"The churn rate is published."),
            ]
        )

    def sources(command: str, *options: str) -> set[str]:
        question = () if command == "documents" else ("churn",)
        payload = json.loads(kosmos(command, *question, "--tenant", "board", *options, "--json").stdout)
        listed = {"documents": payload.get("documents"), "search": payload.get("hits")}
        items = payload["context"]["retrieval"]["hits"] if command == "ask" else listed[command]
        return {item["source"] for item in items}

    for command in ("search", "ask", "documents"):
        assert sources(command) == {"notice"}
        assert sources(command, "--principal", "board") == {"minutes"}
        assert sources(command, "--principal", "board", "--principal", "everyone") == {"minutes", "notice"}
        assert sources(command, "--principal", "nobody") == set()


def test_migrate__of_an_embedded_server_is_already_done(ingested: dict[str, Any], kosmos: Run) -> None:
    assert kosmos("migrate").stdout == f"already at revision {REVISION}\n"


def test_config_show__says_where_each_value_came_from(kosmos: Run, folder: Path) -> None:
    payload = json.loads(kosmos("config", "show", "--json", "--set", "rag.retrieval.top_k=7").stdout)
    assert payload["rag.retrieval.top_k"] == {"value": 7, "origin": "argument"}
    assert payload["database.data_dir"]["origin"] == "environment KOSMOS_DATABASE__DATA_DIR"
    assert payload["rag.embedding.dimensions"]["value"] == 384
    assert payload["rag.embedding.dimensions"]["origin"].startswith("file ")
    assert payload["rag.retrieval.rrf_k"]["origin"] == "default"


def test_doctor__finds_everything_in_order(ingested: dict[str, Any], kosmos: Run) -> None:
    result = kosmos("doctor")
    assert result.exit_code == 0, result.stdout
    assert "PROBLEM" not in result.stdout
    assert "kosmos_app on PostgreSQL" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "database.url=postgresql://kosmos_app@127.0.0.1:1/x"], "cannot connect to PostgreSQL"),
        (["--set", "rag.embedding.model=/no/such/model"], "there is no model folder '/no/such/model'"),
        (["--set", "models.offline=true", "--set", "rag.embedding.model=a/b"], "is not in the local cache"),
        (["--set", "rag.next_embedding.model=/no/such/model"], "next embedding model"),
    ],
)
def test_doctor__names_what_is_wrong(arguments: list[str], message: str, ingested: dict[str, Any], kosmos: Run) -> None:
    result = kosmos("doctor", *arguments)
    assert result.exit_code == 1
    assert "PROBLEM" in result.stdout
    assert message in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", " "], "error: the question is empty; ask something"),
        (["search", "x", "-k", "0"], "error: k is 0; ask for 1 to 1000 hits"),
        (["search", "x", "--tenant", "No!"], "error: tenant name 'No!' is malformed"),
        (["search", "x", "--set", "rag.retrieval.topk=3"], "rag.retrieval.topk"),
        (["search", "x", "--set", "nonsense"], "error: --set 'nonsense' is not KEY=VALUE"),
        (["search", "x", "--metadata", "year"], "error: --metadata 'year' is not KEY=VALUE"),
        (["search", " ", "--metadata", f"a={'[' * 5000}"], "error: the question is empty"),
        (["search", "x", "--config", "missing.yaml"], "missing.yaml"),
        (["ask", "x", "--max-tokens", "0"], "error: max_tokens is 0"),
        (["delete", ""], "error: SOURCE is empty"),
        (["ingest", ""], "error: PATH is empty"),
        (["search", "x", "--source", " "], "error: --source is empty"),
        (["search", "x", "--collection", ""], "error: collection name '' is malformed"),
        (["documents", "-C", "No!"], "error: collection name 'No!' is malformed"),
        (["ingest", "documents", "-C", "a b"], "error: collection name 'a b' is malformed"),
        (["ask", "x", "--principal", ""], "error: --principal is empty; name a principal"),
    ],
)
def test_bad_input__is_one_line_on_standard_error(
    arguments: list[str], message: str, ingested: dict[str, Any], kosmos: Run
) -> None:
    result = kosmos(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_bad_input__as_json_is_one_object(kosmos: Run) -> None:
    result = kosmos("search", "", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "error": {"type": "RequestError", "message": "the question is empty; ask something"}
    }


def test_output__in_another_encoding_escapes_what_it_lacks(kosmos: Run, folder: Path) -> None:
    note = folder / "encoding" / "Überstunden.md"
    note.parent.mkdir()
    note.write_text("# Überstunden\n\nÜber 40 Stunden.\n")
    scope = ("--tenant", "encoding")
    assert kosmos("ingest", str(note.parent), *scope).exit_code == 0
    script = "import sys; from kosmos_rag.apps.cli import main; sys.exit(main())"
    for arguments in (("documents",), ("documents", "--export", "-")):
        run = [sys.executable, "-c", script, *arguments, *scope]
        output = subprocess.run(run, check=True, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
        assert b"berstunden" in output.stdout
        assert output.stdout.isascii()
    assert json.loads(output.stdout)["title"] == "Überstunden"


def test_a_model_that_cannot_be_loaded__names_the_local_alternative(kosmos: Run, tmp_path: Path) -> None:
    result = kosmos(
        "search", "x", "--tenant", "fresh", "--set", "models.offline=true", "--set", f"models.cache_dir={tmp_path}",
        "--set", "rag.embedding.model=sentence-transformers/all-mpnet-base-v2", "--set", "rag.embedding.dimensions=768",
    )  # fmt: skip
    assert result.exit_code == 1
    assert "model 'sentence-transformers/all-mpnet-base-v2' is not in the local cache" in result.stderr
    assert "rag.embedding.model=packaged:all-MiniLM-L6-v2" in result.stderr


def test_commands_that_need_no_model__start_without_torch() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['kosmos-rag', 'config', 'show']\n"
        "from kosmos_rag.apps.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'sentence_transformers', 'sqlalchemy', 'pypdfium2', 'docx', 'numpy', 'psycopg'}\n"
        "assert not heavy & sys.modules.keys()\n"
    )
    before = _cpu_s()
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert _cpu_s() - before < 5


UNNEEDED = frozenset(
    {"torch", "sentence_transformers", "simplemma", "langchain_core", "sqlalchemy", "alembic"}
    | {"kosmos_rag.parsing.file_parser", "kosmos_rag.parsing.pdf.document"}
)
"""What only other models, other languages, texts longer than a chunk, migrations and the sandbox need."""


def test_ingest__imports_only_what_its_documents_need(ingested: dict[str, Any], folder: Path) -> None:
    assert ingested["new"], "the database exists"
    (folder / "short").mkdir()
    (folder / "short" / "note.md").write_text("# Note\n\nA short text.\n")
    script = (
        "import sys\n"
        "sys.argv = ['kosmos-rag', 'ingest', 'short', '--tenant', 'short']\n"
        "from kosmos_rag.apps.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print(*({set(UNNEEDED)} & sys.modules.keys()))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    report, imported = ran.stdout.splitlines()
    assert report.startswith("1 new")
    assert imported == ""


def _cpu_s() -> float:
    """Return the processor time of the processes that have ended, which does not depend on what else runs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
def test_worker__mirrors_a_folder(folder: Path, kosmos: Run) -> None:
    from kosmos_rag.worker.commands.ingest import main

    watched = folder / "watched"
    watched.mkdir()
    (watched / "a.txt").write_text("words for the worker")
    worker = ["--tenant", "worker", "--until-idle"]
    assert main([str(watched), *worker]) == 0
    assert "1 document, " in kosmos("documents", "--tenant", "worker").stdout
    assert main([str(watched / "missing.txt"), *worker]) == 1
    assert main([str(watched), "--tenant", "No!", "--until-idle"]) == 1
    assert main([str(watched), *worker, "--collection", "watched"]) == 0
    assert "2 documents" in kosmos("documents", "--tenant", "worker").stdout
    assert "1 document, " in kosmos("documents", "--tenant", "worker", "--collection", "watched").stdout


def test_worker__runs_the_kinds_that_are_named(folder: Path, kosmos: Run) -> None:
    tenant = ("--tenant", "kinds")
    (folder / "kinds.txt").write_text("words of a kind")
    assert kosmos("enqueue", "kinds.txt", *tenant).exit_code == 0
    assert kosmos("worker", "--until-idle", "--kinds", "maintenance").exit_code == 0
    assert "0 documents" in kosmos("documents", *tenant).stdout
    assert kosmos("worker", "--until-idle", "--kinds", "sync").exit_code == 0
    assert "0 documents" in kosmos("documents", *tenant).stdout, "the source is listed, and its document waits"
    assert kosmos("worker", "--until-idle", "--kinds", "document, sync").exit_code == 0
    assert "1 document, " in kosmos("documents", *tenant).stdout
    refused = kosmos("worker", "--until-idle", "--kinds", "document,night")
    assert refused.exit_code == 1
    assert "--kinds has 'night'; choose from document, sync, permissions, maintain" in refused.stderr


def test_events__are_started_listed_and_stopped(folder: Path, kosmos: Run) -> None:
    tenant = ("--tenant", "events")
    assert "records no events" in kosmos("events", "list", *tenant).stderr
    assert kosmos("events", "start", *tenant).stdout == "events of tenant events are recorded from now on\n"
    kosmos("ingest", "documents/churn.md", *tenant)
    listed = json.loads(kosmos("events", "list", *tenant, "--json").stdout)
    assert [event["type"] for event in listed["events"]] == ["document.published"]
    assert listed["next"] == 1
    assert "churn.md" in kosmos("events", "list", *tenant).stdout
    assert json.loads(kosmos("events", "list", *tenant, "--after", "1", "--json").stdout) == {"events": [], "next": 1}
    assert json.loads(kosmos("events", "stop", *tenant, "--json").stdout) == {"tenant": "events", "recording": False}


def test_access__is_reviewed_by_document_reader_and_key(folder: Path, kosmos: Run) -> None:
    tenant = ("--tenant", "reviews")
    kosmos("ingest", "documents/churn.md", *tenant)
    kosmos("api-key", "create", "intranet", "--principal", "department:hr", *tenant)
    source = json.loads(kosmos("documents", *tenant, "--json").stdout)["documents"][0]["source"]
    (grant,) = json.loads(kosmos("access", "--document", source, *tenant, "--json").stdout)["grants"]
    assert (grant["principal"], grant["origin"], grant["keys"]) == ("everyone", "list", ["intranet"])
    by_key = kosmos("access", "--key", "intranet", "--jsonl", *tenant).stdout
    assert json.loads(by_key) == grant
    header, row = kosmos("access", "--principal", "department:hr", "--csv", *tenant).stdout.splitlines()
    assert header == "document_id,source,collection,title,principal,origin,feed,keys,searchable"
    assert row.endswith("everyone,list,,intranet,True")
    assert source in kosmos("access", "--document", source, *tenant).stdout
    for arguments, message in (
        (("--document", "missing.md"), "there is no document"),
        (("--key", "nobody"), "no valid key"),
        (("--key", "a", "--principal", "b"), "give one of --document"),
        (("--key", "a", "--csv", "--json"), "give one of --csv"),
    ):
        refused = kosmos("access", *arguments, *tenant)
        assert (refused.exit_code, message in refused.stderr) == (1, True), arguments


def test_queue__from_enqueue_to_the_ledger(folder: Path, kosmos: Run) -> None:
    tenant = ("--tenant", "queue")
    queued = kosmos("enqueue", "documents", *tenant, "--json")
    (job,) = json.loads(queued.stdout)["jobs"]
    assert "queued" in kosmos("jobs", "list", *tenant).stdout
    result = kosmos("worker", "--until-idle", "--json")
    assert result.exit_code == 1, "one file of three is broken"
    report = json.loads(result.stdout)
    assert (report["new"], report["failed"]) == (2, 1)
    (dead,) = json.loads(kosmos("jobs", "list", *tenant, "--state", "dead", "--json").stdout)["jobs"]
    assert dead["code"] == "corrupt"
    assert "broken.pdf" in kosmos("jobs", "show", str(dead["id"]), *tenant).stdout
    (run,) = json.loads(kosmos("jobs", "runs", *tenant, "--json").stdout)["runs"]
    assert (run["state"], run["seen"], run["new"], run["failed"]) == ("finished", 3, 2, 1)
    assert "failed [corrupt]" in kosmos("jobs", "runs", run["id"], *tenant).stdout
    newest = json.loads(kosmos("jobs", "list", *tenant, "--limit", "1", "--json").stdout)
    (other, *_) = json.loads(kosmos("jobs", "list", *tenant, "--before", newest["next"], "--json").stdout)["jobs"]
    assert (len(newest["jobs"]), other["id"] < newest["next"]) == (1, True)
    assert f"--before {newest['next']} shows more" in kosmos("jobs", "list", *tenant, "--limit", "1").stdout
    assert "shows more" not in kosmos("jobs", "list", *tenant).stdout
    assert kosmos("jobs", "retry", "--all", *tenant).stdout == f"queued again: {dead['id']}\n"
    assert kosmos("jobs", "cancel", str(dead["id"]), *tenant).stdout == f"cancelled: {dead['id']}\n"
    assert kosmos("jobs", "show", str(job), "--tenant", "other").exit_code == 1
    for command in (["show", "7"], ["retry", "7"], ["cancel", "7"], ["list", "--before", "7"]):
        assert "'7' is not an id of a job; `kosmos-rag jobs list` shows ids" in kosmos("jobs", *command).stderr


def test_enqueue__check_shows_what_would_be_read_and_enqueues_nothing(folder: Path, kosmos: Run) -> None:
    checked = kosmos("enqueue", "documents", "--check", "--tenant", "checked")
    assert checked.exit_code == 0
    assert "everyone could read" in checked.stdout
    Path("nowhere-source.yaml").write_text("kind: folder\npath: nowhere\n")
    failing = kosmos("enqueue", "--source", "nowhere-source.yaml", "--check", "--json")
    assert failing.exit_code == 1
    [source] = json.loads(failing.stdout)["sources"]
    assert (source["ok"], source["failures"][0]["code"]) == (False, "not_found")
    assert json.loads(kosmos("jobs", "list", "--tenant", "checked", "--json").stdout)["jobs"] == []


def test_permissions__are_enqueued_from_a_file(folder: Path, kosmos: Run) -> None:
    (folder / "feed.jsonl").write_text('{"document": "a.txt", "principals": ["ann"]}')
    (folder / "feed.yaml").write_text(f"kind: json_lines\nname: wiki\npath: {folder}/feed.jsonl\n")
    queued = kosmos("enqueue", "--permissions", "feed.yaml", "--every", "60", "--tenant", "permissions")
    assert queued.stdout.endswith(": permissions wiki\n")
    (job,) = json.loads(kosmos("jobs", "list", "--tenant", "permissions", "--state", "queued", "--json").stdout)["jobs"]
    assert (job["kind"], job["every_s"]) == ("permissions", 60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("enqueue", "--permissions", "nowhere.yaml"), "--permissions nowhere.yaml cannot be read"),
        (("enqueue",), "nothing to enqueue; name a PATH, a source with --source FILE, or --permissions FILE"),
        (("enqueue", "--source", "nowhere.yaml"), "cannot be read"),
        (("jobs", "list", "--state", "lost"), "is not a state of a job; use one of scheduled, queued"),
        (("jobs", "retry"), "name the jobs to retry, or use --all without an id"),
        (("jobs", "runs", "x"), "'x' is not an id of a run"),
    ],
)
def test_queue__refuses(kosmos: Run, arguments: tuple[str, ...], message: str) -> None:
    result = kosmos(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_module__is_the_command(folder: Path) -> None:
    command = [sys.executable, "-m", "kosmos_rag", "init", "module.yaml"]
    assert subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).returncode == 0
    assert (folder / "module.yaml").is_file()

"""Sets in the BEIR layout: from a folder, from an archive, from what is none."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from kosmos_rag.core.config import IngestionSettings, Settings
from kosmos_rag.core.errors import RequestError, SourceError
from kosmos_rag.evaluation.offline import derive_tenant_name, load_beir
from kosmos_rag.evaluation.offline.download import _unpack, fetch_set
from kosmos_rag.ingestion.sources.fetching import Fetcher

FILES = {
    "corpus.jsonl": '{"_id": "d1", "title": "T", "text": "words"}\n{"_id": "d2", "title": "", "text": ""}\n\n',
    "queries.jsonl": '{"_id": "q1", "text": "Which?"}\n{"_id": "q2", "text": "Not judged?"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td9\t0\n",
}


def _folder(tmp_path: Path, **changed: str) -> Path:
    folder = tmp_path / "My Set!"
    (folder / "qrels").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(changed.get(Path(name).stem, text), errors="surrogateescape")
    return folder


def test_load__documents_and_judged_questions(tmp_path: Path) -> None:
    result = load_beir(_folder(tmp_path))
    (question,) = result.questions.questions
    assert (question.id, question.text, question.grades, question.answerable) == (
        "q1",
        "Which?",
        {"d1": 2, "d9": 0},
        True,
    )
    (document,) = result.documents()
    assert (document.source, document.title, document.data) == ("d1", "T", b"T\n\nwords")


def test_tenant__is_another_one_where_chunks_or_vectors_are() -> None:
    from kosmos_rag.evaluation.offline import QuestionSet

    question_set = QuestionSet(name="My Set!", questions=())
    names = [
        derive_tenant_name(question_set, Settings.load(overrides=changes))
        for changes in (
            {},
            {"rag.retrieval.top_k": 7},
            {"rag.chunking.max_size": 900},
            {"ingestion.language": "german"},
        )
    ]
    assert names[0].startswith("eval-my-set-")
    assert names[0] == names[1]
    assert len(set(names)) == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test": "q1\td1\t2\nq2\td1\t2\n"}, "is not judgements"),
        ({"test": "query-id\tcorpus-id\tscore\nq1\td1\tx\n"}, "is not judgements"),
        ({"test": "query-id\tcorpus-id\tscore\nq9\td1\t1\n"}, "no question of .* is judged"),
        ({"queries": "{"}, r"queries.jsonl, line 1 is not JSON"),
        ({"queries": "[]"}, "line 1 has no `_id`"),
        ({"queries": '{"_id": "q1"}'}, "the question q1 of .* has no `text`"),
        ({"queries": '{"_id": "q1", "text": "a"}\n{"_id": "q1", "text": "b"}'}, "'a' occurs twice"),
        ({"queries": '{"_id": "q1", "text": "\udcff"}'}, "cannot be read: 'utf-8' codec"),
    ],
)
def test_load__refuses_what_is_none(changed: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=message):
        load_beir(_folder(tmp_path, **changed))


def test_load__names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"missing .*corpus\.jsonl, .*queries\.jsonl, .*dev\.tsv"):
        load_beir(tmp_path, split="dev")


def test_archive__gives_the_files_of_the_set_and_no_other() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(f"scifact/{name}", text)
        archive.writestr("../../evil.py", "x")
        archive.writestr("scifact/qrels/../../../evil.tsv", "x")
    files = dict(_unpack(data.getvalue(), "https://host/scifact.zip"))
    assert {name: text.decode() for name, text in files.items()} == FILES
    assert all(json.loads(line) for line in files["queries.jsonl"].splitlines())
    with pytest.raises(SourceError, match="is no zip archive"):
        dict(_unpack(b"PK", "https://host/scifact.zip"))


def test_archive__of_several_sets_is_refused() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for folder in ("android", "gaming"):
            for name, text in FILES.items():
                archive.writestr(f"{folder}/{name}", text)
    with pytest.raises(SourceError, match="contains several sets"):
        dict(_unpack(data.getvalue(), "https://host/cqadupstack.zip"))


def test_archive__that_is_damaged_is_refused() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("corpus.jsonl", "words " * 1000)
    damaged = bytearray(data.getvalue())
    damaged[50:60] = b"\xff" * 10
    with pytest.raises(SourceError, match="is no zip archive"):
        dict(_unpack(bytes(damaged), "https://host/scifact.zip"))


def test_cache__keeps_what_was_fetched_within_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fetcher, "fetch", lambda _, url: FILES[url.partition("/../")[2]].encode())
    other = tmp_path / "cache" / "other"
    other.mkdir(parents=True)
    folder = fetch_set("https://example.org/..", IngestionSettings(), split="test", cache=tmp_path / "cache")
    assert folder.resolve().is_relative_to(tmp_path / "cache")
    assert load_beir(folder).questions.questions
    assert other.is_dir()


def test_cache__that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(RequestError, match="cannot be kept in"):
        fetch_set("https://example.org/set", IngestionSettings(), split="test", cache=tmp_path / "cache")


def test_url__goes_through_the_guard(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="allowed_hosts"):
        fetch_set("https://example.org/scifact.zip", IngestionSettings(), split="test", cache=tmp_path)
    with pytest.raises(RequestError, match="must not contain a user"):
        fetch_set("https://me:secret@example.org/scifact.zip", IngestionSettings(), split="test", cache=tmp_path)

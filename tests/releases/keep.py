"""Keep a database of this release for the tests of upgrades: `python -m tests.releases.keep FOLDER`.

It starts an embedded server in the folder. Two files named by the revision are written into the folder of this
module: the dump, and what two readers find. Run it on the commit of a release, and never again for that revision.
"""

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import embedded
from kosmos_rag.storage.migrate import REVISION

RELEASES = Path(__file__).parent
QUESTIONS = ("churn", "revenue of the year", "w1 w5 w9", "w2", "secret churn")
READERS = (["everyone"], ["board", "everyone"])


def indexed(settings: Settings) -> Settings:
    """Return settings under which a few chunks are worth an index."""
    indexes = {"unsegmented_chunks": 10, "vector_min_chunks": 10, "vector": "ivfflat"}
    return settings.model_copy(update={"indexes": settings.indexes.model_copy(update=indexes)})


def fill(engine: Engine) -> None:
    """Store what a tenant has: a segment with gaps, an index, restricted documents, an erasure, a job that waits."""
    documents = list(_write_documents())
    scope = engine.tenant("acme")
    scope.ingest(documents[:16])
    scope.indexes.build()
    scope.delete(["d3", "d4"])
    scope.ingest(documents[14:22])
    scope.update_metadata("d6", {"year": 1999})
    scope.erase(source="d9")
    scope.jobs.enqueue(SourceDocument(source="waiting", data=b"churn of the waiting document"))
    engine.tenant("acme", collection="wiki").ingest(documents[22])
    engine.tenant("other").ingest(documents[1])
    engine.tenant("left").ingest(documents[1])
    engine.tenant("left").delete("d1")


def _write_documents() -> Iterator[SourceDocument]:
    dice = random.Random(5)
    for number in range(23):
        words = " ".join(dice.choices([f"w{n}" for n in range(30)], k=dice.randint(5, 40)))
        text = f"{'secret ' * (number % 3)}{'churn' if number % 2 else 'revenue'} {words}"
        readers = ("board",) if number % 7 == 0 else ("everyone",)
        yield SourceDocument(source=f"d{number}", data=text.encode(), acl=readers, metadata={"year": 2020 + number % 4})


def find_sources(engine: Engine) -> list[dict[str, object]]:
    """Return the sources that each reader finds for each question. Their order is a matter of the version."""
    return [
        {"principals": readers, "question": question, "sources": sorted(hit.source for hit in result.hits)}
        for readers in READERS
        for question in QUESTIONS
        for result in [engine.tenant("acme", principals=readers).search(question, 100)]
    ]


def main(folder: Path) -> None:
    """Write the files of this release."""
    settings = indexed(Settings(database=DatabaseSettings(url="embedded", data_dir=folder)))
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        fill(engine)
        lines = ",\n".join(json.dumps(answer) for answer in find_sources(engine))
    conninfo = embedded.start(folder).conninfo("postgres")
    command = [str(embedded.program("pg_dump")), "--inserts", "--rows-per-insert=100", "--no-comments", conninfo]
    dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Commands of psql. The driver executes the rest.
    statements = "".join(line for line in dump.splitlines(keepends=True) if not line.startswith("\\"))
    (RELEASES / f"{REVISION}.sql.gz").write_bytes(gzip.compress(statements.encode(), mtime=0))
    (RELEASES / f"{REVISION}.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A cutover between models that a question set judges."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.offline.embedding_quality import compare_spaces
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.indexing.reembedding.moved import CHUNKS
from tests.integration.two_models import NEW, OLD
from tests.integration.variants import opened


class WorseEmbedder(HashingEmbedder):
    """Finds nothing: vectors of questions have nothing to do with those of texts."""

    def embed_query(self, question: str) -> NDArray[np.float32]:
        return super().embed_query(question[::-1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.array([super(WorseEmbedder, self).embed_query(text) for text in texts], dtype=np.float32)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """An evaluation set, with a question that nothing answers."""
    file = tmp_path / "questions.yaml"
    lines = [f"- question: churn of account{number}\n  source: d{number}" for number in range(CHUNKS)]
    file.write_text("\n".join([*lines, "- question: Who?\n  answerable: false"]))
    return file


def test_switch__is_refused_where_the_evaluation_set_says_that_it_is_worse(
    moving: Engine, settings: Settings, questions: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worse = WorseEmbedder(dimensions=768)
    with opened(settings, {}, embedder=OLD, next_embedder=worse) as engine:
        scope = engine.tenant("acme")
        scope.spaces.start()
        with pytest.raises(RequestError, match=r"nDCG@10 is 0\.\d+ over 40 questions, that of 'hashing-384' 0\.9"):
            scope.spaces.cutover(measure=compare_spaces(scope, questions))
        with pytest.raises(RequestError, match="give a reason"):
            scope.spaces.cutover(measure=compare_spaces(scope, questions), force=" ")
        assert [info.model for info in scope.spaces.status() if info.live] == [OLD.name]
        quality = scope.spaces.cutover(measure=compare_spaces(scope, str(questions)), force="a drill")
        assert quality.forced == "a drill"
        assert "a drill" in caplog.text
        assert [info.model for info in scope.spaces.status() if info.live] == [NEW.name]


def test_switch__tells_what_the_evaluation_set_gives(acme: Tenant, questions: Path) -> None:
    acme.spaces.start()
    quality = acme.spaces.cutover(measure=compare_spaces(acme, questions))
    assert quality.questions == CHUNKS
    assert quality.ndcg_at_10 is not None
    assert quality.live_ndcg_at_10 is not None
    assert 0.95 < quality.ndcg_at_10 <= 1.0
    assert 0.95 < quality.live_ndcg_at_10 <= 1.0

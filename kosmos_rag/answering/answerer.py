"""The answer to a question from a context: weigh its units, refuse or compose."""

from kosmos_rag.answering.abstaining import REFUSAL, confidence, features
from kosmos_rag.answering.compose import render, select, sentence
from kosmos_rag.answering.evidence import weigh
from kosmos_rag.config import AnswerSettings
from kosmos_rag.ports import Embedder
from kosmos_rag.records import Answer, Context


def answer(context: Context, *, embedder: Embedder, settings: AnswerSettings) -> Answer:
    """Answer a question by sentences of its context, verbatim and cited, or refuse.

    The same context has the same answer. Raises ModelUnavailable.
    """
    evidence = weigh(context.question, context.passages[: settings.passages], embedder)
    values = features(context, evidence, embedder) if evidence else {}
    probability = confidence(values) if values else 0.0
    refused = not evidence or probability < settings.threshold
    sentences = () if refused else tuple(sentence(item) for item in select(evidence, settings.sentences))
    return Answer(
        question=context.question,
        text=REFUSAL if refused else render(sentences),
        refused=refused,
        confidence=probability,
        features=values,
        sentences=sentences,
        context=context,
    )

"""Example questions, from sections that a reader may read."""

from kosmos_rag.engine.tenant import Tenant

_QUESTIONS = 4
_DOCUMENTS = 12


def example_questions(scope: Tenant) -> tuple[str, ...]:
    """Return questions about sections of a few documents.

    A heading that is a question is one of them.
    """
    questions: list[str] = []
    for document in scope.documents(limit=_DOCUMENTS):
        names = [section.section[-1] for section in scope.sections(document.id) if len(section.section) > 1]
        asking = [name for name in names if name.endswith("?")]
        if asking or names:
            name = (asking or names)[len(asking or names) // 2]
            questions.append(name if asking else f"What does \u201c{document.title}\u201d say about {name}?")
        if len(questions) == _QUESTIONS:
            break
    return tuple(questions)

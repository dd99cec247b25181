"""A text that joins questions is divided into them, and nothing else is."""

import pytest

from kosmos_rag.answering.question_parts import split_question


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Who owns MRR and how is churn calculated?", ("Who owns MRR?", "how is churn calculated?")),
        ("How is churn calculated? Who owns MRR?", ("How is churn calculated?", "Who owns MRR?")),
        (
            "What is the notice period, and in which system is leave requested?",
            ("What is the notice period?", "in which system is leave requested?"),
        ),
        (
            "Was kostet ein halber Schrank und wer verwaltet die Racks?",
            ("Was kostet ein halber Schrank?", "wer verwaltet die Racks?"),
        ),
        (
            "¿Quién ganó el premio y cuándo se fundó la universidad?",
            ("¿Quién ganó el premio?", "cuándo se fundó la universidad?"),
        ),
    ],
)
def test_split_question__divides_joined_questions(question: str, parts: tuple[str, ...]) -> None:
    assert split_question(question) == parts


@pytest.mark.parametrize(
    "question",
    [
        "How is churn calculated?",
        "How and why does churn rise?",
        "What are research and development costs?",
        "When was Tesla born and where did he die?",
        "Wann wurde Tesla geboren und wo starb er?",
        "Communities are known to be large and what other characteristic?",
        'Who wrote "What is love and who are you"?',
        "Who is Ann and who is Ben and who is Carl and who is Dora?",
        "How often does it poll a server, and how rarely?",
        "",
    ],
    ids=[
        "one", "one word without a name", "no question word", "a pronoun", "a pronoun in German", "no question first",
        "a quoted phrase", "too many", "no verb", "nothing",
    ],
)  # fmt: skip
def test_split_question__leaves_other_questions_whole(question: str) -> None:
    assert split_question(question) == (question,)

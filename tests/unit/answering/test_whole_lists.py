"""Lists and steps are quoted whole, and items and code with the sentence that introduces them."""

import pytest

from kosmos_rag.answering.compose import render, select, sentence
from kosmos_rag.answering.evidence import Evidence
from kosmos_rag.answering.units import units
from tests.unit.answering.passages import passage

RESTART = (
    "The worker is restarted so:\n\n1. Stop the timer.\n2. Wait for the queue.\n3. Start the worker.\n\n"
    "Logs are in the journal."
)
CODE = "The queue is shown by this command:\n\n```sh\nkosmos-rag jobs\n```\n\nIt needs a tenant."


def _answer(text: str, scores: list[float], limit: int = 2) -> list[str]:
    of = passage(text)
    evidence = [
        Evidence(passage=of, unit=unit, parts={"meaning": score}, words=0.0)
        for unit, score in zip(units(text), scores, strict=True)
    ]
    return [item.unit.text for item in select(evidence, limit)]


@pytest.mark.parametrize(
    "scores", [(0.9, 0.1, 0.1, 0.1, 0.1), (0.1, 0.8, 0.9, 0.1, 0.1)], ids=["its introduction", "two of its steps"]
)
def test_select__quotes_steps_whole_and_in_order(scores: tuple[float, ...]) -> None:
    assert _answer(RESTART, list(scores)) == [
        "The worker is restarted so:", "1. Stop the timer.", "2. Wait for the queue.", "3. Start the worker.",
    ]  # fmt: skip


def test_select__quotes_one_item_after_the_sentence_that_introduces_the_list() -> None:
    assert _answer(RESTART, [0.1, 0.1, 0.9, 0.1, 0.1]) == ["The worker is restarted so:", "2. Wait for the queue."]


def test_select__quotes_few_items_of_a_long_list_alone() -> None:
    items = [f"- Format {number}" for number in range(9)]
    assert _answer("\n".join(items), [0.9, 0.9, *[0.1] * 7]) == ["- Format 0", "- Format 1"]


@pytest.mark.parametrize("scores", [(0.9, 0.1, 0.1), (0.1, 0.9, 0.1)], ids=["its sentence", "the code"])
def test_select__quotes_code_with_its_sentence(scores: tuple[float, ...]) -> None:
    assert _answer(CODE, list(scores)) == ["The queue is shown by this command:", "```sh\nkosmos-rag jobs\n```"]


def test_select__quotes_a_title_with_what_is_below_it() -> None:
    text = "4. Meal Allowance\n\nIt is 28 euros a day.\n\nMax Load 500 kg\n\nDo not exceed it."
    assert _answer(text, [0.9, 0.1, 0.1, 0.1]) == ["4. Meal Allowance", "It is 28 euros a day."]
    assert _answer(text, [0.1, 0.1, 0.9, 0.1]) == ["Max Load 500 kg"]


def test_select__quotes_an_item_of_a_nested_list_after_the_items_around_it() -> None:
    text = "IMAP:\n\n* Idle: 30 minutes\n  * With IDLE: none\n* Bad commands:\n  * before login: 3\n  * after: 20\n"
    assert _answer(text, [0.1, 0.1, 0.1, 0.1, 0.1, 0.9]) == ["IMAP:", "* Bad commands:", "* after: 20"]


def test_select__quotes_an_item_with_the_items_that_it_introduces() -> None:
    text = "1. Open the lid.\n2. Press these buttons:\n   - red\n   - green\n3. Close the lid.\n4. Wait."
    assert _answer(text, [0.1, 0.9, 0.1, 0.1, 0.1, 0.1]) == ["2. Press these buttons:", "- red", "- green"]


@pytest.mark.parametrize(
    "item",
    ["2. Look at them. Press these buttons:", "2. Press these\n   buttons:", "2. Press 2 buttons:"],
    ids=["sentences", "lines", "a number"],
)
def test_select__quotes_the_items_of_an_item_below_a_title(item: str) -> None:
    text = f"# Lid\n\n1. Open it.\n{item}\n   - red\n   - green\n3. Close it.\n4. Wait."
    assert _answer(text, [0.1, 0.9, 0.1, 0.1, 0.1, 0.1]) == [item, "- red", "- green"]
    assert _answer(text, [0.1, 0.1, 0.1, 0.9, 0.1, 0.1]) == [item, "- green"]


def test_select__quotes_code_with_its_item_below_a_title() -> None:
    text = "# Queue\n\n1. Look at it:\n\n   ```sh\n   kosmos-rag jobs\n   ```\n\n2. Wait."
    assert _answer(text, [0.1, 0.9, 0.1]) == ["1. Look at it:", "```sh\n   kosmos-rag jobs\n   ```"]


def test_select__takes_no_first_item_of_a_passage_for_the_item_around_its_siblings() -> None:
    assert _answer("- Zone 5: 10\n  - Zone 6: 12\n  - Zone 7: 14", [0.1, 0.1, 0.9]) == ["- Zone 7: 14"]
    tariffs = "- Tariff 1:\n  - Zone 1: 10\n  - Zone 2: 12\n- Tariff 2:\n  - Zone 1: 20\n  - Zone 2: 22"
    assert _answer(tariffs, [0.1, 0.1, 0.9, 0.1, 0.1, 0.1]) == ["- Tariff 1:", "- Zone 2: 12"]


def test_select__quotes_no_introduction_of_another_section() -> None:
    text = "# Timeouts\n\nSome of them are these:\n\n## IMAP\n\n- After login: 30 minutes\n\nNo others are known."
    assert _answer(text, [0.1, 0.9, 0.1]) == ["- After login: 30 minutes"]
    assert _answer(text, [0.9, 0.1, 0.1]) == ["Some of them are these:", "- After login: 30 minutes"]


@pytest.mark.parametrize(
    ("scores", "rows"),
    [((0.8, 0.82, 0.9), ["| Quarter |", "| Half |", "| Full |"]), ((0.1, 0.8, 0.9), ["| Full |", "| Half |"])],
    ids=["all of its rows", "two of its rows"],
)
def test_select__quotes_a_whole_table_in_order(scores: tuple[float, ...], rows: list[str]) -> None:
    assert _answer("| Rack |\n|---|\n| Quarter |\n| Half |\n| Full |", list(scores), 4) == rows


def _select_by_words(text: str, words: tuple[float, ...]) -> list[str]:
    of = passage(text)
    evidence = [
        Evidence(passage=of, unit=unit, parts={"words": share}, words=share)
        for unit, share in zip(units(text), words, strict=True)
    ]
    return [item.unit.text for item in select(evidence, 4)]


def test_select__quotes_no_code_that_answers_another_question() -> None:
    text = "The queue has a length.\n\nIts tenant is shown so:\n\n```sh\nkosmos-rag tenants\n```\n"
    assert _select_by_words(text, (1.0, 0.1, 0.1)) == ["The queue has a length."]


def test_select__quotes_a_command_whose_words_are_in_its_introduction() -> None:
    assert _select_by_words(f"A queue holds jobs.\n\n{CODE}", (1.0, 0.9, 0.1, 0.1))[1:] == [
        "The queue is shown by this command:", "```sh\nkosmos-rag jobs\n```",
    ]  # fmt: skip


def test_select__quotes_items_with_the_label_above_them() -> None:
    text = "**prepack** (before 2.0)\n* Runs before a tarball is packed.\n\n**postpack**\n* Runs after it is made.\n"
    assert _answer(text, [0.1, 0.9, 0.1, 0.1]) == ["**prepack** (before 2.0)", "* Runs before a tarball is packed."]


def test_select__quotes_lists_of_a_block_quote_whole() -> None:
    text = "> The worker is restarted so:\n>\n> - Stop the timer.\n>\n> - Start the worker.\n"
    assert _answer(text, [0.9, 0.1, 0.1]) == [
        "> The worker is restarted so:", "> - Stop the timer.", "> - Start the worker.",
    ]  # fmt: skip


def test_select__quotes_what_a_colon_announces_after_its_sentence() -> None:
    text = "The most that is used is:\n\n    clients + pools\n\nIt is never reached."
    assert _answer(text, [0.9, 0.1, 0.1]) == ["The most that is used is:", "clients + pools"]
    assert _answer(text, [0.1, 0.9, 0.1]) == ["clients + pools"]


def test_select__does_not_join_lists_with_text_between_them() -> None:
    text = "- One\n- Two\n\nOther things:\n\n- Three\n- Four"
    assert _answer(text, [0.9, 0.9, 0.1, 0.1, 0.1], limit=4) == ["- One", "- Two"]


def test_render__keeps_a_whole_list_as_a_list() -> None:
    of = passage(RESTART)
    evidence = [
        Evidence(passage=of, unit=unit, parts={"meaning": score}, words=0.0)
        for unit, score in zip(units(RESTART), [0.9, 0.1, 0.1, 0.1, 0.1], strict=True)
    ]
    assert render([sentence(item) for item in select(evidence, 1)]) == (
        "The worker is restarted so: [1]\n\n"
        "1. Stop the timer. [1]\n2. Wait for the queue. [1]\n3. Start the worker. [1]"
    )

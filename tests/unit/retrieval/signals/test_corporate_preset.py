"""The preference of the corporate preset: the factors that its users asked for, exactly."""

import pytest

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import load
from kosmos_rag.retrieval.signals.apply import Signals, build_signal_rules
from tests.unit.retrieval.signals.passages import build_query, passage


@pytest.mark.parametrize("preset", ["corporate", "corporate-enforced"])
@pytest.mark.parametrize(
    ("principals", "department", "factor"),
    [
        (("department:hr",), "hr", 1.2),
        (("department:hr",), "it", 0.9),
        (("department:hr", "role:Manager"), "it", 1.0),
        (("department:hr", "role:Executive"), "hr", 1.0),
        (("role:Admin",), "it", 1.0),
        (("department:it", "role:SysAdmin"), "hr", 1.0),
        (("department:finance", "role:Auditor"), "finance", 1.0),
        (("role:SecurityAnalyst",), "security", 1.15),
        (("role:SecurityAnalyst",), "it", 1.15),
        (("role:SecurityAnalyst",), "general", 1.15),
        (("role:SecurityAnalyst",), "hr", 1.0),
        (("department:security", "role:SecurityAnalyst"), "security", 1.2 * 1.15),
        (("department:security", "role:SecurityAnalyst"), "finance", 0.9),
        ((), "hr", 1.0),
    ],
)
def test_corporate__moves_scores_by_department_and_role(
    preset: str, principals: tuple[str, ...], department: str, factor: float
) -> None:
    values = load(preset, Settings(), validate=build_signal_rules).apply(Settings()).rag
    hit = passage(score=0.5, source=f"/kb/{department}/policy.pdf")
    result = Signals(values.signals, values.intents).apply(build_query("?", *principals), [hit], ahead=lambda _: False)
    assert result.passages[0].score == pytest.approx(factor)


def test_corporate__drops_what_is_below_a_tenth_of_the_best() -> None:
    values = load("corporate", Settings(), validate=build_signal_rules).apply(Settings()).rag
    hits = [passage(score=score) for score in (1.0, 0.11, 0.09)]
    result = Signals(values.signals, values.intents).apply(build_query("?"), hits, ahead=lambda _: False)
    assert [hit.score for hit in result.passages] == pytest.approx([1.0, 0.11])

"""The comparison of names and subjects."""

import pytest

from kosmos_rag.scim.names import fold_name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Anna@Example.org", "anna@example.ORG"),
        ("caf\u00e9", "CAFE\u0301"),
        ("\u0130", "I\u0307"),
        ("\u03a3", "\u03c3"),
        ("\u1e69", "s\u0307\u0323"),
    ],
)
def test_fold_name__forms_of_one_name_are_equal(first: str, second: str) -> None:
    assert fold_name(first) == fold_name(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("wei\u00dfkate", "weisskate"),
        ("\ufb01n", "fin"),
        ("\u212aate", "Kate"),
        ("\u212aate", "kate"),
        ("\u0130an", "ian"),
        ("\u0131an", "Ian"),
        ("\u017fam", "sam"),
        ("\u03f4", "\u03b8"),
        ("\uff41", "a"),
    ],
)
def test_fold_name__names_of_two_subjects_differ(first: str, second: str) -> None:
    assert fold_name(first) != fold_name(second)

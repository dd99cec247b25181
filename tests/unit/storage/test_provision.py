"""Which password a new role gets."""

import pytest

from kosmos_rag.storage.provision import _password


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("postgresql://kosmos_app:s%40fe@host/kosmos", "s@fe"),
        ("postgresql://kosmos_app.abcdefgh:safe@pooler:5432/postgres", "safe"),
        ("postgresql://kosmos_application:safe@host/kosmos", None),
        ("postgresql://kosmos_app@host/kosmos", None),
        ("host=/tmp user=kosmos_app password=safe", None),
        (None, None),
    ],
)
def test_password__is_that_of_the_role_with_or_without_a_project(url: str | None, password: str | None) -> None:
    assert _password(url, "kosmos_app") == password

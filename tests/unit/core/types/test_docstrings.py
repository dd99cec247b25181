"""Docstrings of fields, which Python keeps in the source alone."""

import ast
import inspect
from itertools import pairwise

import pytest

import kosmos_rag
from kosmos_rag.core.types.docstrings import Described, field_docstrings

EXPORTED = [getattr(kosmos_rag, name) for name in kosmos_rag.__all__]
KINDS = [kind for kind in EXPORTED if isinstance(kind, type) and issubclass(kind, Described)]


def _read_syntax_tree(kind: type) -> dict[str, str]:
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def test_field_docstrings__are_read_without_a_syntax_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {kind: _read_syntax_tree(kind) for kind in KINDS}
    assert sum(map(len, expected.values())) > 50
    monkeypatch.setattr(ast, "parse", None)
    assert {kind: field_docstrings(kind) for kind in KINDS} == expected


def test_field_docstrings__of_a_class_without_a_source_are_none() -> None:
    assert field_docstrings(type("Made", (Described,), {})) == {}

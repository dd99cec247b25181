"""/docs: the OpenAPI document as a page, without a sign-in and without scripts of others."""

import re
from html import unescape

import pytest

from tests.integration.apps.http.serving import Running

pytestmark = pytest.mark.usefixtures("tenant_name")


def test_docs__describe_every_operation_under_a_strict_policy(running: Running) -> None:
    with running.client("") as client:
        page = client.get("/docs", headers={"accept": "text/html"})
        document = client.get("/openapi.json").json()
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "style=" not in page.text
    assert set(re.findall(r'<script[^>]+src="([^"]+)"', page.text)) == set(
        re.findall(r'"(/assets/\w+/console\.js)"', page.text)
    )
    text = unescape(re.sub(r"<[^>]+>", "", page.text))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()} {path}" in text
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description", "") in text
    assert "curl -X POST" in text
    assert "Authorization: Bearer $KEY" in text
    for name in document["components"]["schemas"]:
        assert f'id="schema-{name}"' in page.text
    linked = set(re.findall(r'href="#([^"]+)"', page.text)) - {"main"}
    assert linked <= set(re.findall(r'id="([^"]+)"', page.text))


def test_docs__show_no_name_of_host_as_code(running: Running) -> None:
    with running.client("") as client:
        page = client.get("/docs", headers={"host": "a'<b>"})
    assert "<b>" not in page.text

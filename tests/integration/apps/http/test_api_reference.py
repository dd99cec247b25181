"""/docs: the OpenAPI document by Swagger UI, without a sign-in and without files of other hosts."""

import re

import pytest

from tests.integration.apps.http.serving import Running

pytestmark = pytest.mark.usefixtures("tenant_name")


def test_docs__load_swagger_ui_from_the_service_under_a_strict_policy(running: Running) -> None:
    with running.client("") as client:
        page = client.get("/docs", headers={"accept": "text/html"})
        paths = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text)
        assets = {path.rpartition("/")[2]: client.get(path) for path in paths}
        document = client.get("/openapi.json")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;" in policy
    )
    assert "unsafe" not in policy
    assert "style=" not in page.text
    assert re.findall(r"<script(?![^>]* src=)", page.text) == []
    assert {asset.status_code for asset in assets.values()} == {200}
    assert "SwaggerUIBundle" in assets["swagger-ui-bundle.js"].text
    assert ".swagger-ui" in assets["swagger-ui.css"].text
    address = re.search(r'url: "([^"]+)"', assets["api.js"].text)
    assert address is not None
    assert address[1] == document.request.url.path
    assert document.json()["openapi"].startswith("3.")


def test_docs__show_no_name_of_host_as_code(running: Running) -> None:
    with running.client("") as client:
        page = client.get("/docs", headers={"host": "a'<b>"})
    assert "<b>" not in page.text

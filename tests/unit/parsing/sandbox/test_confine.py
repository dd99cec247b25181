"""What a process can no longer do, tried in one that has nothing to lose."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
LIMITED = """
import json, os, resource, sys
from kosmos_rag.parsing.sandbox.limits import keep_only, limit_resources

kept = int(sys.argv[1])
spare = os.open(os.devnull, os.O_RDONLY)
keep_only(kept)
limit_resources(memory_bytes=2**30, cpu_s=7)

def works(action):
    try:
        action()
    except (OSError, MemoryError):
        return False
    return True

def write():
    with open(sys.argv[2], "w") as file:
        file.write("words")

said = {
    "reads a closed file": works(lambda: os.read(spare, 1)),
    "writes a file": works(write),
    "takes two gigabytes": works(lambda: bytearray(2**31)),
    "cpu": resource.getrlimit(resource.RLIMIT_CPU)[0],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
}
os.write(kept, json.dumps(said).encode())
"""
ALONE = """
import json, os, socket
from kosmos_rag.parsing.sandbox.limits import leave_network

leave_network()

def works(action):
    try:
        action()
    except OSError:
        return False
    return True

def connect():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.connect(("192.0.2.1", 9))

environment = f"/proc/{os.getppid()}/environ"
print(json.dumps([works(connect), works(lambda: open(environment).read())]))
"""


def test_confine__limits_and_descriptors(tmp_path: Path) -> None:
    read, write = os.pipe()
    arguments = [str(write), str(tmp_path / "written")]
    with os.fdopen(read) as pipe:
        subprocess.run([sys.executable, "-c", LIMITED, *arguments], check=True, pass_fds=[write], cwd=ROOT)
        os.close(write)
        message: dict[str, Any] = json.load(pipe)
    expected: dict[str, Any] = {"reads a closed file": False, "writes a file": False, "cpu": 7, "files": 64, "core": 0}
    # macOS does not limit address space.
    assert message == expected | {"takes two gigabytes": sys.platform == "darwin"}


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_confine__no_network_and_no_sight_of_its_owner() -> None:
    """The process of a parser has no network and no access to the data of its owner."""
    allowed = subprocess.run(["unshare", "--user", "--net", "true"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip("this kernel lets no ordinary user make a namespace")
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # else numpy starts one for each core
    command = [sys.executable, "-c", ALONE]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=one_thread)
    assert json.loads(ended.stdout) == [False, False]

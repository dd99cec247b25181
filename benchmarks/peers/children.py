"""The peers. Each is a script that runs as a child in the peers' environment."""

import os
import re
import subprocess
from pathlib import Path

from benchmarks.peers.exchange import Outcome

PEERS = {"langchain": "LangChain", "llama_index": "LlamaIndex", "txtai": "txtai"}
FLOOR = {"in_memory": "in memory"}
"""Names of the scripts, and what the tables call them."""

_REPOSITORY = Path(__file__).parents[2]
_PYTHON = _REPOSITORY / ".venv-peers" / "bin" / "python"
_TIMEOUT_S = 600
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception): ")


class PeerFailed(Exception):
    """A peer could not be measured; the message has the reason, in one line."""


def environment() -> Path | None:
    """Return the interpreter of the peers; None where their environment has not been made."""
    return _PYTHON if _PYTHON.is_file() else None


def require_environment() -> None:
    """Exit with a clear word where the peers' environment has not been made."""
    if environment() is None:
        raise SystemExit(f"the peers have no environment at {_PYTHON.parents[1]}; run `make bench`, which makes it")


def measure(script: str, folder: Path, url: str, rounds: int) -> Outcome:
    """Let a peer store and answer what is in the folder. Raises PeerFailed."""
    out = folder / f"{script}.json"
    arguments = {"--folder": folder, "--url": url, "--rounds": rounds, "--out": out}
    options = [str(part) for pair in arguments.items() for part in pair]
    try:
        process = subprocess.run(
            [_PYTHON, "-m", f"benchmarks.peers.{script}", *options],
            cwd=_REPOSITORY,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerFailed(f"stopped after {_TIMEOUT_S} s") from error
    if process.returncode != 0:
        raise PeerFailed(_reason(process.stderr) or f"ended with {process.returncode}")
    return Outcome.read(out)


def _reason(output: str) -> str:
    """Return the line of a traceback that names the exception: some libraries write more after it."""
    lines = output.strip().splitlines()
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    return (exceptions or lines or [""])[-1][:200]

"""An AWS on loopback that really deploys CloudFormation templates: ministack, in an environment of its own.

It pins a botocore of its own, so it cannot live in the environment of the tests.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.doubles.servers import running

REQUIREMENT = "ministack==1.5.33"
REGION = "us-west-2"
ACCOUNT = "000000000000"


@contextmanager
def ministack(folder: Path) -> Iterator[str]:
    """The endpoint of a running ministack, whose files lie in ``folder``; it ends on the way out."""
    program = _installed(folder / "venv")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Without these it would listen on every address, and on more ports than the one.
    options = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "IOT_MTLS_ENABLED": "0", "SFTP_ENABLED": "0"}
    state = {"STATE_DIR": str(folder / "state"), "TMPDIR": str(folder), "MINISTACK_REGION": REGION}
    log = folder / "log"
    endpoint = f"http://127.0.0.1:{port}"
    with running([program], log, env={**os.environ, **options, **state}) as process:
        for _ in range(300):
            assert process.poll() is None, log.read_text()[-2000:]
            if _answers(endpoint):
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"ministack does not answer: {log.read_text()[-2000:]}")
        yield endpoint


def _installed(venv: Path) -> str:
    """Its program; uv takes it from its cache where a run before had it."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    assert uv, "uv is a dependency of this package"
    folder = str(venv)
    for words in (["venv", "--python", sys.executable, folder], ["pip", "install", "--python", folder, REQUIREMENT]):
        done = subprocess.run([uv, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return str(venv / "bin" / "ministack")


def _answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint}/_ministack/health", timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False

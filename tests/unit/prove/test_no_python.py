"""A base image in which the probe program cannot run, as one without Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.core.errors import EngineError, ProofFailed
from trainwright.prove import probe

# apocas/dockerode#654 has the text, of another program. Docker's reference of `docker run` has the exit codes: 125 is
# Docker's own, 127 is that of a command that is not in the container.
SAID = (
    "docker: Error response from daemon: failed to create shim: OCI runtime create failed: runc create failed: "
    'unable to start container process: exec: "python3": executable file not found in $PATH: unknown.'
)


def client(folder: Path, code: int, said: str) -> str:
    """A client that describes an image and cannot run its program."""
    path = folder / "docker"
    path.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"run) cat > /dev/null; echo '{said}' >&2; exit {code} ;;\n"
        'image) echo \'[{"Id": "sha256:1", "Config": {}, "RootFS": {"Layers": []}}]\' ;;\n'
        "esac\n"
    )
    path.chmod(0o755)
    return str(path)


def test_an_image_without_python_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProofFailed, match=r"example/aws:1 has no python3 on PATH") as failed:
        probe.probe(client(tmp_path, 127, SAID), "example/aws:1", {})
    assert "Extend another image" in failed.value.remedy
    assert failed.value.exit_code == 6


@pytest.mark.parametrize(
    ("code", "kind", "says"), [(125, EngineError, "could not run"), (1, ProofFailed, "exit status 1")]
)
def test_other_failures_say_what_failed(tmp_path: Path, code: int, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        probe.probe(client(tmp_path, code, "no"), "example/aws:1", {})

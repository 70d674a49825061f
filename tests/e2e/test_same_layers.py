"""One plan and one lock, built by engines whose disk is empty: two of this machine's own make the same layers, and that
of Debian's next release makes the same file system.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.packages import unpacked
from tests.doubles.remote_builder import RELEASE, buildx_configuration, remote_builder
from trainwright.build.context import write_context
from trainwright.engine.engine import find_client
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import load_site
from trainwright.sources.fetch import fetch_base
from trainwright.sources.gather import gather

DIGEST = "{{json .RootFS.Layers}}"


def said(line: str) -> None:
    print(line)


def build(endpoint: str, context: Path, secrets: dict[str, Path], archive: Path) -> list[str]:
    """Build a context with an engine's own builder and write the image to ``archive``; the digests of its layers."""
    client = [find_client().path, "-H", endpoint]
    words = [word for name, path in secrets.items() for word in ("--secret", f"id={name},src={path}")]
    environment = {"DOCKER_BUILDKIT": "1", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    argv = [*client, "build", "--network", "host", "--tag", "same", *words, str(context)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    subprocess.run([*client, "save", "--output", str(archive), "same"], check=True)
    shown = subprocess.run([*client, "image", "inspect", "--format", DIGEST, "same"], capture_output=True, check=True)
    return list(json.loads(shown.stdout))


def entries(archive: Path) -> list[dict[str, Any]]:
    """Of each layer of a saved image: path to all that its digest depends on."""
    with tarfile.open(archive) as saved:
        (manifest,) = json.load(saved.extractfile("manifest.json"))  # type: ignore[arg-type]
        found = []
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=saved.extractfile(name)) as layer:
                rows = {}
                for entry in layer:
                    body = layer.extractfile(entry) if entry.isreg() else None
                    content = sha256(body.read()).hexdigest() if body else entry.linkname
                    rows[entry.name] = (entry.type, entry.mode, entry.uid, entry.gid, entry.mtime, content)
                found.append(rows)
    return found


def differences(one: Path, other: Path) -> list[str]:
    """What differs between the layers of two saved images, by number of the layer and path."""
    named = []
    for number, (a, b) in enumerate(zip(entries(one), entries(other), strict=True)):
        named += [
            f"layer {number}: {path}: {a.get(path)} {b.get(path)}" for path in {*a, *b} if a.get(path) != b.get(path)
        ]
        if list(a) != list(b) and a == b:
            named.append(f"layer {number}: another order")
    return sorted(named)


def root_of(archive: Path) -> dict[str, Any]:
    """The file system of a saved image: what a container finds."""
    files: dict[str, Any] = {}
    for layer in entries(archive):
        # What a layer hides is of those below it (OCI image format, layer.md: whiteouts).
        for folder, _, name in (path.rpartition("/") for path in layer if "/.wh." in f"/{path}"):
            opaque = name == ".wh..wh..opq"
            gone = folder if opaque else f"{folder}/{name.removeprefix('.wh.')}".strip("/")
            files = {
                path: row for path, row in files.items() if not path.startswith(f"{gone}/") and (opaque or path != gone)
            }
        for path, (kind, mode, *rest) in layer.items():
            if "/.wh." not in f"/{path}":
                # The classic store writes the kind of a file into its mode, too.
                files[path.strip("/")] = (kind, mode & 0o7777, *rest)
    return files


def made(machine: Any, context: Path, secrets: Path, archive: Path) -> list[str]:
    """The digests of the layers that a machine makes of a context."""
    with machine() as engine:
        return build(engine.endpoint, context, load_site().secrets(secrets), archive)


@pytest.fixture
def later_engine(tmp_path: Path) -> Any:
    """A context manager that starts the engine of Debian's next release, with its BuildKit and image store."""
    if os.geteuid() != 0 or shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("a second engine needs root and runc")
    unpacked("docker.io", release=RELEASE)
    configuration = buildx_configuration(tmp_path / "client")
    return lambda: remote_builder(Path(tempfile.mkdtemp(prefix="tw-")), configuration)


def test_two_machines_make_the_same_layers(small_catalog, spare_engine, later_engine, tmp_path):
    """Of a plan with what writes into an image in each way: the distribution's packages with a user of theirs, sshd's
    settings, packages of a lock and of a user, the user's code, bytecode, licences."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("import six\n")
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("six==1.17.0\n")
    layers, archives = [], []
    # The classic store of 20.10 encodes layers in another way than a current one, so digests are compared within one.
    for name, machine in (("one", spare_engine), ("other", spare_engine), ("later", later_engine)):
        # The context is written again too: its files have other times.
        request = make_request(
            framework="pytorch", cuda="cpu", code=str(code), entry_point="train.py", requirements=str(wanted)
        )
        context = tmp_path / name
        inputs = gather(resolve(request, small_catalog), small_catalog, load_site())
        write_context(fetch_base(inputs, say=said), context, say=said)
        archives.append(tmp_path / f"{name}.tar")
        layers.append(made(machine, context, tmp_path / f"secrets-{name}", archives[-1]))
    assert len(layers[0]) >= 5
    assert layers[0] == layers[1], "\n".join(differences(*archives[:2]))
    ours, later = root_of(archives[0]), root_of(archives[2])
    assert len(ours) > 5000
    unlike = [path for path in sorted({*ours, *later}) if ours.get(path) != later.get(path)]
    assert not unlike, "\n".join(f"{path}: {ours.get(path)} {later.get(path)}" for path in unlike)

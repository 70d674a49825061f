"""One plan and one lock, built on two machines: the same layers. Each machine is an engine whose disk is empty."""

from __future__ import annotations

import json
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.e2e.conftest import SpareEngine
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


def build(engine: SpareEngine, context: Path, secrets: dict[str, Path], archive: Path) -> list[str]:
    """Build a context with an engine's own builder and write the image to ``archive``; the digests of its layers."""
    client = [find_client().path, "-H", engine.endpoint]
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


def test_two_machines_make_the_same_layers(small_catalog, spare_engine, tmp_path):
    """Of a plan with what writes into an image in each way: the distribution's packages with a user of theirs, sshd's
    settings, packages of a lock and of a user, the user's code, bytecode, licences."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("import six\n")
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("six==1.17.0\n")
    layers, archives = [], []
    for name in ("one", "other"):
        # The context is written again too: its files have other times.
        request = make_request(
            framework="pytorch", cuda="cpu", code=str(code), entry_point="train.py", requirements=str(wanted)
        )
        site = load_site()
        context = tmp_path / name
        write_context(
            fetch_base(gather(resolve(request, small_catalog), small_catalog, site), say=said), context, say=said
        )
        archives.append(tmp_path / f"{name}.tar")
        with spare_engine() as engine:
            layers.append(build(engine, context, site.secrets(tmp_path / f"secrets-{name}"), archives[-1]))
    assert len(layers[0]) >= 5
    assert layers[0] == layers[1], "\n".join(differences(*archives))

"""A package of the user's with a C extension is compiled once: after the builder has forgotten it, its wheel comes from
the site's place, and one that somebody has changed there is refused."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import uuid
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import docker as docker_sdk
import pytest

from tests.doubles.registry import registry
from tests.e2e.conftest import SMALL_LINE
from tests.support import builds
from trainwright.build.options import BuildOptions
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.wheel_lock import PLATFORM
from trainwright.core.errors import SourceError
from trainwright.core.paths import cache_dir, images_dir, templates_dir
from trainwright.engine.engine import connect
from trainwright.plan.plan_lock import LockedPython, PlanLock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import load_site
from trainwright.sources.gather import gather
from trainwright.sources.inputs import Inputs

FILE = "twfast-1.0.tar.gz"
TAG = "trainwright-test/wheel-cache:1"
SETUP = """\
from setuptools import Extension, setup
setup(name="twfast", version="1.0", ext_modules=[Extension("twfast", ["twfast.c"])])
"""
MODULE = """\
#include <Python.h>
static struct PyModuleDef made = {PyModuleDef_HEAD_INIT, "twfast", "%s", -1, NULL};
PyMODINIT_FUNC PyInit_twfast(void) { return PyModule_Create(&made); }
"""


def source_package(mark: str) -> bytes:
    """A source package whose one module is in C, and has ``mark`` as its docstring."""
    out = io.BytesIO()
    info = "Metadata-Version: 2.1\nName: twfast\nVersion: 1.0\n"
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, text in {"setup.py": SETUP, "twfast.c": MODULE % mark, "PKG-INFO": info}.items():
            member = tarfile.TarInfo(f"twfast-1.0/{name}")
            member.size = len(text)
            made.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Inputs]:
    """What a build of the package in ``tmp_path`` takes in, at a site that keeps compiled wheels in some place."""
    line, required = tmp_path / "images/pytorch/cpu", tmp_path / "requirements.txt"
    line.mkdir(parents=True)
    shutil.copy(images_dir() / "pytorch/cpu/lock.json", line)
    compiler = '  compiler: {provider: debian, version: "12"}\nevidence'
    (line / "line.yaml").write_text(SMALL_LINE.replace("evidence", compiler))
    catalog = load_catalog(tmp_path / "images", templates_dir())
    required.write_text("twfast==1.0\n")
    plan = resolve(make_request(framework="pytorch", cuda="cpu", requirements=str(required)), catalog)
    content = (tmp_path / FILE).read_bytes()
    package = LockedPython(
        name="twfast", version="1.0", file=FILE, sha256=sha256(content).hexdigest(), component="user"
    )
    lock = PlanLock(plan=plan.id, request="-", python_version="3.11", platform=PLATFORM, user=(package,))
    site = load_site()
    site = site.replace(find_links=(*site.find_links, tmp_path))
    plan = plan.replace(tags=(TAG,))
    return lambda wheels: gather(plan, catalog, site.replace(wheels=wheels), lock)


def records(engine: docker_sdk.DockerClient) -> set[str]:
    """What the builder has in its cache."""
    return {row["ID"] for row in engine.df()["BuildCache"]}


def forget(docker: Callable[..., str], engine: docker_sdk.DockerClient, made: set[str]) -> None:
    """Have the builder forget these records, and nothing that others build with."""
    docker("rmi", "--force", TAG)
    while left := made & records(engine):
        for each in left:
            docker("builder", "prune", "--all", "--force", "--filter", f"id={each}")
        assert len(made & records(engine)) < len(left), "a record goes after those that are made from it"


def made_by(record: BuildRecord) -> list[str]:
    """The steps of a build that did not come from the cache."""
    assert record.timeline is not None
    return [step.text for step in record.timeline.steps if not step.cached]


def entry(package: Path) -> Path:
    """The entry of a package in this user's cache."""
    mark = sha256(package.read_bytes()).hexdigest()
    (found,) = (path for path in cache_dir().glob("compiled-wheels/*/wheel.json") if mark in path.read_text())
    return found.parent


def change(docker: Callable[..., str], reference: str, kept: Path, folder: Path) -> None:
    """Put another wheel than the kept one into a registry, with the record of that one."""
    (wheel,) = kept.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"more")
    with tarfile.open(folder / "layer.tar", "w") as layer:
        layer.add(kept, "wheel")
    docker("import", str(folder / "layer.tar"), reference)
    docker("push", "--quiet", reference)
    docker("rmi", reference)


def test_a_wheel_is_compiled_once_and_refused_when_it_was_changed(tmp_path, monkeypatch, docker, engine, request):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    mark = uuid.uuid4().hex  # so that no builder has compiled it
    (tmp_path / FILE).write_bytes(source_package(mark))
    made = request.getfixturevalue("made")

    def build(place: str) -> tuple[BuildRecord, str]:
        """The record, and what was said."""
        said: list[str] = []
        record = builds.build(made(place), connect(), options=BuildOptions(progress="none"), say=said.append)
        return record, "\n".join(said)

    with registry(tmp_path) as port:
        repository = f"127.0.0.1:{port}/team/wheels"
        try:
            before = records(engine)
            first, _ = build(f"oci://{repository}")
            assert [step for step in made_by(first) if "pip wheel" in step], "compiled once"
            kept = entry(tmp_path / FILE)
            shutil.rmtree(kept)
            forget(docker, engine, records(engine) - before)
            second, said = build(f"oci://{repository}")
            assert "twfast-1.0" in said
            assert made_by(second), "the builder has forgotten it"
            assert not [step for step in made_by(second) if "pip wheel" in step]
            assert [layer.digest for layer in second.layers] == [layer.digest for layer in first.layers]
            script = ("--entrypoint", "python3", TAG, "-c", "import twfast; print(twfast.__doc__)")
            assert docker("run", "--rm", "--network", "none", *script) == mark
            change(docker, f"{repository}:{kept.name}", kept, tmp_path)
            shutil.rmtree(kept)
            with pytest.raises(SourceError, match="has the sha256"):
                build(f"oci://{repository}")
        finally:
            docker("rmi", "--force", TAG, check=False)

"""Archives of build stages with a real engine: from mirrors, past what is wrong with them, and from nowhere.

The archive belongs to a component of this test and lies on servers of loopback alone.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support import builds
from tests.support.loopback import Loopback, dead_url, loopback, status, truncated
from trainwright.build.options import BuildOptions
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.tools import tools_lock
from trainwright.core.errors import Failure, SourceError
from trainwright.core.paths import state_dir
from trainwright.engine.engine import connect
from trainwright.plan.plan import PlannedSource
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import load_site
from trainwright.sources.gather import gather

TAG = "trainwright-test/sources:1"
FILE = "gadget-1.0.tar.gz"
TEMPLATE = """\
{% import "macros.j2" as docker with context %}
{% macro stages(c) %}
FROM toolchain AS gadget
WORKDIR /src
{{ docker.fetch(c) }}
RUN tar -xzf {{ c.archives[0].file }}
{% endmacro %}
{% macro residue(c) %}
COPY --from=gadget /src/gadget /opt/gadget
{% endmacro %}
"""


def archive(text: str) -> bytes:
    """A gzipped tar archive of one file with this text."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        info = tarfile.TarInfo("gadget")
        info.size = len(text)
        made.addfile(info, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


def write_gadget(templates: Path, source: Mapping[str, Any]) -> None:
    """A component whose only archive is what a test serves."""
    component = {
        "name": "gadget",
        "summary": "a test",
        "order": 70,
        "providers": {
            "source": {
                "about": "a test",
                "versions": {"1.0": {"sources": [source]}},
                "expect": {"file": "gadget {version}"},
            }
        },
        "probe": [{"run": "test -e /opt/gadget && echo gadget 1.0", "match": {"file": "^(.+)$"}}],
    }
    own = templates / "components" / "gadget"
    own.mkdir(exist_ok=True)
    (own / "component.yaml").write_text(json.dumps(component))
    (own / "Dockerfile.j2").write_text(TEMPLATE)
    (own / "test_gadget.py").write_text("def test_gadget(host):\n    host.check_output('test -e /opt/gadget')\n")


@dataclass
class Bench:
    """A catalog with the component of this test, an archive that no cache has seen, and a server."""

    folder: Path
    server: Loopback
    docker: Callable[..., str]
    text: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.content = archive(self.text)
        self.sha256 = sha256(self.content).hexdigest()

    def build(self, *urls: str, skip_check: bool = True, **site: object) -> BuildRecord:
        """Build with an archive from these places; the check beforehand is left out unless it is the matter."""
        source = {"file": FILE, "sha256": self.sha256, "url": urls[0], "mirrors": list(urls[1:])}
        write_gadget(self.folder / "templates", source)
        line = self.folder / "images" / "pytorch" / "cpu" / "line.yaml"
        text = line.read_text()
        if "gadget" not in text:
            line.write_text(
                text.replace("components:\n", 'components:\n  gadget: {provider: source, version: "1.0"}\n')
            )
        catalog = load_catalog(self.folder / "images", self.folder / "templates")
        plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog)
        plan = plan.replace(tags=(TAG,))
        here = load_site().replace(build_network="host", **site)
        options = BuildOptions(progress="none", skip_source_check=skip_check)
        return builds.build(gather(plan, catalog, here), connect(setup=False), options=options, say=lambda _: None)

    def refused(self, *urls: str, **more: object) -> SourceError:
        """The failure of a build that cannot have its archive; no tag was moved."""
        with pytest.raises(SourceError) as failed:
            self.build(*urls, **more)  # type: ignore[arg-type]
        assert failed.value.exit_code == 8
        assert not self.docker("images", "--quiet", TAG)
        return failed.value

    @property
    def installed(self) -> str:
        """What the image holds of the archive."""
        return self.docker("run", "--rm", "--network", "none", TAG, "cat", "/opt/gadget")


@pytest.fixture
def bench(tmp_path, monkeypatch, docker, small_catalog) -> Iterator[Bench]:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    with loopback() as server:
        try:
            yield Bench(tmp_path / "catalog", server, docker)
        finally:
            docker("rmi", "--force", TAG, check=False)


@pytest.mark.parametrize("kind", ["dead", "missing", "truncated", "changed"])
def test_a_mirror_stands_in_for_a_url_that_is(bench, kind):
    url = f"{bench.server.url}/up.tar.gz"
    wrong = {"missing": status(404), "truncated": truncated(bench.content), "changed": archive("other")}
    bench.server.pages = {"/up.tar.gz": wrong.get(kind, b""), "/mirror.tar.gz": bench.content}
    record = bench.build(dead_url() if kind == "dead" else url, f"{bench.server.url}/mirror.tar.gz")
    assert bench.installed == bench.text
    assert bench.server.asked[-1] == "/mirror.tar.gz"
    # Nothing is asked again while nothing changed.
    asked = len(bench.server.asked)
    again = bench.build(dead_url() if kind == "dead" else url, f"{bench.server.url}/mirror.tar.gz")
    if kind != "dead":  # its port differs
        assert again.cached
        assert again.image_id == record.image_id
        assert len(bench.server.asked) == asked


def test_an_archive_that_no_place_has_ends_with_8(bench):
    bench.server.pages = {"/changed": archive("other"), "/cut": truncated(bench.content)}
    dead = dead_url()
    urls = [dead, f"{bench.server.url}/missing", f"{bench.server.url}/cut", f"{bench.server.url}/changed"]
    failure = bench.refused(*urls)
    details = failure.details
    assert (details["component"], details["file"], details["urls"]) == ("gadget", FILE, urls)
    assert (details["expected"], details["found"]) == (bench.sha256, sha256(archive("other")).hexdigest())
    reasons = [row["why"] for row in details["tried"]]
    for reason, word in zip(reasons, ["curl: (7)", "404", "curl: (18)", "has the sha256"], strict=True):
        assert word in reason
    assert "artifact_mirror" in failure.remedy
    # With a mirror the same request goes on.
    bench.server.pages[f"/m/{FILE}"] = bench.content
    bench.build(*urls, artifact_mirror=f"{bench.server.url}/m")
    assert bench.installed == bench.text


@pytest.mark.parametrize("deep", [True, False])
def test_the_artifact_mirror_comes_first_and_leaves_no_trace(bench, deep):
    word = f"w{uuid.uuid4().hex}"
    path = f"/{word}/{bench.sha256[:2]}/{bench.sha256}/{FILE}" if deep else f"/{word}/{FILE}"
    bench.server.pages = {path: bench.content}
    host = bench.server.url.removeprefix("http://")
    record = bench.build(f"{bench.server.url}/up", artifact_mirror=f"http://me:{word}@{host}/{word}")
    assert bench.installed == bench.text
    assert bench.server.asked[-1] == path
    assert "/up" not in bench.server.asked
    assert all("Authorization" in headers for headers in bench.server.headers)
    shown = bench.docker("history", "--no-trunc", TAG) + bench.docker("image", "inspect", TAG)
    assert word not in shown
    kept = [p for p in state_dir().rglob("*") if p.is_file() and not p.is_relative_to(state_dir() / "logs")]
    assert record.folder / "Dockerfile" in kept
    assert not [str(p) for p in kept if p.stat().st_size < 50_000_000 and word.encode() in p.read_bytes()]
    logs = "".join(p.read_text() for p in (state_dir() / "logs").iterdir())
    assert f"me:{word}" not in logs
    # Nor in a layer, where the archive's own text is.
    assert not in_layers(bench, word)
    assert in_layers(bench, bench.text)


def in_layers(bench: Bench, word: str) -> bool:
    """Whether a word is anywhere in the saved image, whose layers are plain tar archives."""
    saved = bench.folder / "image.tar"
    bench.docker("save", "--output", str(saved), TAG)
    tail, found = b"", False
    with saved.open("rb") as stream:
        while chunk := stream.read(1 << 22):
            found = found or word.encode() in tail + chunk
            tail = chunk[-200:]
    saved.unlink()
    return found


@pytest.mark.parametrize("deep", [True, False])
def test_the_artifact_mirror_may_be_a_folder(bench, tmp_path, deep):
    path = tmp_path / "archives" / (f"{bench.sha256[:2]}/{bench.sha256}/{FILE}" if deep else FILE)
    path.parent.mkdir(parents=True)
    path.write_bytes(bench.content)
    # The check beforehand is content with it as well: nothing has to be reached.
    record = bench.build(dead_url(), artifact_folder=tmp_path / "archives", skip_check=False)
    assert bench.installed == bench.text
    assert str(tmp_path / "archives") not in (record.folder / "Dockerfile").read_text()
    assert str(tmp_path / "archives") not in bench.docker("history", "--no-trunc", TAG)


def test_what_does_not_answer_stops_a_build_before_its_first_step(bench):
    bench.server.pages = {"/silent": bench.server.silent}
    started = time.monotonic()
    failure = bench.refused(f"{bench.server.url}/silent", f"{bench.server.url}/missing", skip_check=False)
    assert time.monotonic() - started < 8
    assert "no answer within 5 s" in failure.message
    assert "status 404" in failure.message
    assert "--skip-source-check" in failure.remedy
    assert not (state_dir() / "logs").exists(), "no step ran"
    bench.server.pages["/late"] = bench.content
    bench.build(f"{bench.server.url}/silent2", f"{bench.server.url}/late", skip_check=False)
    assert bench.installed == bench.text


def test_a_registry_that_does_not_answer_stops_a_build(small_catalog, tmp_path, monkeypatch, docker):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    image = f"{dead_url().removeprefix('http://')}/no/base:1"
    site = load_site().replace(base_image=image)
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), small_catalog, image)
    options = BuildOptions(progress="none")
    with pytest.raises(SourceError) as refused:
        builds.build(gather(plan, small_catalog, site), connect(setup=False), options=options, say=lambda _: None)
    assert f"base image {image}" in refused.value.message
    assert "base_image" in refused.value.remedy


def test_a_package_with_another_hash_ends_with_8(small_catalog, tmp_path, monkeypatch, docker):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), small_catalog)
    tool = next(p for p in tools_lock("3.11").packages if p.name == "setuptools")
    wrong = PlannedSource(package=f"{tool.name}=={tool.version}", file=tool.file, sha256="0" * 64)
    components = tuple(c.replace(sources=(wrong,)) if c.name == "python" else c for c in plan.components)
    plan = plan.replace(components=components, tags=(TAG,))
    options = BuildOptions(progress="none")
    with pytest.raises(Failure) as refused:
        builds.build(
            gather(plan, small_catalog, load_site()), connect(setup=False), options=options, say=lambda _: None
        )
    assert refused.value.exit_code == 8
    details = refused.value.details
    assert (details["component"], details["file"]) == ("python", f"setuptools=={tool.version}")
    assert (details["expected"], details["found"]) == ("0" * 64, tool.sha256)
    assert not docker("images", "--quiet", TAG)

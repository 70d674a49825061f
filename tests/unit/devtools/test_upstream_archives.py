"""Archives of tags, made from a clone and held against the catalog."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from devtools.checks import ChecksFailed
from devtools.upstream_archives import compare, make_archive, tag_archives
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.errors import RequestError

COMPONENT = """\
name: hello
summary: says hello
order: 70
providers:
  source:
    about: hello
    versions: {versions}
    archive: {{file: "hello-{{version}}.tar.gz", url: "https://github.com/someone/hello/archive/v{{version}}.tar.gz"}}
    expect: {{version: "{{version}}"}}
probe:
  - run: hello --version
    match: {{version: '^([0-9.]+)$'}}
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the tag v1.0, of a moment in the past."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "hello.c").write_text("int main() { return 0; }\n")
    (folder / ".gitattributes").write_text("secret export-ignore\n")
    (folder / "secret").write_text("not for archives\n")
    who = {f"GIT_{kind}_{what}": value for kind in ("AUTHOR", "COMMITTER") for what, value in
           (("NAME", "a"), ("EMAIL", "a@example.org"), ("DATE", "2020-02-02T02:02:02Z"))}  # fmt: skip
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "hello"), ("tag", "v1.0")):
        subprocess.run(["git", *words], cwd=folder, env={**os.environ, **who}, check=True)
    return folder


def catalog(tmp_path: Path, versions: str) -> Catalog:
    own = tmp_path / "catalog" / "components" / "hello"
    own.mkdir(parents=True)
    (own / "component.yaml").write_text(COMPONENT.format(versions=versions))
    (own / "Dockerfile.j2").write_text("{% macro stages(c) %}{% endmacro %}{% macro residue(c) %}{% endmacro %}")
    (own / "test_hello.py").write_text("def test_hello(host):\n    assert host.run('hello').rc == 0\n")
    (tmp_path / "catalog" / "rules.yaml").write_text("rules: []\n")
    (tmp_path / "images").mkdir()
    return load_catalog(tmp_path / "images", tmp_path / "catalog")


def test_an_archive_is_as_github_makes_it(tmp_path, clone):
    # Its documentation, "Downloading source code archives": what git archive writes, for a tag of the name v1.0 in the
    # folder hello-1.0; gzip(1) with -n leaves name and time out.
    (archive,) = tag_archives(catalog(tmp_path, "{'1.0': {}}"))
    made = make_archive(clone, archive)
    assert made is not None
    assert made[:2] == b"\x1f\x8b"
    assert made[3:8] == b"\0\0\0\0\0"  # RFC 1952: flags, then four bytes of time
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(made))) as tar:
        assert tar.getnames() == ["hello-1.0", "hello-1.0/.gitattributes", "hello-1.0/hello.c"]
        assert {entry.mtime for entry in tar} == {1580608922}  # date -d 2020-02-02T02:02:02Z +%s


def test_each_checksum_is_told_and_what_nobody_published_is_written(tmp_path, clone):
    found = catalog(tmp_path, "{'1.0': {}, '1.1': {}}")
    written = tmp_path / "written"
    rows = [line.split() for line in compare(found, [f"someone/hello={clone}"], written, say=print).splitlines()]
    digest = sha256((written / "hello-1.0.tar.gz").read_bytes()).hexdigest()
    assert rows == [
        ["hello", "1.0", "v1.0", digest, "not", "recorded"],
        ["hello", "1.1", "v1.1", "-", "no", "such", "tag", "in", "the", "clone"],
    ]
    assert [path.name for path in written.iterdir()] == ["hello-1.0.tar.gz"]


def test_another_checksum_is_a_failure_and_its_archive_is_not_written(tmp_path, clone):
    found = catalog(tmp_path, f"{{'1.0': {{sha256: {'ab' * 32}}}}}")
    with pytest.raises(ChecksFailed, match="1 of 1"):
        compare(found, [f"someone/hello={clone}"], tmp_path / "written", say=print)
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    "clones", [[], ["hello"], ["hello=clone"], ["someone/hello=missing"], ["someone/other=clone"], ["someone/hello=."]]
)
def test_a_clone_that_cannot_be_used(tmp_path, clone, clones, monkeypatch):
    found = catalog(tmp_path, "{'1.0': {}}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(RequestError):
        compare(found, clones, None, say=print)

"""Files and environments that somebody got wrong, or meant to be wrong: one clear error each, and nothing goes on.

Each row is a real try: the whole reader is called, as the verbs call it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs import write_own
from tests.support.tries import Try
from trainwright.build import store
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.wheel_lock import Lock
from trainwright.core import paths
from trainwright.core.errors import RequestError
from trainwright.core.hashes import KnownHashes
from trainwright.plan.plan_lock import PlanLock
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request, parse_cuda
from trainwright.plan.resolve import resolve
from trainwright.push import history
from trainwright.rehearse.flags import distribution_of, table_of

PROOF = "touch /PWNED"
pytestmark = pytest.mark.usefixtures("own_places")


# ---- a folder of one's own with a line and a component ---------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog with one component and one line that holds it."""
    monkeypatch.setenv("TRAINWRIGHT_CATALOG", str(tmp_path / "own"))
    return write_own(tmp_path / "own")


LINE = "images/pytorch/cpu-py312/line.yaml"
COMPONENT = "templates/components/hello/component.yaml"
BAD_DATA = [
    (LINE, 'python: "3.12"', rf'python: "3.12\nRUN {PROOF}"', "python"),
    (LINE, 'python: "3.12"', 'python: "3.١٢"', "python"),
    (LINE, 'python: "3.12"', 'python: "3.12"\nas_of: 2022-13-45', "2022-13-45"),
    (LINE, 'python: "3.12"', 'python: "3.12"\nas_of: 2022-10-05', "quotes"),
    (LINE, 'python: "3.12"', 'python: "3.12"\npython: "3.11"', "duplicate key 'python'"),
    (LINE, 'python: "3.12"', f'python: "3.12"\nconstraints: ["numpy<2\\nRUN {PROOF}"]', "constraints"),
    (LINE, 'python: "3.12"', 'python: "3.12"\nexcluded: ["--index-url=http://x"]', "excluded"),
    (LINE, "version: '2.10'", rf"version: '2.10', index: \"https://x/\nRUN {PROOF}\"", "index"),
    (LINE, "version: '2.10'", "version: '2.10', index: 'file:///etc'", "index"),
    (LINE, "version: '2.10'", f'version: "2.10\\nRUN {PROOF}"', "version"),
    (LINE, "version: '2.10'", "version: '2.10', packages: ['-r /etc/passwd']", "packages"),
    (LINE, "version: '2.10'", "version: '2.10', packages: ['torch==2.6.0 --hash=x']", "packages"),
    (LINE, "hello: {provider: debian", "'he llo': {provider: debian", "components"),
    (LINE, 'python: "3.12"', "python: 3.12", "quotes"),
    (COMPONENT, "run: [hello]", f'run: ["hello\\nRUN {PROOF}"]', "apt.run"),
    (COMPONENT, "run: [hello]", "run: ['-oDpkg::Pre-Invoke=touch']", "apt.run"),
    (COMPONENT, "HELLO: 'yes'", f'HELLO: "yes\\nRUN {PROOF}"', "environment.HELLO"),
    (COMPONENT, "HELLO: 'yes'", f'"HELLO\\nRUN {PROOF}": yes', "environment"),
    (COMPONENT, "HELLO: 'yes'", "HELLO: 'yes', HELLO: 'no'", "duplicate key 'HELLO'"),
    (COMPONENT, "about: hello", "about: hello\n    path: ['relative']", "path"),
    (COMPONENT, "about: hello", 'about: "\\e[31mhello"', "about"),
    (COMPONENT, "name: hello", "name: [" * 200_000, "nested"),
    (
        COMPONENT,
        "versions: {'2.10': {}}",
        "versions: {'2.10': {sources: [{file: a.tgz, url: 'file:///etc/passwd'}]}}",
        "url",
    ),
    (
        COMPONENT,
        "versions: {'2.10': {}}",
        "versions: {'2.10': {sources: [{file: '../a.tgz', url: 'https://x.example/a'}]}}",
        "file",
    ),
    (
        COMPONENT,
        "versions: {'2.10': {}}",
        "versions: {'2.10': {}}\n    archive: {file: 'a.tgz', url: 'https://x.example/$(id)'}",
        "url",
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "word"), BAD_DATA)
def test_a_line_or_component_that_is_wrong_names_file_and_field(
    own: Path, file: str, old: str, new: str, word: str
) -> None:
    text = (own / file).read_text()
    assert old in text
    (own / file).write_text(text.replace(old, new, 1))
    with pytest.raises(RequestError) as refused:
        load_catalog()
    assert str(own / file) in refused.value.message
    assert word in refused.value.message


BAD_TEMPLATES = {
    "no file": None,
    "an unknown name": "\n{% macro residue(c) %}\nRUN {{ nope }}\n{% endmacro %}",
    "an unknown macro": "\n\n{% macro residue(c) %}{{ aptt_install(1) }}{% endmacro %}",
    "an open block": "\n\n{% macro residue(c) %}",
    "a misspelt macro": "{% macro residu(c) %}RUN x{% endmacro %}",
    "an unknown template": "\n\n{% include 'nope.j2' %}",
    "no argument": "{% macro residue() %}x{% endmacro %}",
    "arithmetic": "\n\n{% macro residue(c) %}{{ 1 / 0 }}{% endmacro %}",
    "packages in the image": "{% import 'macros.j2' as docker with context %}{% macro residue(c) %}"
    "{{ docker.install_built({'name': 'x', 'sdists': [1]}) }}{% endmacro %}",
    "itself": "\n\n{% import 'hello/Dockerfile.j2' as x %}",
    "another encoding": b"\xff\xfe",
}


@pytest.mark.parametrize("name", BAD_TEMPLATES)
def test_a_template_that_is_wrong_names_file_and_line(own: Path, name: str) -> None:
    catalog = load_catalog()
    plan = resolve(make_request(framework="pytorch", cuda="cpu", python="3.12"), catalog)
    file, text = own / "templates/components/hello/Dockerfile.j2", BAD_TEMPLATES[name]
    file.unlink()
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RequestError, match=r"hello/Dockerfile\.j2") as refused:
        render_dockerfile(plan, catalog)
    assert "TRAINWRIGHT_STATE" not in refused.value.remedy
    if isinstance(text, str) and text.startswith("\n\n"):
        assert "Dockerfile.j2:3: " in refused.value.message


# ---- locks -----------------------------------------------------------------------------------------------------------

SHA = "a" * 64
PACKAGE = {"name": "torch", "version": "2.6.0", "file": "torch-2.6.0-py3-none-any.whl", "sha256": SHA}
LOCK: dict[str, Any] = {
    "schema": "trainwright/lock/1",
    "python": "3.11",
    "platform": "x86_64-manylinux_2_28",
    "packages": [PACKAGE],
}
PLAN_LOCK: dict[str, Any] = {
    "schema": "trainwright/plan-lock/1",
    "plan": SHA,
    "request": "--framework pytorch",
    "python_version": "3.11",
    "platform": "x86_64-manylinux_2_28",
    "base": {"kind": "debian", "os": "debian-12", "sha256": SHA},
    "archives": [{"component": "nccl", "file": "a.tgz", "url": "https://x.example/a.tgz", "sha256": SHA}],
    "python": [PACKAGE | {"component": "pytorch"}],
    "system": [
        {"name": "gcc", "version": "1:2-3", "architecture": "amd64", "sha256": SHA, "size": 1, "stages": ["os"]}
    ],
}


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy of a document with another value at a path."""
    copy: Any = json.loads(json.dumps(document))
    *front, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    inner = copy
    for part in front:
        inner = inner[part]
    inner[last] = value
    return dict(copy)


TWICE = [PACKAGE | {"component": "pytorch"}, PACKAGE | {"component": "user"}]
BAD_LOCKS = [
    (Lock, LOCK, "packages.0.version", f"2.6.0\nRUN {PROOF}"),
    (Lock, LOCK, "packages.0.version", "2.6.0 --index-url=http://x"),
    (Lock, LOCK, "packages.0.name", "--extra-index-url=http://x"),
    (Lock, LOCK, "packages.0.file", "../torch.whl"),
    (Lock, LOCK, "packages.0.file", "a\n.whl"),
    (Lock, LOCK, "packages.0.components", ["a\nb"]),
    (Lock, LOCK, "packages", [PACKAGE, PACKAGE]),
    (Lock, LOCK, "python", "3.11\n"),
    (Lock, LOCK, "platform", "--help"),
    (PlanLock, PLAN_LOCK, "base.os", "nope-1"),
    (PlanLock, PLAN_LOCK, "base.kind", "nope"),
    (PlanLock, PLAN_LOCK, "base.image", "--help"),
    (PlanLock, PLAN_LOCK, "base.image", f"debian:12\nRUN {PROOF}"),
    (PlanLock, PLAN_LOCK, "archives.0.url", "file:///etc/passwd"),
    (PlanLock, PLAN_LOCK, "archives.0.url", "data:text/plain,x"),
    (PlanLock, PLAN_LOCK, "archives.0.url", "http://[x"),
    (PlanLock, PLAN_LOCK, "archives.0.mirrors", ["https://x.example/a\nb"]),
    (PlanLock, PLAN_LOCK, "archives.0.file", "a/../../b"),
    (PlanLock, PLAN_LOCK, "archives.0.component", "a b"),
    (PlanLock, PLAN_LOCK, "python", TWICE),
    (PlanLock, PLAN_LOCK, "system.0.name", "-oDpkg::Pre-Invoke::=id"),
    (PlanLock, PLAN_LOCK, "system.0.version", "1; id"),
    (PlanLock, PLAN_LOCK, "system.0.stages", ["os\nRUN x"]),
    (PlanLock, PLAN_LOCK, "system", [*PLAN_LOCK["system"], *PLAN_LOCK["system"]]),
    (PlanLock, PLAN_LOCK, "indexes", ["https://x.example/\nfile"]),
    (PlanLock, PLAN_LOCK, "request", f"--framework pytorch\nRUN {PROOF}"),
    (PlanLock, PLAN_LOCK, "request", "\x1b[31m"),
]


@pytest.mark.parametrize(("kind", "document", "path", "value"), BAD_LOCKS)
def test_a_lock_that_is_wrong_names_file_and_field(
    tmp_path: Path, kind: type[Lock] | type[PlanLock], document: dict[str, Any], path: str, value: object
) -> None:
    file = tmp_path / "a.lock.json"
    file.write_text(json.dumps(document))
    kind.load(file)
    file.write_text(json.dumps(changed(document, path, value)))
    with pytest.raises(RequestError) as refused:
        kind.load(file)
    assert str(file) in refused.value.message
    assert path.split(".", maxsplit=1)[0] in refused.value.message


# ---- flags -----------------------------------------------------------------------------------------------------------

BAD_WORDS: list[Callable[[], object]] = [
    lambda: make_request(framework="pytorch", version="1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"),
    lambda: make_request(framework="pytorch", version="9" * 5000),
    lambda: make_request(framework="pytorch", version="٢.٦"),
    lambda: make_request(framework="pytorch", python="3.11\n"),
    lambda: make_request(framework="pytorch", set_=["nccl=2.21\nRUN x"]),
    lambda: parse_cuda("cu\u0661\u0662\u0664"),
    lambda: parse_cuda("12.4." + "9" * 5000),
    lambda: table_of("--hyperparameters", "/dev/zero"),
    lambda: table_of("--hyperparameters", '{"a":' * 100_000),
    lambda: table_of("--hyperparameters", '{"a": 1, "a": 2}'),
    lambda: table_of("--hyperparameters", "[1]"),
    lambda: distribution_of('{"a":' + "[" * 100_000),
]


@pytest.mark.parametrize("attempt", BAD_WORDS, ids=range(len(BAD_WORDS)))
def test_a_word_that_is_wrong_is_refused(attempt: Callable[[], object]) -> None:
    with pytest.raises(RequestError) as refused:
        attempt()
    assert len(refused.value.message) < 2000


def test_a_git_revision_is_a_version() -> None:
    revision = "0123456789abcdef0123456789abcdef01234567-dirty"
    assert make_request(framework="pytorch", set_=[f"nccl={revision}"]).set_ == (("nccl", revision),)


# ---- state of ours ---------------------------------------------------------------------------------------------------

BROKEN = [b"\xff\xfe", b"", b"{", b"[]", b"null", b'{"pushes": 1}', b"[" * 100_000, b'{"a": 1, "a": 2}']


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_broken_state_is_passed_over(tmp_path: Path, content: bytes) -> None:
    folder = paths.state_dir() / "images" / "abc"
    folder.mkdir(parents=True)
    (folder / "record.json").write_bytes(content)
    assert store.all_records() == []
    assert store.load("sha256:abc") is None
    (folder / "push.json").write_bytes(content)

    class Pushed:
        def __init__(self) -> None:
            self.folder = folder

    assert history.pushes(Pushed()) == []  # type: ignore[arg-type]
    (paths.cache_dir() / "wheelhouse.json").write_bytes(content)
    file = tmp_path / "wheel"
    file.write_bytes(b"x")
    assert KnownHashes().sha256(file) == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


def test_the_proof_is_nowhere() -> None:
    assert not Path("/PWNED").exists()


# ---- the same through the real command line --------------------------------------------------------------------------

DEEP = "[" * 200_000
PLAN = "plan --framework pytorch --cuda cpu"


def site(text: str, word: str) -> Try:
    """A try with this site file."""
    return Try(f"{PLAN} --site s.toml", 2, word, files={"s.toml": text})


def catalog(text: str, word: str) -> Try:
    """A try with this image line of one's own."""
    return Try(f"{PLAN} --catalog own", 2, word, files={"own/images/pytorch/x/line.yaml": text})


def job(text: str, word: str) -> Try:
    """A try with this job file."""
    return Try("preflight --entry-point t.py --job j.yaml", 2, word, files={"t.py": "", "j.yaml": text})


ROWS = (
    Try(f"{PLAN} --version 1{'a' * 40}!", 2, "--version"),
    Try(f"{PLAN} --version {'9' * 5000}", 2, "--version"),
    Try(f"{PLAN} --python 3{'.1' * 4000}", 2, "--python"),
    Try([*PLAN.split(), "--version", "2.6.0\nRUN x"], 2, "--version"),
    Try([*PLAN.split(), "--version", "\u0662.\u0666"], 2, "--version"),
    Try(f"plan --framework pytorch --cuda {'1' * 5000}", 2, "--cuda"),
    Try(f"{PLAN} --set nccl=0123456789abcdef0123456789abcdef01234567-dirty!", 2, "--set"),
    Try(PLAN, 2, "PIP_INDEX_URL", env={"PIP_INDEX_URL": "http://"}),
    Try(PLAN, 2, "PIP_INDEX_URL", env={"PIP_INDEX_URL": "file://[x"}),
    Try(PLAN, 2, "PIP_EXTRA_INDEX_URL", env={"PIP_EXTRA_INDEX_URL": "file://[x"}),
    Try(PLAN, 0, "pytorch 2.", env={"PIP_FIND_LINKS": "~nouser/w"}),
    Try(PLAN, 0, "pytorch 2.", env={"PIP_INDEX_URL": "", "PIP_CERT": "", "HTTPS_PROXY": "", "AWS_REGION": ""}),
    Try(PLAN, 0, "pytorch 2.", env={"TRAINWRIGHT_CATALOG": "", "TRAINWRIGHT_DOCKER": "", "TRAINWRIGHT_REVISION": ""}),
    Try(PLAN, 2, "/dev/zero", env={"PIP_CONFIG_FILE": "/dev/zero"}),
    site(DEEP, "s.toml"),
    site("x = " + DEEP, "nested"),
    site("x = " + "9" * 5000, "digits"),
    site("a" + ".a" * 100_000 + " = 1", "nested"),
    site('index_url = "ftp://x/"', "s.toml:1: index_url"),
    site('extra_index_urls = ["https://x.example/\\nno-index = true"]', "extra_index_urls"),
    site('ca_bundle = "."', "s.toml:1: ca_bundle"),
    site('ca_bundle = "s.toml"', "s.toml:1: ca_bundle"),
    site('find_links = ["~nouser/x"]', "s.toml:1: find_links"),
    site('index_url = "file://[x"', "s.toml:1: index_url"),
    Try(f"{PLAN} --site s.toml", 2, "UTF-8", files={"s.toml": b"# \xff\n"}),
    Try(f"{PLAN} --site /dev/zero", 2, "/dev/zero"),
    catalog(DEEP, "nested"),
    catalog("- " * 200_000, "nested"),
    catalog("as_of: 2022-13-45", "line.yaml:1"),
    catalog("a: 1\nb: !!int abc", "line.yaml:2"),
    catalog("a: 1\na: 2", "duplicate key"),
    catalog("a: &a [*a]", "alias"),
    catalog("a: " + "9" * 5000, "line.yaml:1"),
    catalog('python: "3.11\\nRUN x"', "python"),
    Try("mirror pull --lock a.json --to m", 2, "a.json", files={"a.json": DEEP}),
    Try("mirror pull --lock a.json --to m", 2, "a.json:1", files={"a.json": '{"plan": 1, "plan": 2}'}),
    Try(
        "mirror pull --lock a.json --to m",
        2,
        "nope-1",
        files={"a.json": json.dumps(changed(PLAN_LOCK, "base.os", "nope-1"))},
    ),
    Try("mirror pull --lock /dev/zero --to m", 2, "/dev/zero"),
    job("image: a\nhyperparameters: {x: 2022-13-45}", "j.yaml:2"),
    job("hyperparameters: &a {x: *a}", "alias"),
    job("hyperparameters: " + "{x: " * 3000, "nested"),
    job("image: a\nimage: b", "duplicate key"),
    job("image: " + "9" * 5000, "digits"),
    Try("estimator --job j.yaml", 2, "duplicate key", files={"j.yaml": "image: a\nimage: b"}),
    Try("estimator --job /dev/zero", 2, "/dev/zero"),
)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_hostile(row: Try, attempt: Callable[[Try], object]) -> None:
    attempt(row)

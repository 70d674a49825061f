"""What leaves a machine for a build in CodeBuild: the same bytes for the same content, and nothing unasked."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from functools import cache
from pathlib import Path

import pytest

from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core import paths
from trainwright.core.errors import RequestError
from trainwright.pipeline import upload as module
from trainwright.pipeline.buildspec import parse
from trainwright.pipeline.upload import Upload, program_files, write_upload
from trainwright.plan.plan import Plan
from trainwright.plan.request import Request, make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with more in it than a build needs."""
    folder = tmp_path / "mine"
    (folder / "src" / "inner").mkdir(parents=True)
    (folder / "src" / "train.py").write_text("print('trains')\n")
    (folder / "src" / "inner" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "src" / "inner" / "run.sh").chmod(0o755)
    (folder / "src" / "notes.tmp").write_text("left out\n")
    (folder / "src" / ".dockerignore").write_text("*.tmp\n")
    (folder / "src" / ".git").mkdir()
    (folder / "src" / ".git" / "config").write_text("of a checkout\n")
    (folder / "requirements.txt").write_text("tqdm==4.67.1\n")
    (folder / "last.sh").write_text("#!/bin/sh\ntrue\n")
    (folder / "data.bin").write_text("not asked for\n")
    (folder / "trainwright.toml").write_text('index_url = "https://me:hunter22@example.com/simple"\n')
    monkeypatch.chdir(folder)
    return folder


def request() -> Request:
    return make_request(
        framework="pytorch",
        cuda="cpu",
        requirements="requirements.txt",
        run="last.sh",
        code="src",
        entry_point="train.py",
        apt=("ffmpeg",),
    )


@cache
def catalog() -> Catalog:
    return load_catalog()


def plan_of(asked: Request) -> Plan:
    return resolve(asked, catalog())


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The front door alone in place of the whole program, which takes a second to pack."""
    door = {name: file for name, file in program_files().items() if "/" not in name}
    monkeypatch.setattr(module, "program_files", lambda: door)


def sent(tmp_path: Path, asked: Request, name: str = "upload.zip") -> Upload:
    return write_upload(tmp_path / name, asked, plan_of(asked), Site())


def members(upload: Upload) -> dict[str, tarfile.TarInfo]:
    return {info.name: info for info in archive(upload).getmembers()}


def archive(upload: Upload) -> tarfile.TarFile:
    with zipfile.ZipFile(upload.path) as packed:
        return tarfile.open(fileobj=io.BytesIO(packed.read("trainwright.tar.gz")))


def text(upload: Upload, name: str) -> str:
    file = archive(upload).extractfile(name)
    assert file
    return file.read().decode()


def test_what_is_in_it(project: Path, tmp_path: Path) -> None:
    upload = sent(tmp_path, request())
    with zipfile.ZipFile(upload.path) as packed:
        assert packed.namelist() == ["buildspec.yml", "trainwright.tar.gz"]
        spec = parse(packed.read("buildspec.yml").decode(), "buildspec.yml")
    assert spec["artifacts"]["base-directory"] == "record"
    found = members(upload)
    assert sorted(name for name in found if name.startswith("project/")) == [
        "project/files/code/.dockerignore",
        "project/files/code/inner/run.sh",
        "project/files/code/train.py",
        "project/files/requirements/requirements.txt",
        "project/files/run/last.sh",
        "project/trainwright.toml",
    ]
    tracked = subprocess.run(
        ["git", "ls-files", "trainwright", "images", "templates", "invoke", "tasks.py", "requirements.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {f"program/{name}" for name in tracked} <= set(found)
    assert not [name for name in found if "__pycache__" in name or "/tests/" in name or name.startswith("program/.")]
    assert upload.sha256 == hashlib.sha256(upload.path.read_bytes()).hexdigest()
    assert upload.size == upload.path.stat().st_size


def test_the_same_content_is_the_same_bytes(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another day, by another user, in another folder, from a disk that lists the files in another order."""
    first = sent(tmp_path, request())
    turned = dict(reversed(program_files().items()))
    monkeypatch.setattr(module, "program_files", lambda: turned)
    other = tmp_path / "elsewhere"
    other.mkdir()
    for path in sorted(project.rglob("*"), reverse=True):
        target = other / path.relative_to(project)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            target.chmod(0o700 if os.access(path, os.X_OK) and path.name == "run.sh" else 0o600)
            os.utime(target, (1_000_000_000, 1_000_000_000))
    os.chdir(other)
    time.sleep(1.1)  # gzip's header has seconds
    assert sent(tmp_path, request(), "again.zip").sha256 == first.sha256
    (other / "src" / "train.py").write_text("print('trains more')\n")
    assert sent(tmp_path, request(), "changed.zip").sha256 != first.sha256


@pytest.mark.usefixtures("little")
def test_modes_are_those_of_the_files(project: Path, tmp_path: Path) -> None:
    found = members(sent(tmp_path, request()))
    assert found["program/invoke"].mode == found["project/files/code/inner/run.sh"].mode == 0o755
    assert found["project/files/code/train.py"].mode == 0o644
    assert {(info.mtime, info.uid, info.gid, info.uname) for info in found.values()} == {(0, 0, 0, "")}


def test_settings_of_this_machine_stay_here(project: Path, tmp_path: Path) -> None:
    upload = sent(tmp_path, request())
    assert "hunter22" not in text(upload, "project/trainwright.toml")
    opened = archive(upload)
    assert not [each.name for each in opened if b"hunter22" in (opened.extractfile(each) or io.BytesIO()).read()]


def test_the_program_in_it_resolves_the_same_plan(project: Path, tmp_path: Path) -> None:
    """Run from what was sent, in its own folder: the plan has the same id as here."""
    asked = request()
    plan = plan_of(asked)
    folder = tmp_path / "there"
    archive(sent(tmp_path, asked)).extractall(folder, filter="data")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINWRIGHT_", "AWS_"))}
    done = subprocess.run(
        [sys.executable, str(folder / "program" / "tasks.py"), "plan", "--json"],
        cwd=folder / "project",
        env={**environment, "PYTHONPATH": str(folder / "program")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["id"] == plan.id


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ({}, ""),
        ({"allow_unproven": True}, "--allow-unproven"),
        ({"base": "dlc", "version": "2.8.0", "allow_change": "Numpy,tqdm"}, "--allow-change numpy,tqdm"),
    ],
)
def test_what_a_project_file_cannot_say_is_a_flag(project: Path, words: dict[str, object], flags: str) -> None:
    asked = make_request(framework="pytorch", requirements="requirements.txt", **words)
    assert module.extra_words(asked) == flags


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("name", ["src/.env", "src/keys/id_rsa", "src/.aws/credentials"])
def test_what_looks_like_credentials_is_refused(project: Path, tmp_path: Path, name: str) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    asked = request()  # clean, so that the upload itself has to look
    (project / name).write_text("secret\n")
    with pytest.raises(RequestError, match="look like credentials"):
        write_upload(tmp_path / "u.zip", asked, plan_of(asked), Site())
    allowed = make_request(framework="pytorch", cuda="cpu", code="src", entry_point="train.py", allow_secrets=True)
    assert f"project/files/code/{name.removeprefix('src/')}" in members(sent(tmp_path, allowed))


@pytest.mark.usefixtures("little")
def test_a_script_that_is_a_secret_by_its_name(project: Path, tmp_path: Path) -> None:
    (project / ".env").write_text("#!/bin/sh\nA=1\n")
    asked = make_request(framework="pytorch", cuda="cpu", run=".env")
    with pytest.raises(RequestError, match="look like credentials"):
        sent(tmp_path, asked)


@pytest.mark.usefixtures("little")
def test_too_much_is_refused_with_the_largest_file(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "src" / "weights.bin").write_bytes(b"0" * 5000)
    monkeypatch.setattr(module, "LIMIT", 4000)
    with pytest.raises(RequestError, match=r"weights\.bin") as refused:
        sent(tmp_path, request())
    assert "--code" in refused.value.remedy
    assert not (tmp_path / "upload.zip").exists()


@pytest.mark.usefixtures("little")
def test_the_lock_of_the_plan_goes_along_and_no_other(project: Path, tmp_path: Path) -> None:
    plan = plan_of(request())
    (project / "locks").mkdir()
    for each in (plan.id, "0" * 64):
        (project / "locks" / f"{each}.lock.json").write_text("{}")
    names = [name for name in members(sent(tmp_path, request())) if "/locks/" in name]
    assert names == [f"project/locks/{plan.id}.lock.json"]


@pytest.mark.usefixtures("little")
def test_an_own_catalog_goes_along(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = project / "catalog" / "images" / "pytorch" / "mine"
    line.mkdir(parents=True)
    (line / "line.yaml").write_text("framework: pytorch\n")
    (project / "catalog" / "README").write_text("not of the catalog\n")
    plan = plan_of(request())  # of the shipped lines: the catalog that is named next has no whole line
    monkeypatch.setenv("TRAINWRIGHT_CATALOG", str(project / "catalog"))
    upload = write_upload(tmp_path / "u.zip", request(), plan, Site())
    names = [name for name in members(upload) if name.startswith("project/catalog")]
    assert names == ["project/catalog/images/pytorch/mine/line.yaml"]
    (line / ".netrc").write_text("machine a\n")
    with pytest.raises(RequestError, match="look like credentials"):
        write_upload(tmp_path / "u.zip", request(), plan, Site())


@pytest.mark.usefixtures("little")
def test_extras_of_a_lock_file_are_kept(project: Path, tmp_path: Path) -> None:
    (project / "pyproject.toml").write_text(
        '[project]\nname = "a"\nversion = "1"\n[project.optional-dependencies]\ntrain = ["tqdm==4.67.1"]\n'
    )
    upload = sent(tmp_path, make_request(framework="pytorch", cuda="cpu", requirements="pyproject.toml[train]"))
    assert "project/files/requirements/pyproject.toml" in members(upload)
    assert 'requirements = "files/requirements/pyproject.toml[train]"' in text(upload, "project/trainwright.toml")


def test_an_installed_package_sends_what_a_checkout_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data is in ``trainwright/data``, as pyproject.toml says, and lies where a checkout has it once it is sent."""
    before = set(program_files())
    installed = tmp_path / "site-packages" / "trainwright"
    installed.mkdir(parents=True)
    for name in before:
        top, _, rest = name.partition("/")
        target = installed / rest if top == "trainwright" else installed / "data" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(ROOT / name)
    monkeypatch.setattr(paths, "_PACKAGE", installed)
    assert set(program_files()) == before
    assert program_files()["invoke"].executable
    (installed / "data" / "invoke").unlink()
    with pytest.raises(RequestError, match="invoke"):
        program_files()

"""Which files of a folder enter an image: none from outside of it, none that holds credentials, none twice named."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from trainwright.build.context import write_context
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.core.owned import MANIFEST
from trainwright.plan.request import Request, make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources.gather import gather
from trainwright.user.files import UserFiles, code_files, component_files, digest_of

pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    write(folder, "train.py", "sub/model.py")
    return folder


def write(folder: Path, *names: str, text: str = "x\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def names(folder: Path, *, allow_secrets: bool = False) -> list[str]:
    return [file.name for file in code_files(folder, allow_secrets=allow_secrets)]


def request(folder: Path | str, entry: str = "train.py", **words: object) -> Request:
    return make_request(framework="pytorch", code=str(folder), entry_point=entry, **words)  # type: ignore[arg-type]


# ---- what is left out ------------------------------------------------------------------------------------------------


def test_caches_environments_and_our_own_folders_stay_out(code: Path, tmp_path: Path, monkeypatch):
    write(code, "__pycache__/a.pyc", ".git/config", "sub/.venv/x", ".trainwright/r.json", ".ipynb_checkpoints/a.ipynb")
    write(code, "env/pyvenv.cfg", "env/bin/python", f"context/{MANIFEST}", "context/user/code/train.py")
    write(code, "state/commands.jsonl", "cache/base.tar")
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(code / "state"))
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(code / "cache"))
    assert names(code) == ["sub/model.py", "train.py"]
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(code))
    with pytest.raises(RequestError, match="Trainwright's own files"):
        code_files(code)


def test_dockerignore_decides_for_digest_count_and_entry_point(code: Path):
    before = request(code).user
    write(code, "data/big.csv", "data/keep.csv", ".env")
    (code / ".dockerignore").write_text("data\n!data/keep.csv\n.env\n.dockerignore\nsub\n")
    assert names(code) == ["data/keep.csv", "train.py"]
    user = request(code).user
    assert (user.code_files, user.code_bytes, user.secrets) == (2, 4, ())
    assert user.code_sha256 != before.code_sha256
    write(code, "data/other.csv", "sub/more.py")
    assert request(code).user == user
    with pytest.raises(RequestError, match="would not be baked") as refused:
        request(code, "sub/model.py")
    assert ".dockerignore" in refused.value.remedy


def test_digest_follows_content_names_and_the_executable_bit(tmp_path: Path):
    script = tmp_path / "train.py"
    digests = []
    for change in (
        lambda: script.write_text("print(1)"),
        lambda: script.chmod(0o755),
        lambda: script.write_text("print(2)"),
        lambda: script.rename(tmp_path / "other.py"),
    ):
        change()
        digests.append(digest_of(code_files(tmp_path)))
    assert len(set(digests)) == len(digests)


# ---- links and odd files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["../outside.txt", "/etc/hostname", "../outside", "/", "..", "sub/../../outside.txt"]
)
@pytest.mark.parametrize("link", ["link", "sub/link", "train.py"])
def test_links_that_leave_the_folder(code: Path, tmp_path: Path, link: str, target: str):
    write(tmp_path, "outside.txt", "outside/a.txt")
    (code / link).unlink(missing_ok=True)
    (code / link).symlink_to(target if link != "sub/link" or target.startswith("/") else f"../{target}")
    with pytest.raises(RequestError, match="outside of the folder") as refused:
        request(code)
    assert f"{link} is a link to {(code / link).resolve()}" in refused.value.message
    assert refused.value.exit_code == 2


def test_links_within_the_folder_are_baked_as_what_they_lead_to(code: Path):
    (code / "file").symlink_to("train.py")
    (code / "folder").symlink_to("sub")
    (code / "sub" / "up").symlink_to(code / "train.py")
    (code / ".#train.py").symlink_to("user@host.1234:5678")
    found = {file.name: file.path for file in code_files(code)}
    assert found.keys() == {"file", "folder/model.py", "folder/up", "sub/model.py", "sub/up", "train.py"}
    assert found["folder/up"] == code / "train.py"


@pytest.mark.parametrize("target", ["missing", "link", "sub/../.."])
def test_links_that_lead_nowhere(code: Path, target: str):
    (code / "link").symlink_to(target)
    with pytest.raises(RequestError, match="link is a link to"):
        code_files(code)


@pytest.mark.parametrize("target", [".", "..", "../sub"])
def test_circles_of_folders(code: Path, target: str):
    (code / "sub" / "again").symlink_to(target)
    with pytest.raises(RequestError, match="in itself"):
        code_files(code)


def test_a_link_brings_nothing_back_that_is_left_out_or_secret(code: Path):
    write(code, "data.csv", ".env")
    (code / ".dockerignore").write_text("data.csv\n.env\n")
    (code / "copy").symlink_to("data.csv")
    with pytest.raises(RequestError, match="leaves out"):
        code_files(code)
    (code / "copy").unlink()
    (code / ".dockerignore").unlink()
    (code / "settings.txt").symlink_to(".env")
    with pytest.raises(RequestError, match=r"\.env, settings\.txt"):
        code_files(code)


@pytest.fixture
def short(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """The folder as the working folder: the name of a socket may have a hundred characters."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_pipes_and_sockets(code: Path, short: Path):
    os.mkfifo(code / "pipe")
    with pytest.raises(RequestError, match="pipe is a pipe"):
        code_files(code)
    (code / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("code/socket")
        with pytest.raises(RequestError, match="socket is a socket"):
            code_files(code)
        (code / ".dockerignore").write_text("socket\n")
        assert "socket" not in names(code)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (b"a\xff.py", "UTF-8"),
        (b"a\xff\n.py", "UTF-8"),
        (b"a\n.py", "control"),
        ("a\u202e.py".encode(), "control"),
        (b"a\x1b[31m", "control"),
    ],
)
@pytest.mark.parametrize("above", [b"", b"sub/"])
def test_names_that_a_terminal_would_not_show(code: Path, name: bytes, why: str, above: bytes):
    with open(os.fsencode(code) + b"/" + above + name, "w"):  # noqa: PTH123 - a name that is not text
        pass
    with pytest.raises(RequestError, match=why) as refused:
        code_files(code)
    assert refused.value.message.isprintable()


def test_names_in_any_language(code: Path):
    write(code, "daten/größe.txt", "数据.csv", "\u0645\u06cc\u200c\u062e.txt", "a b.txt", "👩\u200d🔬.py")
    assert len(names(code)) == 7


# ---- credentials ---------------------------------------------------------------------------------------------------


def test_credentials_are_named_and_refused_unless_they_are_insisted_on(code: Path):
    plain = resolve(request(code), load_catalog())
    write(code, ".env", ".ssh/id_rsa", "sub/.aws/credentials", ".env.example", "id_map.py")
    with pytest.raises(RequestError) as refused:
        request(code)
    assert refused.value.exit_code == 2
    assert refused.value.details["secrets"] == [".env", ".ssh/id_rsa", "sub/.aws/credentials"]
    assert "--allow-secrets" in refused.value.remedy
    allowed = request(code, allow_secrets=True)
    assert allowed.user.secrets == (".env", ".ssh/id_rsa", "sub/.aws/credentials")
    assert "--allow-secrets" in allowed.flags().split()
    plan = resolve(allowed, load_catalog())
    assert plan.id != plain.id
    assert plan.user.secrets == allowed.user.secrets
    assert any(".ssh/id_rsa" in notice for notice in plan.notices)


def test_the_flag_alone_changes_no_plan(code: Path):
    catalog = load_catalog()
    assert resolve(request(code), catalog).id == resolve(request(code, allow_secrets=True), catalog).id
    assert "--allow-secrets" not in request(code).flags()


def test_a_component_may_bring_neither_links_nor_credentials(tmp_path: Path):
    write(tmp_path, "component.yaml", "Dockerfile.j2", "test_it.py", "files/a.sh", "__pycache__/x.py", "old.pyc")
    assert [file.name for file in component_files(tmp_path)] == ["files/a.sh"]
    write(tmp_path, "token.key")
    with pytest.raises(RequestError, match=r"token\.key"):
        component_files(tmp_path)
    assert len(component_files(tmp_path, allow_secrets=True)) == 2
    (tmp_path / "token.key").unlink()
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(RequestError, match="outside"):
        component_files(tmp_path, allow_secrets=True)


def test_every_shipped_component_can_enter_a_context():
    for folder in load_catalog().components.values():
        component_files(folder.path)


# ---- --code ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("/", "system"),
        ("/etc", "system"),
        ("/usr/../etc/", "system"),
        ("/proc/self", "system"),
        ("/dev", "system"),
        ("/bin", "system"),
        ("", "empty"),
        ("missing", "no such folder"),
        ("file", "not a directory"),
        ("x" * 300, "cannot be opened"),
        ("circle", "cannot be opened"),
    ],
)
def test_folders_that_are_no_code(tmp_path: Path, monkeypatch, folder: str, why: str):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "file")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(RequestError, match=why) as refused:
        request(folder)
    assert refused.value.exit_code == 2


def test_a_folder_that_is_a_link_is_the_folder_it_leads_to(code: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to("code")
    assert request(tmp_path / "link") == request(code)
    assert request(code / "sub" / "..") == request(code)


@pytest.mark.parametrize("entry", ["./train.py", "sub//model.py", "train.py"])
def test_ways_to_spell_an_entry_point(code: Path, entry: str):
    assert request(code, entry).user.entry_point == entry


@pytest.mark.parametrize(
    "entry", ["sub", "", ".", "train.py/", "train.py\n", "a" * 5000, "tränk.py", "sub/../train.py"]
)
def test_entry_points_that_are_none(code: Path, entry: str):
    write(code, "tränk.py")
    if entry != "train.py/":  # pathlib sees the file
        with pytest.raises(RequestError, match="--entry-point"):
            request(code, entry)


def test_what_cannot_be_read_is_named(code: Path, monkeypatch):
    def refuse(place: Path) -> None:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr("trainwright.user.files.os.scandir", refuse)
    with pytest.raises(RequestError, match="Permission denied"):
        code_files(code)


def test_records_of_older_versions_are_read():
    assert UserFiles(**{"code": "/x", "code_sha256": "0" * 64, "entry_point": "a.py"}).secrets == ()


# ---- the context -----------------------------------------------------------------------------------------------------


def test_a_context_holds_the_files_of_the_digest_and_says_how_many(code: Path, tmp_path: Path):
    write(code, ".env", "data.csv")
    (code / ".dockerignore").write_text("data.csv\n.dockerignore\n")
    (code / "link.py").symlink_to("train.py")
    requirements = tmp_path / "r.txt"
    requirements.write_text("# https://user:secret@example.com/\nsix==1.17.0 \\\n  # why\n")
    asked = request(code, allow_secrets=True, requirements=str(requirements), base="dlc", version="2.8.0")
    catalog = load_catalog()
    said: list[str] = []
    output = code / "context"
    for _ in range(2):
        write_context(gather(resolve(asked, catalog), catalog, Site()), output, say=said.append)
        baked = {str(p.relative_to(output / "user/code")) for p in (output / "user/code").rglob("*") if p.is_file()}
        assert baked == {".env", "link.py", "sub/model.py", "train.py"} == set(names(code, allow_secrets=True))
        assert not (output / "user/code/link.py").is_symlink()
        assert asked == request(code, allow_secrets=True, requirements=str(requirements), base="dlc", version="2.8.0")
    assert (output / "requirements/user.txt").read_text() == "six==1.17.0\n"
    told = [line for line in said if "4 files, 8 B" in line]
    assert len(told) == 2
    assert ".env" in told[0]


def test_credentials_that_came_after_the_plan_stop_the_context(code: Path, tmp_path: Path):
    catalog = load_catalog()
    plan = resolve(request(code, base="dlc", version="2.8.0"), catalog)
    write(code, ".netrc")
    with pytest.raises(RequestError, match=r"\.netrc"):
        write_context(gather(plan, catalog, Site()), tmp_path / "context", say=lambda _: None)
    assert not (tmp_path / "context").exists()


# ---- any tree --------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b.py", ".env", "id_rsa", "x.pem", "sub", "train.py", "..", "é"])
ENTRIES = st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=3), st.sampled_from(["file", "link", "pipe"]), WORDS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=some(150), deadline=None)
@given(entries=ENTRIES, ignored=st.lists(WORDS, max_size=2))
def test_of_any_tree_only_its_own_files_are_taken(tmp_path_factory, entries, ignored):
    root = tmp_path_factory.mktemp("tree")
    folder = root / "code"
    write(folder, "train.py")
    write(root, "a", "x.pem", text="outside")
    for parts, kind, target in entries:
        path = folder.joinpath(*(part for part in parts if part != ".."))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                path.touch(exist_ok=False)
            elif kind == "link":
                path.symlink_to(target)
            else:
                os.mkfifo(path)
        except OSError:  # a file where a folder would be, a name that is taken
            continue
    if ignored:
        (folder / ".dockerignore").write_text("\n".join(ignored))
    try:
        found = code_files(folder)
    except RequestError:
        return
    for file in found:
        assert file.path == (folder / file.name).resolve()
        assert file.path.is_relative_to(folder)
        assert file.path.is_file()
        assert not {".env"} & {*file.name.split("/"), *file.path.relative_to(folder).parts}
        assert not {"id_rsa", "x.pem"} & {file.name.split("/")[-1], file.path.name}
        assert not set(ignored) & {file.name, file.name.split("/")[0]}

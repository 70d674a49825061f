"""What a request reads of a user's files: a script, requirements, a catalog, single files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from trainwright.core.errors import RequestError
from trainwright.user.files import (
    UserFiles,
    catalog_files,
    code_files,
    make_user_files,
    named_file,
    user_requirements,
    user_script,
)

pytestmark = pytest.mark.usefixtures("own_places")

SCRIPT = "#!/bin/sh\necho done\n"
PYPROJECT = '[project]\nname = "a"\nversion = "{}"\ndependencies = ["six==1.17.0", "toolz==1.1.0"]\n'


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")
    return folder


def test_a_script_runs_as_it_was_when_it_was_planned(tmp_path: Path) -> None:
    script = tmp_path / "setup.sh"
    script.write_text(SCRIPT)
    user = make_user_files(None, None, None, run=str(script))
    assert (user.run, user.run_sha256) == (script, sha256(SCRIPT))
    assert user_script(user) == SCRIPT
    script.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(RequestError, match="has changed"):
        user_script(user)
    assert user_script(UserFiles()) is None


def test_of_a_project_only_what_is_taken_is_part_of_the_plan(tmp_path: Path) -> None:
    """Plan ids must not change, so the way the lines are joined must not either."""
    project = tmp_path / "pyproject.toml"
    digests = set()
    for version in ("1", "2"):
        project.write_text(PYPROJECT.format(version))
        digests.add(make_user_files(str(project), None, None).requirements_sha256)
    assert digests == {sha256("six==1.17.0\ntoolz==1.1.0")}
    plain = tmp_path / "requirements.txt"
    plain.write_text("six==1.17.0  # why\n")
    user = make_user_files(str(plain), None, None, allow_change=("numpy",))
    assert (user.requirements, user.requirements_sha256) == (plain, sha256("six==1.17.0  # why\n"))
    assert user.allow_change == ("numpy",)


def test_a_requirement_from_git_is_read_again_as_it_was_planned(tmp_path: Path) -> None:
    """Whether the image has git was checked while planning."""
    line = f"six @ git+https://github.com/benjaminp/six@{'0a' * 20}"
    file = tmp_path / "requirements.txt"
    file.write_text(f"{line}\n")
    with pytest.raises(RequestError):
        make_user_files(str(file), None, None)
    read = user_requirements(make_user_files(str(file), None, None, git=True))
    assert read is not None
    assert read.lines == [line]
    assert user_requirements(UserFiles()) is None


@pytest.mark.parametrize(
    ("code", "entry", "allow_change", "says"),
    [
        (".", None, (), "--code DIR and --entry-point FILE"),
        (None, "train.py", (), "--code DIR and --entry-point FILE"),
        (None, None, ("numpy",), "--allow-change numpy"),
    ],
)
def test_flags_that_need_each_other(
    code: str | None, entry: str | None, allow_change: tuple[str, ...], says: str
) -> None:
    with pytest.raises(RequestError) as refused:
        make_user_files(None, code, entry, allow_change=allow_change)
    assert refused.value.message.startswith(says)


def test_of_a_catalog_images_and_templates_are_taken(tmp_path: Path) -> None:
    write(tmp_path, "images/a/line.yaml", "templates/b/component.yaml", "notes.txt", "more/images/c")
    write(tmp_path, "images/.git/config", "templates/b/__pycache__/t.pyc")
    assert [file.name for file in catalog_files(tmp_path)] == ["images/a/line.yaml", "templates/b/component.yaml"]
    write(tmp_path, "images/a/.netrc")
    with pytest.raises(RequestError, match=r"images/a/\.netrc") as refused:
        catalog_files(tmp_path)
    assert refused.value.message.startswith(f"--catalog {tmp_path}")
    (tmp_path / "images/a/.netrc").rename(tmp_path / ".netrc")
    assert len(catalog_files(tmp_path)) == 2, "what stays here is nobody's business"


@pytest.mark.parametrize(("mode", "executable"), [(0o755, True), (0o700, True), (0o644, False), (0o611, False)])
def test_a_file_is_executable_if_its_owner_may_run_it(tmp_path: Path, mode: int, executable: bool) -> None:
    """Git and Docker look at no other bit of it."""
    path = write(tmp_path, "run.sh") / "run.sh"
    path.chmod(mode)
    assert [file.executable for file in code_files(tmp_path)] == [executable]
    named = named_file("other", path)
    assert (named.name, named.path, named.size, named.executable) == ("other", path, 2, executable)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = write(tmp_path, "train.py") / "train.py"
    (found,) = code_files(tmp_path)
    gone.unlink()
    for read in (lambda: named_file("x", gone), found.sha256):
        with pytest.raises(RequestError) as refused:
            read()
        assert refused.value.message.startswith(f"{gone}: cannot be read")


def test_records_and_downloads_of_this_user_are_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TRAINWRIGHT_CACHE")
    write(tmp_path / "work", "train.py")
    write(tmp_path, ".cache/trainwright/base.tar", ".cache/other")
    assert [file.name for file in code_files(tmp_path)] == [".cache/other", "work/train.py"]
    write(tmp_path, ".trainwright/commands.jsonl")
    monkeypatch.chdir(tmp_path)
    for own in (".cache/trainwright", ".trainwright"):
        with pytest.raises(RequestError, match="Trainwright's own files"):
            code_files(tmp_path / own)


def test_a_link_that_is_left_out_may_lead_anywhere(tmp_path: Path) -> None:
    """Also where a line takes something back in, so that folders that are left out are searched."""
    code = write(tmp_path / "code", "train.py", "data/big.csv", "data/keep.csv")
    write(tmp_path / "outside", "a.csv")
    (code / "more").symlink_to(tmp_path / "outside")
    (code / ".dockerignore").write_text("data\nmore\n.dockerignore\n!data/keep.csv\n")
    assert [file.name for file in code_files(code)] == ["data/keep.csv", "train.py"]


def test_credentials_are_refused_unless_a_flag_allows_them(tmp_path: Path) -> None:
    write(tmp_path, "train.py", ".netrc")
    with pytest.raises(RequestError, match=r"\.netrc"):
        make_user_files(None, str(tmp_path), "train.py")
    user = make_user_files(None, str(tmp_path), "train.py", allow_secrets=True)
    assert (user.secrets, user.code_files, user.code_bytes) == ((".netrc",), 2, 4)


def test_more_than_ten_credentials_are_counted(tmp_path: Path) -> None:
    write(tmp_path, "train.py", *(f"{n}.pem" for n in range(10)))
    for more, ends in ((0, "9.pem"), (2, "9.pem and 2 more")):
        write(tmp_path, *(f"x{n}.pem" for n in range(more)))
        with pytest.raises(RequestError) as refused:
            code_files(tmp_path)
        assert refused.value.message.endswith(ends)
        assert len(refused.value.details["secrets"]) == 10 + more

"""``.dockerignore`` as Docker reads it; the cases are those of Docker's reference and of moby's own tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import RequestError
from trainwright.user.dockerignore import IgnoreRules, read_ignore

# Patterns, a path, whether it is left out.
CASES = [
    (["**"], "dir/file", True),
    (["**/"], "dir/file", True),
    (["dir/**"], "dir/dir2/file", True),
    (["dir/**"], "dir", False),
    (["**/dir"], "dir/file", True),
    (["**/dir"], "a/b/dir/c/file", True),
    (["**/dir2/*"], "dir/dir2/file", True),
    (["**/dir2/**"], "dir/dir2/dir3/file", True),
    (["**file"], "dir/dir/my-file", True),
    (["**/file"], "dir/my-file", False),
    (["**/file*txt"], "dir/dir/file.txt", True),
    (["**/**/*.txt2"], "dir/file.txt", False),
    (["a**/*.txt"], "a/dir/dir/file.txt", True),
    (["a/*.txt"], "a/dir/file.txt", False),
    (["a[b-d]e"], "ace", True),
    (["a[b-d]e"], "aae", False),
    (["a[^b-d]e"], "aze", True),
    ([".*"], ".foo", True),
    ([".*"], "foo", False),
    (["abc.def"], "abcZdef", False),
    (["abc?def"], "abcZdef", True),
    (["a?b"], "a/b", False),
    (["a.|)$(}+{bc"], "a.|)$(}+{bc", True),
    (["a\\*b"], "a*b", True),
    (["a\\*b"], "axb", False),
    (["[\\-x]"], "-", True),
    (["/temp"], "temp", True),
    (["./temp/"], "temp/x", True),
    (["temp/../other"], "other", True),
    ([" temp "], "temp", True),
    (["# temp", "temp"], "# temp", False),
    (["."], "a", False),
    (["README.MD"], "readme.md", False),
    (["!file.go", "*.go"], "file.go", True),
    (["*.go", "!file.go"], "file.go", False),
    (["docs", "!docs/README.md"], "docs/README.md", False),
    (["docs", "!docs/README.md"], "docs/other.md", True),
    (["**/data", "!a/b/data/keep"], "a/b/data/keep", False),
    (["**/data", "!a/b/data/keep"], "a/b/data/other", True),
    (["**", "! src"], "src/train.py", False),
    (["*.md", "!README*.md", "README-secret.md"], "README-secret.md", True),
]


@pytest.mark.parametrize(("lines", "name", "left_out"), CASES)
def test_patterns(lines, name, left_out):
    assert IgnoreRules(lines).matches(name) is left_out


@pytest.mark.parametrize("line", ["!", "a[", "[]a]", "[x-]", "[-x]", "a\\", "[^bc", "x" * 5000])
def test_a_line_that_docker_refuses_is_refused_with_its_number(tmp_path: Path, line: str):
    (tmp_path / ".dockerignore").write_text(f"# first\n{line}\n")
    with pytest.raises(RequestError, match=r"\.dockerignore:2: ") as refused:
        read_ignore(tmp_path)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("text", [b"\xef\xbb\xbf*.csv\n", b"*.csv\r\n", b"a\n*.csv"])
def test_files_of_other_editors(tmp_path: Path, text: bytes):
    (tmp_path / ".dockerignore").write_bytes(text)
    assert read_ignore(tmp_path).matches("x.csv")


def test_a_file_that_is_not_text(tmp_path: Path):
    (tmp_path / ".dockerignore").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="utf-8"):
        read_ignore(tmp_path)


def test_no_file(tmp_path: Path):
    assert not read_ignore(tmp_path).matches("anything")
    (tmp_path / ".dockerignore").mkdir()
    assert not read_ignore(tmp_path).matches("anything")


@given(st.lists(st.text(alphabet="ab/*?[]^-!\\. #\n", max_size=12), max_size=6), st.text(alphabet="ab/.", min_size=1))
def test_any_lines_are_read_or_refused(lines, name):
    try:
        IgnoreRules(lines).matches(name)
    except RequestError as refused:
        assert re.search(r"\.dockerignore:\d+", refused.message)


@given(
    st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3), st.text(alphabet="ab", min_size=1, max_size=3)
)
def test_what_is_below_a_folder_that_is_left_out_is_left_out(parts, below):
    pattern = "/".join(parts)
    folder = pattern.replace("*", "x")
    assert IgnoreRules([pattern]).matches(folder)
    assert IgnoreRules([pattern]).matches(f"{folder}/{below}/{below}")
    assert not IgnoreRules([pattern, f"!{folder}/{below}"]).matches(f"{folder}/{below}/{below}")

"""Requirements files: what public projects write is taken; what no build can use is refused with its line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from trainwright.core.errors import RequestError
from trainwright.core.runner import run
from trainwright.user.requirements import read_requirements

SHA = "a" * 64
# A line or more as projects write them, and what uv gets of it.
TAKEN = [
    ("torch", ["torch"]),
    ("numpy==1.26.4", ["numpy==1.26.4"]),
    ('urllib3>=2.5.0 ; python_version > "3.8" # not directly required', ['urllib3>=2.5.0 ; python_version > "3.8"']),
    ("requests [security] >= 2.8.1, == 2.8.* ; python_version < '2.7'", None),
    ('triton>=2.0;platform_machine=="x86_64" and sys_platform=="linux" or sys_platform=="linux2"', None),
    ("coverage>=5.2, <6.2", None),
    ("SQLAlchemy[asyncio]==2.0.44", None),
    ("sphinx ~= 6.0", None),
    ("sentencepiece != 0.1.92", None),
    ("pytz (>=2019)", None),
    ("torch==2.6.0+cu124", None),
    ("gradio==3.4b3", None),
    ("torch===2.6.0", None),
    ("PyYAML  >=5.3.1\t# tabs and blanks", ["PyYAML >=5.3.1"]),
    ("# only a comment\n\n   # another\n", []),
    (f"six==1.17.0 \\\n    --hash=sha256:{SHA} \\\n    --hash=sha256:{SHA}\n    # via\n    #   -r in.txt", None),
    (f"six==1.17.0 --hash sha256:{SHA}", [f"six==1.17.0 --hash=sha256:{SHA}"]),
    ("foo>=1,\\\n<2", ["foo>=1,<2"]),
    ("foo @ https://example.com/foo-1.0-py3-none-any.whl", None),
    ("foo@https://example.com/foo-1.0.zip#sha256=" + SHA, None),
    ("foo[a,b] @ https://example.com/foo-1.0.zip ; python_version > '3.8'", None),
    ("https://example.com/foo-1.0-py3-none-any.whl", None),
    ("https://github.com/o/r/archive/main.zip#egg=r&subdirectory=s", None),
    ("--only-binary=:all:\nnumpy", ["--only-binary :all:", "numpy"]),
    ("--no-binary numpy,scipy", ["--no-binary numpy", "--no-binary scipy"]),
    ("--prefer-binary\n--require-hashes\nnumpy", ["numpy"]),
    ("numpy\r\nscipy\r\n", ["numpy", "scipy"]),
    ("numpy\rscipy", ["numpy", "scipy"]),
    ("# see https://user:secret@example.com/ and git+ssh://git@example.com\nnumpy", ["numpy"]),
]
REFUSED = [
    ("-r base.txt", "-r", "uv pip compile"),
    ("-rbase.txt", "-r", "uv pip compile"),
    ("--requirement=base.txt", "--requirement", ""),
    ("-c constraints.txt", "-c", "uv pip compile"),
    ("-e .", "-e", "wheel"),
    ("-e git+https://github.com/o/r#egg=r", "-e", "wheel"),
    ("--index-url https://example.com/simple", "--index-url", "trainwright.toml"),
    ("-i https://example.com/simple", "-i", "trainwright.toml"),
    ("--extra-index-url https://download.pytorch.org/whl/cu118", "--extra-index-url", "trainwright.toml"),
    ("--find-links https://download.pytorch.org/whl/torch_stable.html", "--find-links", "find_links"),
    ("-f wheels", "-f", "find_links"),
    ("--trusted-host example.com", "--trusted-host", "ca_bundle"),
    ("--no-index", "--no-index", ""),
    ("--pre", "--pre", "NAME>="),
    ("--use-feature=x", "--use-feature", ""),
    ("--no-binary", "--no-binary", ""),
    ("numpy --global-option=x", "--global-option", ""),
    ('numpy --install-option="--x"', "--install-option", ""),
    ("./downloads/numpy-1.9.2.whl", "path", "find_links"),
    ("../lib", "path", ""),
    (".", "path", ""),
    ("~/lib", "path", ""),
    ("/etc/passwd", "path", ""),
    ("wheels/numpy.whl ; python_version > '3'", "path", ""),
    ("numpy-1.9.2-cp34-none-win32.whl", "path", ""),
    ("file:///etc/passwd", "path", ""),
    ("foo @ file:///etc/passwd", "path", ""),
    ("foo @ ./foo", "path", ""),
    ("C:\\wheels\\x.whl", "", ""),
    ("git+https://github.com/openai/CLIP.git", "git", "archive"),
    ("clip @ git+https://github.com/openai/CLIP.git@main", "git", "archive"),
    ("git+ssh://git@github.com/o/r.git", "git", "archive"),
    ("git+git@github.com:o/r.git", "", ""),
    ("hg+https://example.com/r", "git", ""),
    ("https://user:tok-en@example.com/foo.whl", "password", "netrc"),
    ("foo @ https://tok-en@example.com/foo.whl", "password", "netrc"),
    ("foo@https://user:tok-en@example.com/foo.whl", "password", "netrc"),
    ("git+https://tok-en@github.com/o/r", "password", "netrc"),
    ("foo @ https://${USER}:${TOKEN}@example.com/foo.whl", "password", "netrc"),
    ("foo @ https://example.com/${NAME}/foo.whl", "variable", ""),
    ("foo @ https://example.com/foo.whl?token=tok-en", "token", ""),
    ("foo @ https://b.s3.amazonaws.com/f.whl?X-Amz-Credential=a&X-Amz-Signature=tok-en", "token", ""),
    ("foo @ https://x.blob.core.windows.net/f.whl?sv=1&sig=tok-en", "token", ""),
    ("foo @ ftp://example.com/foo.whl", "ftp", ""),
    ("foo @ https:///foo.whl", "", ""),
    ("foo @ http://[x/foo.whl", "", ""),
    ("foo=1.0", "not a requirement", "NAME==VERSION"),
    ("foo bar", "not a requirement", ""),
    ("foo==1.0 bar https://user:tok-en@example.com/", "not a requirement", ""),
    ("foo>=1.0.*", "not a requirement", ""),
    ("import numpy", "not a requirement", ""),
    ("<html>", "not a requirement", ""),
    ("six --hash=sha256:xyz", "checksum", ""),
    ("six\x00", "control character", ""),
    ("six\x1b[31m", "control character", ""),
    ("six\u202e", "control character", ""),
]


def read(tmp_path: Path, text: str | bytes, **words: bool) -> list[str]:
    path = tmp_path / "r.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_requirements(path, "--with-requirements r.txt", **words)


@pytest.mark.parametrize(("text", "expected"), TAKEN)
def test_what_projects_write(tmp_path: Path, text: str, expected: list[str] | None):
    found = read(tmp_path, text)
    assert found == expected if expected is not None else len(found) == 1
    assert all("#" not in line.replace("#egg", "").replace("#sha256", "") for line in found)


@pytest.mark.parametrize(("text", "why", "remedy"), REFUSED)
def test_what_no_build_can_use(tmp_path: Path, text: str, why: str, remedy: str):
    with pytest.raises(RequestError) as refused:
        read(tmp_path, f"numpy\n# a comment\n{text}\nscipy\n")
    assert "r.txt:3: " in refused.value.message
    assert why in refused.value.message
    assert refused.value.remedy
    assert remedy in refused.value.remedy
    assert "tok-en" not in refused.value.message + refused.value.remedy


def test_git_where_the_image_has_it(tmp_path: Path):
    assert read(tmp_path, "clip @ git+https://github.com/openai/CLIP.git@main", git=True)
    with pytest.raises(RequestError, match="password"):
        read(tmp_path, "git+https://token@github.com/o/r", git=True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_pip_reads(tmp_path: Path, encoding: str):
    assert read(tmp_path, "# naïve\nnumpy\n".encode(encoding)) == ["numpy"]


@pytest.mark.parametrize(
    "data", [b"\x7fELF\x02\x01\x01\x00" + bytes(range(256)), b"numpy\ncaf\xe9\n", b"PK\x03\x04\x00"]
)
def test_files_that_are_not_text(tmp_path: Path, data: bytes):
    with pytest.raises(RequestError):
        read(tmp_path, data)


def test_files_that_are_none(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for name, word in (("missing.txt", "no such file"), (".", "regular"), ("pipe", "regular"), ("x" * 300, "read")):
        with pytest.raises(RequestError, match=word):
            read_requirements(tmp_path / name, name)
    (tmp_path / "large.txt").write_bytes(b"#" * 5_000_001)
    with pytest.raises(RequestError, match="too large"):
        read_requirements(tmp_path / "large.txt", "large.txt")


@given(st.text(max_size=60))
def test_any_text_is_requirements_or_one_error(tmp_path_factory: pytest.TempPathFactory, text: str):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        found = read_requirements(path, "any.txt")
    except RequestError as refused:
        assert refused.message
        return
    for line in found:
        assert "\n" not in line
        if not line.startswith("--") and "://" not in line:
            Requirement(line.partition(" --hash")[0])


def test_uv_can_read_what_is_passed_on(tmp_path: Path):
    lines = [line for text, _ in TAKEN for line in read(tmp_path, text)]
    (tmp_path / "all.txt").write_text("\n".join(lines) + "\n")
    words = ["uv", "pip", "compile", "--offline", "--no-deps", "--no-config", "--python-version", "3.11", "all.txt"]
    done = run([sys.executable, "-m", *words], cwd=tmp_path, env={"UV_CACHE_DIR": str(tmp_path / "cache")})
    assert not done.ok
    # It got as far as to look for the packages.
    assert "No solution found" in done.stderr or "cache" in done.stderr, done.stderr

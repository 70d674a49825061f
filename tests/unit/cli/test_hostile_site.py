"""Site files and variables that somebody got wrong, or meant to be wrong: one clear error each, and nothing goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwright.build.labels import revision
from trainwright.core import paths
from trainwright.core.errors import RequestError
from trainwright.push.ecr import aws_client
from trainwright.site.site import Site, load_site

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment without any site."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PIP_CONFIG_FILE": "/dev/null"}


BAD_SITES = [
    (r'index_url = "https://x.example/\nextra-index-url = http://y"', "index_url"),
    ('index_url = "http://"', "index_url"),
    ('index_url = "http://[x"', "index_url"),
    ('index_url = "http://x.example:port/"', "index_url"),
    ('index_url = "ftp://x/"', "index_url"),
    ('index_url = "file://[x"', "index_url"),
    ('index_url = "file://host/x"', "index_url"),
    (r'extra_index_urls = ["https://x.example/\nno-index = true"]', "extra_index_urls"),
    ('extra_index_urls = ["ftp://x/"]', "extra_index_urls"),
    ('extra_index_urls = ["file://[x"]', "extra_index_urls"),
    ("extra_index_urls = [1]", "extra_index_urls"),
    ('find_links = ["~nouser/x"]', "find_links"),
    ('find_links = ["ftp://x/"]', "find_links"),
    (r'find_links = ["a\nb"]', "find_links"),
    ('find_links = ["trainwright.toml"]', "find_links"),
    ('ca_bundle = "."', "ca_bundle"),
    ('ca_bundle = "trainwright.toml"', "ca_bundle"),
    ('netrc = "."', "netrc"),
    ('artifact_mirror = "ftp://x/"', "artifact_mirror"),
    (r'artifact_mirror = "https://x.example/\u001b[31m"', "artifact_mirror"),
    (r'apt_mirror = "http://x.example/ main\ndeb http://y"', "apt_mirror"),
    ('base_image = "--help"', "base_image"),
    ('builder = "--help"', "builder"),
    ('apt_folder = "trainwright.toml"', "apt_folder"),
    ('[proxies]\nhttps = "http://p:3128 -x"', "proxies.https"),
    (r"[proxies]" "\n" r'no = "a\nb"', "proxies.no"),
    ('[aws]\naccount = "١٢٣٤٥٦٧٨٩٠١٢"', "aws.account"),
    ('[registries]\n"docker.io" = "--help"', "registries"),
    ("x = " + "[" * 200_000, "nested"),
    ("index_url = " + "9" * 5000, "digits"),
    ("a" + ".a" * 200_000 + " = 1", "nested"),
    ("a = 1\na = 2", "overwrite"),
]


@pytest.mark.parametrize(("text", "word"), BAD_SITES, ids=[text[:40] for text, _ in BAD_SITES])
def test_a_site_file_that_is_wrong_names_line_and_key(
    tmp_path: Path, env: dict[str, str], text: str, word: str
) -> None:
    (tmp_path / "trainwright.toml").write_text(text)
    with pytest.raises(RequestError) as refused:
        load_site(cwd=tmp_path, environ=env)
    assert "trainwright.toml" in refused.value.message
    assert word in refused.value.message
    if not word.islower() or "_" in word or "." in word:
        assert f"trainwright.toml:{text.count(chr(10)) + 1}: " in refused.value.message


def test_a_bundle_in_pem_is_taken(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "ca.pem").write_bytes(b"# M\xfcller\n" + PEM.encode())
    (tmp_path / "trainwright.toml").write_text('ca_bundle = "ca.pem"')
    assert load_site(cwd=tmp_path, environ=env).ca_bundle == tmp_path / "ca.pem"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PIP_INDEX_URL", "http://"),
        ("PIP_INDEX_URL", "file://[x"),
        ("PIP_INDEX_URL", "https://u:S3CRET@[x/"),
        ("PIP_EXTRA_INDEX_URL", "file://[x"),
        ("PIP_EXTRA_INDEX_URL", "https://x:port/"),
        ("PIP_FIND_LINKS", "http://"),
        ("PIP_CONFIG_FILE", "/dev/zero"),
    ],
)
def test_an_environment_that_is_wrong_names_the_variable(
    tmp_path: Path, env: dict[str, str], name: str, value: str
) -> None:
    with pytest.raises(RequestError, match=f"{name}|/dev/zero") as refused:
        load_site(cwd=tmp_path, environ=env | {name: value})
    assert "S3CRET" not in refused.value.message


EMPTY = [
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CERT", "NETRC"),
    *("HTTP_PROXY", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "XDG_CONFIG_HOME"),
    *("AWS_REGION", "AWS_DEFAULT_REGION", "VIRTUAL_ENV", "XDG_CONFIG_DIRS"),
]


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_variable_is_an_unset_one(tmp_path: Path, env: dict[str, str], name: str) -> None:
    assert load_site(cwd=tmp_path, environ=env | {name: ""}) == load_site(cwd=tmp_path, environ=env) == Site()


@pytest.mark.parametrize("name", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL"])
def test_an_empty_variable_of_aws_is_an_unset_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    assert aws_client("ecr", "eu-west-1", Site()).meta.region_name == "eu-west-1"


@pytest.mark.parametrize("value", ["a\nb", "--label=x", "x" * 500])
def test_a_revision_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_REVISION", value)
    with pytest.raises(RequestError, match="TRAINWRIGHT_REVISION"):
        revision()
    monkeypatch.setenv("TRAINWRIGHT_REVISION", "")
    assert revision() not in ("", value)


def test_folders_that_are_not_there_are_passed_over_as_pip_does(tmp_path: Path, env: dict[str, str]) -> None:
    assert load_site(cwd=tmp_path, environ=env | {"PIP_FIND_LINKS": "~nouser/w"}) == Site()


def test_a_user_without_a_home_has_a_site(tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(_: Any) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(paths.Path, "home", classmethod(no_entry))
    monkeypatch.delenv("HOME")
    del env["HOME"]
    assert load_site(cwd=tmp_path, environ=env) == Site()
    assert load_site(cwd=tmp_path, environ={}).netrc is None

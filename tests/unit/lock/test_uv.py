"""What uv is told beside the packages, and what its words become."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.support.uv_answers import PACKAGES, ROOTS, SECRET_INDEX, FakeTools, Install
from trainwright.core.errors import Conflict, RequestError, SourceError
from trainwright.lock import make
from trainwright.lock.diff import changes
from trainwright.lock.wheels import lock_line, resolve_lock
from trainwright.plan.plan_lock import PlanLock
from trainwright.site.site import Site


def test_uv_knows_every_option_that_it_is_given(install: Install) -> None:
    """The real uv's own help: the stand-in takes anything."""
    bounded = {"python": "3.11", "as_of": "2022-10-05", "excluded": ["cuda-toolkit"], "constraints": ["a==1", "b==2"]}
    tools = install(FakeTools())
    lock_line({"components": PACKAGES, "base": "debian-12", **bounded})
    assert tools.inputs["constraints.txt"] == "a==1\nb==2\n"
    said = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", "--help"], capture_output=True, text=True, check=True
    ).stdout
    known = {*re.findall(r"(?<!\S)--[a-z-]+", said)}
    assert [argv[:5] for argv, _ in tools.uv] == [[sys.executable, "-m", "uv", "pip", "compile"]] * 2
    asked = {word.partition("=")[0] for argv, _ in tools.uv for word in argv if word.startswith("--")}
    assert {"--no-deps", "--format", "--exclude-newer", "--overrides", "--python-platform"} <= asked
    assert asked - known == set()


def test_addresses_reach_uv_by_environment_only(install: Install) -> None:
    config = (
        f"global.index-url='{SECRET_INDEX}'\n"
        "global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'\n"
        "global.timeout='10'\n"
        "install.timeout='20'\n"
        "download.timeout='99'\n"
        ":env:.timeout='30'\n"
        ":env:.find-links='/a /b'\n"
        ":env:.cert='/etc/bundle.crt'\n"
        ":env:.no-index='true'\n"
    )
    tools = install(FakeTools(config=config))
    resolve_lock(ROOTS, indexes=["https://three.example/whl"])
    for argv, env in tools.uv:
        assert not [word for word in argv if "://" in word]
        assert "--no-index" in argv
        assert env == {
            "UV_DEFAULT_INDEX": SECRET_INDEX,
            "UV_INDEX": "https://one.example/simple https://two.example/simple https://three.example/whl",
            "UV_FIND_LINKS": "/a,/b",
            "UV_HTTP_TIMEOUT": "30",
            "SSL_CERT_FILE": "/etc/bundle.crt",
            "UV_INDEX_STRATEGY": "unsafe-best-match",
            "UV_NO_WRAP": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }


def test_what_uv_is_told_itself_goes_first(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")
    monkeypatch.setenv("UV_INDEX", "https://more.example/simple")
    tools = install(FakeTools(config="global.index-url='https://pip.example/simple'\n"))
    resolve_lock(ROOTS, indexes=["https://three.example/whl"])
    assert "UV_DEFAULT_INDEX" not in tools.uv[0][1]
    assert tools.uv[0][1]["UV_INDEX"] == "https://more.example/simple https://three.example/whl"


@pytest.mark.parametrize(
    ("words", "kind", "expected"),
    [
        (
            "error: No solution found when resolving dependencies\n  cause: Because there is no version of six==99\n"
            "and you require six==99, we can conclude that your requirements are unsatisfiable.",
            Conflict,
            "packages conflict",
        ),
        (
            "error: Failed to fetch: https://u:hunter2@h.example/x/\n  cause: Connection refused",
            SourceError,
            "no answer",
        ),
        ("error: Failed to fetch: invalid peer certificate: UnknownIssuer", SourceError, "UnknownIssuer"),
        ("error: Couldn't parse requirement in `a.in` at position 0", RequestError, "cannot be read"),
        ("/usr/bin/python3: No module named uv", SourceError, "No module named uv"),
        ("word " * 1000, SourceError, r"word +\.\.\. "),
    ],
)
def test_the_resolver_s_words_become_a_failure(
    install: Install, words: str, kind: type[Exception], expected: str
) -> None:
    install(FakeTools(error=words))
    with pytest.raises(kind, match=expected) as failure:
        resolve_lock(ROOTS)
    assert "hunter2" not in str(failure.value)
    assert len(str(failure.value)) < 1000
    remedy = getattr(failure.value, "remedy", "")
    assert remedy
    assert ("Install uv" in remedy) == ("No module named uv" in words)
    if isinstance(failure.value, Conflict):
        (row,) = failure.value.details["rows"]
        assert row["constraint"] == "Python packages of the line"
        assert row["evidence"].startswith("Because there is no version of six==99")


@pytest.mark.parametrize(
    ("config", "own", "hosts"),
    [
        ("global.trusted-host='b.example a.example:8080'\n", None, ("a.example:8080", "b.example")),
        ("global.trusted-host='\\nb.example\\nb.example'\n", None, ("b.example",)),
        ("global.trusted-host='b.example'\n", "own.example,two.example", ("own.example", "two.example")),
        ("", None, ()),
    ],
)
def test_a_lock_names_the_hosts_whose_certificates_were_not_checked(
    install: Install, monkeypatch: pytest.MonkeyPatch, config: str, own: str | None, hosts: tuple[str, ...]
) -> None:
    monkeypatch.delenv("UV_INSECURE_HOST", raising=False)
    if own:
        monkeypatch.setenv("UV_INSECURE_HOST", own)
    install(FakeTools(config=config))
    lock = resolve_lock(ROOTS)
    assert lock.insecure_hosts == hosts
    # A lock that was made as it should be looks as it always did.
    assert json.loads(lock.dump()).get("insecure_hosts", []) == list(hosts)
    assert ("insecure_hosts" in lock.dump()) is bool(hosts)


def test_the_lock_of_a_plan_names_them_too_and_lock_says_so(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_INSECURE_HOST", raising=False)
    before = PlanLock(
        plan="0" * 64,
        request="",
        python_version="3.11",
        platform="x86_64-manylinux_2_36",
        insecure_hosts=("earlier.example",),
    )
    said: list[str] = []
    install(FakeTools(config="global.trusted-host='now.example'\n"))
    made = make._with_insecure_hosts(before, Site(), said.append)
    assert made.insecure_hosts == ("earlier.example", "now.example")
    assert [row.name for row in changes(before, made)] == ["now.example"]
    assert len(said) == 1 and "now.example" in said[0] and "earlier.example" not in said[0]
    install(FakeTools())
    assert make._with_insecure_hosts(before, Site(), said.append) == before
    assert len(said) == 1


def test_a_token_of_an_index_is_not_in_what_uv_says(install: Install) -> None:
    index = "https://index.example/T0KENPATH/simple"
    install(FakeTools(config=f"global.index-url='{index}'\n", error=f"error: Failed to fetch: `{index}/torch/`"))
    with pytest.raises(SourceError) as failed:
        resolve_lock(ROOTS)
    assert "T0KENPATH" not in str(failed.value.as_json())
    assert "https://index.example/…/torch/" in failed.value.message

"""No text shows a secret: passwords, tokens in paths and queries, in our messages and in those of other programs."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.loopback import dead_url
from trainwright.core import masking, runner
from trainwright.core.errors import SourceError
from trainwright.core.masking import mask, masked, remember
from trainwright.core.paths import images_dir, templates_dir
from trainwright.engine.buildkit_log import BuildProgress
from trainwright.engine.buildkit_parsers import masked_line
from trainwright.lock import wheels
from trainwright.site.site import Proxies, Site, load_site
from trainwright.site.web import ask_size
from trainwright.sources.download import Store, Wanted, fetch_all

DIGEST = "sha256:" + "0123456789abcdef" * 4
TOKEN = "T0KENPATH"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:pw@host/simple", "http://***@host/simple"),
        ("a,http://u:p@ss@h/x,https://v:w@i/y", "a,http://***@h/x,https://***@i/y"),
        ("https://tok3n@host/x", "https://***@host/x"),
        ("u:S3CRET6@p:3128", "***@p:3128"),
        ('{"https": "u:S3CRET6@p:3128"}', '{"https": "***@p:3128"}'),
        ("proxy=u:p@ss@p:3128,", "proxy=***@p:3128,"),
        ("u:pw@[::1]:3128", "***@[::1]:3128"),
        ("https://b.example/k?X-Amz-Credential=A&X-Amz-Signature=abc", "https://b.example/k?***"),
        ("(https://b.example/k?sv=1&sig=a%2Bb)", "(https://b.example/k?***"),
        ("with url: /k?sv=2&sig=a%2Bb&x=1 (Caused", "with url: /k?sv=2&sig=***&x=1 (Caused"),
        ("/k?access_token=abc#x", "/k?access_token=***#x"),
        ("Authorization: Basic bWU6cHc=", "Authorization: Basic ***"),
        ("{'authorization': 'Bearer a.b.c'}", "{'authorization': 'Bearer ***'}"),
    ],
)
def test_secrets_that_are_known_by_their_place(text: str, shown: str) -> None:
    assert mask(text) == shown
    assert mask(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "no url, me@mail",
        "git@github.com:org/repo.git",
        f"registry.example:5000/pytorch:2.6.0@{DIGEST}",
        f"pytorch:2.6.0@{DIGEST}",
        "https://github.com/open-mpi/ompi/archive/v4.1.5.tar.gz",
        "https://download.example/whl/cu126/torch-2.6.0%2Bcu126.whl#sha256=0123",
        "ssh://remote/x",
        "error: torch==2.6.0 at 12:30, see /usr/lib/python3.11 and C:\\x",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_every_address_of_the_catalog_stays_readable() -> None:
    Site(index_url=f"https://host.example/{TOKEN}/simple")
    files = [path for folder in (images_dir(), templates_dir()) for path in folder.rglob("*.yaml")]
    urls = {url for path in files for url in re.findall(r"https?://[^\s\"'<>,)]+", path.read_text())}
    assert len(urls) > 100
    assert {mask(url) for url in urls} == urls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"https://host.example/{TOKEN}/simple", "https://host.example/…"),
        (f"https://host.example/{TOKEN}/simple/", "https://host.example/…/"),
        (f"https://host.example:443/{TOKEN}/simple/torch/.", "https://host.example:443/…/torch/."),
        (f"https://HOST.example/{TOKEN}/packages/x.whl", "https://HOST.example/…/x.whl"),
        (f"https://host.example/{TOKEN}", "https://host.example/…"),
        (f"retries exceeded with url: /{TOKEN}/simple/torch/ (", "retries exceeded with url: /…/simple/torch/ ("),
        (f"key {TOKEN!r}", "key '***'"),
        (f"https%3A%2F%2Fhost.example%2F{TOKEN}%2Fsimple", "https%3A%2F%2Fhost.example%2F***%2Fsimple"),
        ("https://other.example/a/simple", "https://other.example/a/simple"),
        ("https://host.example:8443/a/simple", "https://host.example:8443/a/simple"),
    ],
)
def test_the_path_of_an_address_of_the_site_is_not_shown(text: str, shown: str) -> None:
    Site(extra_index_urls=(f"https://host.example/{TOKEN}/simple",))
    assert mask(text) == shown


def test_a_path_of_the_usual_words_is_shown_and_mask_never_raises() -> None:
    Site(index_url="https://host.example/artifactory/api/pypi/simple", apt_mirror="http://host.example/debian")
    for url in ("https://host.example/artifactory/api/pypi/simple/torch", "http://host.example/debian/dists"):
        assert mask(url) == url
    remember("http://[x", "http://h:port/x", "", None, "://", "@", ":@")
    assert mask("http://[x http://h:port/x") == "http://[x http://h:port/x"


def test_a_failure_masks_itself_whoever_raises_it() -> None:
    told = SourceError("no answer: http://u:pw@h/", remedy="ask http://u:pw@h/", urls=["http://u:pw@h/"])
    assert "pw" not in f"{told}{told.message}{told.remedy}{told.details}{json.dumps(told.as_json())}"


def test_a_short_login_of_a_proxy_is_masked_where_it_is_one() -> None:
    remember("tok@proxy.example:3128")
    assert mask("tok@proxy.example:3128 is broken, tok is not") == "***@proxy.example:3128 is broken, tok is not"


def test_a_value_of_json_is_masked_to_its_leaves() -> None:
    value = {"http://u:pw@h/": [("http://u:pw@h/", 1, None, True)], "n": {"x": 2.5}}
    assert masked(value) == {"http://***@h/": [("http://***@h/", 1, None, True)], "n": {"x": 2.5}}


# ---- a generated site ----------------------------------------------------------------------------------------------

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
tokens = st.tuples(st.text(LETTERS, min_size=10, max_size=30), st.integers(0, 9)).map(lambda two: f"Zq{two[1]}{two[0]}")
passwords = st.tuples(tokens, st.text("!$&*+,;=:@/?#[] %\"'\\", max_size=5)).map("".join)


@st.composite
def sites(draw: st.DrawFn, host: str) -> tuple[Site, list[str]]:
    names = [draw(passwords) for _ in range(3)]
    words = [draw(tokens) for _ in range(4)]
    login = [f"me:{quote(name, safe='')}" for name in names]
    scheme = draw(st.sampled_from(["", "http://"]))
    site = Site(
        index_url=f"http://{login[0]}@{host}/{words[0]}/simple",
        extra_index_urls=(f"http://{words[1]}@{host}/simple",),
        find_links_urls=(f"http://{host}/links?sv=1&sig={words[2]}",),
        artifact_mirror=f"http://{login[1]}@{host}/team/{words[3]}/",
        proxies=Proxies(https=f"{scheme}{login[2]}@127.0.0.1:9"),
    )
    return site, [*names, *words]


def assert_hidden(text: str, secrets: list[str]) -> None:
    for secret in secrets:
        for form in (
            secret,
            quote(secret, safe=""),
            json.dumps(secret)[1:-1],
            base64.b64encode(secret.encode()).decode(),
        ):
            assert form not in text


DEAD = dead_url().removeprefix("http://")


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(sites(DEAD))
def test_no_secret_of_a_site_is_shown_whatever_fails(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[Site, list[str]]
) -> None:
    site, secrets = made
    try:
        shown = [json.dumps(site.describe()), str(site), repr(site)]
        urls = (f"{site.artifact_mirror}ab/x.tar", f"{site.index_url}/torch/torch.whl", *site.addresses)
        store = Store(tmp_path_factory.mktemp("store"))
        for sha256 in (None, "0" * 64):
            with pytest.raises(SourceError) as failed:
                fetch_all([Wanted("thing", "x.tar", urls, sha256)], site, store, say=shown.append)
            shown += [str(failed.value), json.dumps(failed.value.as_json()), failed.value.remedy]
        shown += [str(ask_size(url, site)) for url in urls]
        said = " ".join(["x Failed to fetch:", *urls, f"no_proxy {site.proxies.https}", *map(quote, urls)])
        shown.append(json.dumps(wheels._failure(said).as_json()))
        shown.append(runner.Completed(("x",), 1, "", said, 0.0).tail())
        for text in (f"#1 0.1 {said}", json.dumps({"logs": [{"data": base64.b64encode(said.encode()).decode()}]})):
            logged = masked_line(text)
            shown += [logged] if text.startswith("#") else [json.dumps(logged), _decoded(logged)]
        shown += [line for text in ("plain", "rawjson") for line in _progress(text, said)]
        for text in shown:
            assert_hidden(text, secrets)
    finally:
        masking.forget()


def _decoded(line: str) -> str:
    return base64.b64decode(json.loads(line)["logs"][0]["data"]).decode()


def _progress(kind: str, said: str) -> list[str]:
    """What a view or an error shows of a step that says and fails with a text."""
    progress = BuildProgress("plain" if kind == "plain" else "rawjson")
    if kind == "plain":
        for line in ("#5 [os 1/1] RUN x", f"#5 0.1 {said}", f"#5 ERROR: {said}", f"ERROR: failed to solve: {said}"):
            progress.feed(line)
    else:
        half = len(said) // 2
        events = [
            {"vertexes": [{"digest": "a", "name": "[os 1/1] RUN x", "error": said}]},
            *(
                {"logs": [{"vertex": "a", "data": base64.b64encode(part.encode()).decode()}]}
                for part in (said[:half], said[half:])
            ),
        ]
        for event in events:
            progress.feed(json.dumps(event))
        progress.feed(f"ERROR: failed to solve: {said}")
    progress.close()
    failed = progress.failed
    assert failed is not None and failed.log
    return [failed.error, *failed.log, progress.problem]


def test_the_journal_and_the_environment_show_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", "https_proxy": "u:S3CRET6@p:3128"}
    environ |= {"PIP_INDEX_URL": f"https://host.example/{TOKEN}/simple"}
    site = load_site(cwd=tmp_path, environ=environ)
    runner.run(["true", f"https://host.example/{TOKEN}/simple", "u:S3CRET6@p:3128"])
    journal = (tmp_path / "state/commands.jsonl").read_text()
    told = json.dumps(site.describe())
    for text in (journal, told):
        assert TOKEN not in text and "S3CRET6" not in text
    assert "https://host.example/" in told and "***@p:3128" in told

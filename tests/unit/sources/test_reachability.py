"""Asking sources before a build: what answers, what does not, in how many seconds, and what is said of it."""

from __future__ import annotations

import base64
import hashlib
import time

import pytest

from tests.support.conflicts import request_of
from tests.support.loopback import dead_url, loopback, status, truncated
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import SourceError
from trainwright.engine.engine import Client, Engine
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Proxies, Site
from trainwright.sources import reachability
from trainwright.sources.gather import gather
from trainwright.verbs.documents import FailureDocument

GOOD = b"the right bytes" * 100
SHA = hashlib.sha256(GOOD).hexdigest()
FILE = "thing-1.0.tar.gz"
CATALOG = load_catalog()
# A program that answers nothing and succeeds at nothing, so no test can ask the machine's own engine.
ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")


@pytest.fixture(autouse=True)
def no_proxies(own_places: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def plan_with(*urls: str, image: str | None = None) -> Plan:
    """The CPU plan, its METIS from these places (none: from Debian), its base as given."""
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), CATALOG)
    own = (PlannedSource(file=FILE, sha256=SHA, url=urls[0], mirrors=urls[1:]),) if urls else ()
    components = tuple(c.replace(sources=own) if c.name == "metis" and urls else c for c in plan.components)
    return plan.replace(components=components, base=plan.base.replace(image=image))


def check(plan: Plan, site: Site | None = None, seconds: float = 5.0) -> None:
    reachability.check_sources(gather(plan, CATALOG, site or Site()), ENGINE, seconds=seconds)


def refused(plan: Plan, site: Site | None = None, seconds: float = 5.0) -> SourceError:
    with pytest.raises(SourceError) as failed:
        check(plan, site, seconds)
    assert failed.value.exit_code == 8
    return failed.value


def test_a_plan_without_archives_asks_nothing(server, monkeypatch):
    monkeypatch.setattr(reachability.threading, "Thread", None)
    site = Site(index_url=f"{server.url}/simple", artifact_mirror=server.url)
    check(plan_with(), site)
    assert not server.asked


@pytest.mark.parametrize("place", [0, 1])
def test_one_place_that_answers_is_enough(server, place):
    server.pages = {"/t": GOOD}
    urls = [f"{dead_url()}/t", f"{dead_url()}/t"]
    urls[place] = f"{server.url}/t"
    check(plan_with(*urls))
    assert server.headers[0]["Range"] == "bytes=0-0"


@pytest.mark.parametrize("path", [FILE, f"{SHA[:2]}/{SHA}/{FILE}"])
def test_the_mirror_of_the_site_is_enough(server, path):
    server.pages = {f"/base/{path}": GOOD}
    check(plan_with(f"{dead_url()}/t"), Site(artifact_mirror=f"{server.url}/base"))
    assert f"/base/{path}" in server.asked


def test_what_lies_in_the_folder_is_not_asked_for(server, tmp_path):
    (tmp_path / FILE).write_bytes(GOOD)
    check(plan_with(f"{server.url}/t"), Site(artifact_folder=tmp_path))
    assert not server.asked
    (tmp_path / FILE).write_bytes(b"else")
    refused(plan_with(f"{server.url}/t"), Site(artifact_folder=tmp_path))


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (status(404), "status 404"),
        (status(403), "status 403"),
        (status(500), "status 500"),
        (b"", "empty"),
        (lambda handler: handler.wfile.write(b"not http at all\r\n\r\n"), "not http"),
        (lambda _: None, "Remote end closed"),
        (status(302, Location="ftp://up.example/t"), "neither http nor https"),
    ],
)
def test_what_is_no_file_does_not_answer(server, page, why):
    server.pages = {"/t": page}
    failure = refused(plan_with(f"{server.url}/t"))
    assert why in failure.message
    assert failure.details["urls"] == [f"{server.url}/t"]


def test_truncated_content_answers_and_is_left_to_the_checksum(server):
    server.pages = {"/t": truncated(GOOD)}
    check(plan_with(f"{server.url}/t"))


def test_content_that_ends_before_its_first_byte_does_not_answer(server):
    server.pages = {"/t": truncated(b"1")}
    refused(plan_with(f"{server.url}/t"))


def test_a_silent_server_costs_no_more_than_the_limit(server):
    server.pages = {f"/{n}": server.silent for n in range(6)}
    started = time.monotonic()
    failure = refused(plan_with(*(f"{server.url}/{n}" for n in range(6))), seconds=0.6)
    assert time.monotonic() - started < 1.5
    assert "no answer within 0.6 s" in failure.message
    assert len(failure.details["urls"]) == 6


def test_a_question_that_ends_before_the_limit_says_the_same():
    """As a request whose own time limit, which is as long, ends first."""
    source = reachability.Source("archive", "a.tar.gz", "metis", (("http://a.example", lambda: "no answer"),))
    assert reachability.ask([source], 60) == [(source, {"http://a.example": "no answer within 60 s"})]


def test_a_silent_server_holds_up_nothing_where_a_mirror_answers(server):
    server.pages = {"/silent": server.silent, "/good": GOOD}
    started = time.monotonic()
    check(plan_with(f"{server.url}/silent", f"{server.url}/good"))
    assert time.monotonic() - started < 2


def test_the_failure_says_which_who_how_and_what_else():
    dead = dead_url()
    failure = refused(plan_with(f"{dead}/t"))
    assert f"archive {FILE}, needed by metis" in failure.message
    assert f"{dead}/t: [Errno 111] Connection refused" in failure.message
    assert "artifact_mirror" in failure.remedy
    assert "--skip-source-check" in failure.remedy
    assert "./invoke build --framework pytorch --cuda cpu --version 2.13.0" in failure.remedy
    details = failure.details
    assert (details["component"], details["file"], details["urls"]) == ("metis", FILE, [f"{dead}/t"])
    FailureDocument(**failure.as_json())


def test_credentials_go_to_their_host_alone_and_are_not_shown(server, tmp_path):
    with loopback() as other:
        other.pages = {"/t": GOOD}
        host = server.url.removeprefix("http://")
        server.pages = {"/t": status(302, Location=f"{other.url}/t")}
        check(plan_with(f"http://me:s%20cret@{host}/t"))
        assert server.headers[0]["Authorization"] == "Basic " + base64.b64encode(b"me:s cret").decode()
        assert "Authorization" not in other.headers[0]
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login you password two\n")
        check(plan_with(f"{server.url}/t"), Site(netrc=netrc, artifact_mirror=server.url))
        assert server.headers[1]["Authorization"] == "Basic " + base64.b64encode(b"you:two").decode()
    server.pages.clear()
    failure = refused(plan_with(f"http://me:s%20cret@{host}/t"))
    assert "cret" not in str(failure.as_json())


def test_the_proxy_of_the_site_is_asked(server):
    server.pages = {"http://far.invalid/t": GOOD}
    proxies = Proxies(http=server.url)
    check(plan_with("http://far.invalid/t"), Site(proxies=proxies))
    assert server.asked == ["http://far.invalid/t"]
    refused(plan_with("http://far.invalid/t"), Site(proxies=Proxies(http=server.url, no="far.invalid")))
    assert len(server.asked) == 1


def test_an_index_of_the_site_is_asked_along(server):
    server.pages = {"/t": GOOD, "/simple": status(403)}
    check(plan_with(f"{server.url}/t"), Site(index_url=f"{server.url}/simple"))
    assert "/simple" in server.asked
    host = server.url.removeprefix("http://")
    server.pages["/simple"] = status(401)
    failure = refused(plan_with(f"{server.url}/t"), Site(index_url=f"http://me:s3cret@{host}/simple"))
    assert f"index http://***@{host}/simple" in failure.message
    assert "index_url" in failure.remedy


def test_a_base_image_that_the_engine_has_is_not_asked_for(monkeypatch, server):
    has = Engine(Client("/bin/true", "builtin", "20.10", "plain"), "20.10")
    monkeypatch.setattr(reachability, "sdk", None)
    reachability.check_sources(gather(plan_with(image="local/base:1"), CATALOG, Site()), has)


def test_the_engine_is_asked_for_a_base_image(monkeypatch):
    class Registry:
        asked: list[str] = []

        @property
        def images(self) -> Registry:
            return self

        def get_registry_data(self, name: str) -> None:
            self.asked.append(name)
            if name.startswith(("gone", "nvidia/cuda:11.2.1")):
                from docker.errors import NotFound

                raise NotFound("404", explanation=f"manifest of {name} unknown")
            if name.startswith("silent"):
                time.sleep(2)

    monkeypatch.setattr(reachability, "sdk", lambda _: Registry())
    check(plan_with(image="good.example/base:1"))
    failure = refused(plan_with(image="gone.example/base:1"), Site(base_image="gone.example/base:1"))
    assert "base image gone.example/base:1" in failure.message
    assert "manifest of gone.example/base:1 unknown" in failure.message
    assert "base_image" in failure.remedy
    assert "nearest" not in failure.remedy
    assert "no answer" in refused(plan_with(image="silent.example/base:1"), seconds=0.3).message
    assert Registry.asked == ["good.example/base:1", "gone.example/base:1", "silent.example/base:1"]
    deleted = refused(plan_with(image="nvidia/cuda:11.2.1-base-ubuntu20.04"))
    assert "nvidia/cuda:11.2.2-base-ubuntu20.04" in deleted.remedy


@pytest.mark.parametrize(
    ("flags", "offered"),
    [
        ("--framework pytorch --cuda cpu", "--framework pytorch --cuda cpu --without metis"),
        (
            "--framework pytorch --cuda cpu --without efa --set mpi4py=4.1.2",
            "--framework pytorch --cuda cpu --without metis,efa --set mpi4py=4.1.2",
        ),
    ],
)
def test_what_an_image_can_do_without_may_be_left_out(flags, offered):
    plan = plan_with(f"{dead_url()}/t")
    with pytest.raises(SourceError) as failed:
        reachability.check_sources(gather(plan, CATALOG, Site(), flags=flags), ENGINE)
    assert failed.value.details["offer"] == f"./invoke build {offered}"
    assert f"Or leave out what needs it: ./invoke build {offered}" in failed.value.remedy
    assert "artifact_mirror" in failed.value.remedy


@pytest.mark.parametrize(
    ("words", "way"),
    [
        ({"cuda": "cu113"}, "--framework pytorch --cuda cu113 --version 1.12.1 --base debian"),
        # The nearest version: it is another one, so the command says which.
        ({"cuda": "cu113", "version": "1.10.2"}, "--framework pytorch --cuda cu113 --version 1.12.1 --base debian"),
        ({"cuda": "cu111"}, None),
        ({"cuda": "cu113", "base": "debian"}, None),
    ],
)
def test_without_an_image_of_nvidia_s_the_line_on_debian_is_offered(words, way):
    plan = resolve(make_request(framework="pytorch", **words), CATALOG)
    assert reachability.on_debian(plan, CATALOG) == (way and f"./invoke build {way}")
    source = reachability.Source("base image", plan.base.image or "", "base", ())
    failed = reachability._failure([(source, {"docker.io": "not found"})], gather(plan, CATALOG, Site()))
    assert ("needs no image of a registry" in failed.remedy) is (way is not None)


@pytest.mark.parametrize("name", ["openmpi", "pytorch"])
def test_what_others_need_and_the_framework_stay(name):
    plan = plan_with(f"{dead_url()}/t")
    own = PlannedSource(file="other-1.0.tar.gz", sha256=SHA, url=f"{dead_url()}/o")
    parts = tuple(c.replace(sources=(own,)) if c.name == name else c for c in plan.components)
    plan = plan.replace(components=parts)
    with pytest.raises(SourceError) as failed:
        reachability.check_sources(gather(plan, CATALOG, Site(), flags="--framework pytorch --cuda cpu"), ENGINE)
    assert "leave out" not in failed.value.remedy


@pytest.mark.parametrize(
    ("words", "names", "offered"),
    [
        (
            {"cuda": "cu130", "with_": "nccl-tests"},
            ("aws-ofi-nccl", "nccl-tests"),
            "--framework pytorch --cuda cu130 --without aws-ofi-nccl,nccl-tests",
        ),
        (
            {"cuda": "cu130", "with_": "compiler,gdrcopy,bitsandbytes"},
            ("gdrcopy",),
            "--framework pytorch --cuda cu130 --with compiler,bitsandbytes --without gdrcopy",
        ),
        (
            {"cuda": "cpu", "with_": "torchvision", "without": "rmm"},
            ("torchvision",),
            "--framework pytorch --cuda cpu --without torchvision,rmm",
        ),
        (
            {"cuda": "cu130", "with_": "gdrcopy", "set_": ["gdrcopy=2.5.1", "nccl=2.30.7"]},
            ("gdrcopy",),
            "--framework pytorch --cuda cu130 --set nccl=2.30.7 --without gdrcopy",
        ),
    ],
)
def test_what_is_left_out_is_neither_added_nor_pinned(words, names, offered):
    request = make_request(framework="pytorch", **words)
    plan = resolve(request, CATALOG)
    missing = [(reachability.Source("archive", f"{name}.tar.gz", name, (), SHA), {"u": "gone"}) for name in names]
    failed = reachability._failure(missing, gather(plan, CATALOG, Site(), flags=request.flags()))
    assert failed.details["offer"] == f"./invoke build {offered}"
    left = resolve(request_of(failed.details["offer"]), CATALOG)
    assert not {*names} & {component.name for component in left.components}


def test_each_missing_archive_has_its_path_in_a_mirror():
    plan = plan_with()
    missing = [
        (reachability.Source("archive", file, "metis", (), sha256), {"u": "gone"})
        for file, sha256 in (("a.tar.gz", SHA), ("b.tar.gz", None))
    ]
    remedy = reachability._failure(missing, gather(plan, CATALOG, Site())).remedy
    assert f"Their paths there are\n    {SHA[:2]}/{SHA}/a.tar.gz or a.tar.gz\n    b.tar.gz\n" in remedy

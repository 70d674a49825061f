"""Archives: in which order places are asked, what a download accepts, and what is said where none has the file."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.loopback import dead_url, status, truncated
from trainwright.build.context import write_context
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.component import SourceFile
from trainwright.core.errors import RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.core.records import parse_record
from trainwright.plan.dockerfile import steps
from trainwright.plan.plan import Plan, PlannedSource
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site
from trainwright.sources import locations
from trainwright.sources.failures import FETCH_EXIT, source_failure
from trainwright.sources.gather import gather
from trainwright.sources.inputs import Input, Materials
from trainwright.sources.reachability import nearest_from_packages

GOOD = b"the right bytes" * 100
SHA = hashlib.sha256(GOOD).hexdigest()
FILE = "thing-1.0.tar.gz"
ARCHIVE = PlannedSource(file=FILE, sha256=SHA, url="https://up.example/t", mirrors=("https://m.example/t",))
pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture
def catalog(tmp_path: Path):
    """The shipped catalog with METIS from upstream's archive in the CPU line."""
    shutil.copytree(images_dir(), tmp_path / "images")
    path = tmp_path / "images" / "pytorch" / "cpu" / "line.yaml"
    text = path.read_text()
    assert "metis: {provider: debian" in text
    path.write_text(text.replace("metis: {provider: debian", "metis: {provider: source"))
    return load_catalog(tmp_path / "images", templates_dir())


@pytest.fixture
def plan(catalog) -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cpu"), catalog)


def addresses(site: Site) -> list[str]:
    return [place.address for place in locations.places(ARCHIVE, site)]


def test_the_mirror_comes_first_in_both_layouts_then_url_then_mirrors():
    site = Site(artifact_mirror="https://mine.example/a/")
    first, second, *rest = addresses(site)
    assert first == f"https://mine.example/a/{SHA[:2]}/{SHA}/{FILE}"
    assert second == f"https://mine.example/a/{FILE}"
    assert rest == ["https://up.example/t", "https://m.example/t"]
    assert addresses(Site()) == rest


@pytest.mark.parametrize(
    "wrong",
    [
        {"file": "a/b.tar.gz"},
        {"file": "$(id)"},
        {"sha256": "abc"},
        {"url": "ftp://up.example/t"},
        {"url": "https://up.example/'; id"},
        {"url": None},
        {"mirrors": ["https://m.example/$(id)"]},
        {"package": "metis"},
    ],
)
def test_odd_sources_are_refused_where_they_are_read(wrong):
    good = {"file": FILE, "sha256": SHA, "url": "https://up.example/t?a=1&b=2"}
    assert parse_record(SourceFile, good, "here").url == good["url"]
    with pytest.raises(RequestError, match="here"):
        parse_record(SourceFile, good | wrong, "here")


def test_the_dockerfile_names_the_places_and_their_checksum(plan, catalog):
    text = render_dockerfile(plan, catalog)
    metis = plan.component("metis")
    assert metis is not None
    (archive,) = metis.archives
    fetch, build = [s.instruction for s in steps(text) if s.stage == "metis" and "WORKDIR" not in s.instruction]
    assert f" fetch {archive.file} {archive.sha256} " in fetch
    assert fetch.index(str(archive.url)) < fetch.index(archive.mirrors[0])
    assert "--mount=type=secret,id=artifacts" in fetch
    assert f"unpack {archive.file}" in build
    (packages,) = [s.instruction for s in steps(text) if s.stage == "toolchain" and "apt-install" in s.instruction]
    assert " curl " in packages
    # A plan without archives has none of it.
    debian = render_dockerfile(resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog()), load_catalog())
    assert "fetch" not in debian.replace("/mnt/apt-fetch", "")
    assert " curl " not in debian
    # Compiled alike: what follows the download is the same for both providers.
    other = [s.instruction for s in steps(debian) if s.stage == "metis"][-1]
    assert build.replace(str(archive.file), "F") == other.replace("metis_5.1.0.dfsg.orig.tar.xz", "F")


def test_an_archive_of_the_folder_goes_into_the_context(plan, catalog, tmp_path, monkeypatch):
    plan = plan.replace(base=plan.base.replace(image="debian:bookworm-slim"))
    metis = plan.component("metis")
    assert metis is not None
    changed = metis.replace(sources=(ARCHIVE,))
    plan = plan.replace(components=tuple(changed if c.name == "metis" else c for c in plan.components))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / FILE).write_bytes(GOOD)
    said: list[str] = []
    site = Site(artifact_folder=tmp_path / "folder")
    write_context(gather(plan, catalog, site), tmp_path / "context", say=said.append)
    assert (tmp_path / "context" / "archives" / "metis" / FILE).read_bytes() == GOOD
    write_context(gather(plan, catalog, Site()), tmp_path / "context", say=said.append)
    assert not any((tmp_path / "context" / "archives" / "metis").iterdir())
    assert not said
    (tmp_path / "folder" / FILE).write_bytes(b"else")
    write_context(gather(plan, catalog, site), tmp_path / "context", say=said.append)
    assert "is ignored" in said[0]
    assert str(tmp_path / "folder") not in (tmp_path / "context" / "Dockerfile").read_text()


def test_a_line_with_archives_needs_more_than_package_registries(catalog, plan):
    needs = {entry.path: catalog.from_packages(entry) for entry in catalog.lines}
    made_here = {entry.path for entry in catalog.lines if entry.line.base.kind == "debian"}
    # The lines that the fixture gives an archive, those with NCCL's plugin, and that with PyTorch's own wheel.
    archived = {entry.path for entry in catalog.lines if "aws-ofi-nccl" in entry.line.components}
    archived |= {entry.path for entry in catalog.lines if entry.name == "cu113"}
    made_here = {
        path
        for path in made_here - archived
        if path.parts[-2] not in ("cpu", "cpu-py313") or path.parts[-3] != "pytorch"
    }
    assert {path for path, packages in needs.items() if packages} == made_here
    own = "./invoke build --framework pytorch --cuda cpu --version 2.13.0 --without metis"
    assert nearest_from_packages(plan, catalog) == own
    near = plan.replace(cuda="12.3", version="2.5.0")
    assert nearest_from_packages(near, catalog) == "./invoke build --framework pytorch --cuda cu124 --version 2.6.0"
    # An image can do without NCCL's plugin, which no package registry has.
    newest = plan.replace(cuda="13.2", version="2.15.0")
    words = "--framework pytorch --cuda cu132 --version 2.15.0 --without aws-ofi-nccl"
    assert nearest_from_packages(newest, catalog) == f"./invoke build {words}"


Fetch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def fetch(tmp_path: Path) -> Fetch:
    """The script of the build step, with folders of its own."""
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    folders = ("/mnt", "/run/secrets", "/src")
    for name in folders:
        (tmp_path / name[1:]).mkdir(parents=True)
    script = tmp_path / "fetch"
    text = (templates_dir() / "tools" / "build" / "fetch").read_text()
    for name in folders:
        text = text.replace(name, f"{tmp_path}{name}")
    script.write_text(text)

    def run(*urls: str, sha256: str = SHA) -> subprocess.CompletedProcess[str]:
        argv = ["sh", str(script), FILE, sha256, *urls]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    return run


def test_fetch_takes_the_first_place_that_has_it(fetch, server, tmp_path):
    server.pages = {"/a": GOOD, "/b": GOOD}
    done = fetch(f"{server.url}/a", f"{server.url}/b")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "src" / FILE).read_bytes() == GOOD
    assert server.asked == ["/a"]


def test_fetch_asks_the_mirror_of_the_site_first_and_shows_no_password(fetch, server, tmp_path):
    host = server.url.removeprefix("http://")
    (tmp_path / "run" / "secrets" / "artifacts").write_text(f"http://me:s3cret@{host}/base/\n")
    (tmp_path / "run" / "secrets" / "netrc").write_text("machine 127.0.0.1 login you password other\n")
    server.pages = {"/up": GOOD}
    done = fetch(f"{server.url}/up")
    assert done.returncode == 0, done.stdout
    assert server.asked == [f"/base/{SHA[:2]}/{SHA}/{FILE}", f"/base/{FILE}", "/up"]
    assert [h["Authorization"] for h in server.headers[:2]] == ["Basic bWU6czNjcmV0"] * 2
    # A netrc knows hosts alone: over plain http nobody but the site's own mirror gets its password.
    assert "Authorization" not in server.headers[2]
    (tmp_path / "run" / "secrets" / "artifacts").write_text(f"http://{host}/base/\n")
    fetch(f"{server.url}/up")
    asked = [h.get("Authorization") for h in server.headers[3:]]
    assert asked == ["Basic eW91Om90aGVy"] * 2 + [None]
    (tmp_path / "run" / "secrets" / "artifacts").write_text(f"http://me:s3cret@{host}/base/\n")
    server.pages.clear()
    done = fetch(f"{server.url}/up")
    assert f"tried http://***@{host}/…/{FILE}: curl: (22)" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (truncated(GOOD), "curl: (18)"),
        (GOOD[:-1], "has the sha256"),
        (b"", "has the sha256 e3b0c44298fc"),
        (status(404), "404"),
        (status(302, Location="file:///etc/passwd"), "curl: (1)"),
    ],
)
def test_fetch_passes_over_what_is_wrong(fetch, server, tmp_path, bad, why):
    server.pages = {"/bad": bad, "/good": GOOD}
    done = fetch(dead_url(), f"{server.url}/bad", f"{server.url}/good")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "src" / FILE).read_bytes() == GOOD
    done = fetch(dead_url(), f"{server.url}/bad")
    assert done.returncode == FETCH_EXIT
    assert why in done.stdout
    assert not (tmp_path / "src" / FILE).exists(), "a wrong file is removed"


def test_fetch_goes_on_where_a_connection_broke_once(fetch, server):
    answers = [truncated(GOOD), GOOD]

    def flaky(handler):
        page = answers.pop(0)
        if isinstance(page, bytes):
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(page)
        else:
            page(handler)

    server.pages = {"/a": flaky}
    assert fetch(f"{server.url}/a").returncode == 0
    assert not answers


def test_fetch_uses_the_context_before_any_place(fetch, server, tmp_path):
    (tmp_path / "mnt" / FILE).write_bytes(GOOD)
    assert fetch(f"{server.url}/a").returncode == 0
    assert not server.asked
    (tmp_path / "mnt" / FILE).write_bytes(b"else")
    done = fetch(f"{server.url}/a")
    assert done.returncode == FETCH_EXIT
    assert "of the build context: has the sha256" in done.stdout


def taken(source: PlannedSource) -> Materials:
    return Materials(archives=(Input("thing", "archive", source),))


def test_a_failed_fetch_is_told_with_file_places_and_remedy(fetch, server):
    server.pages = {"/changed": b"other"}
    dead = dead_url()
    done = fetch(dead, f"{server.url}/changed")
    failure = source_failure(taken(ARCHIVE), "other", 88, done.stdout.splitlines(), "/log")
    assert failure is not None
    assert failure.exit_code == 8
    details = failure.details
    assert (details["component"], details["file"], details["urls"]) == ("thing", FILE, [dead, f"{server.url}/changed"])
    assert (details["expected"], details["found"]) == (SHA, hashlib.sha256(b"other").hexdigest())
    assert failure.message.startswith(f"thing: no source has {FILE}")
    assert "artifact_mirror" in failure.remedy
    assert f"{SHA[:2]}/{SHA}/{FILE}" in failure.remedy


def test_a_file_without_a_known_checksum_is_told_by_its_name(fetch):
    unknown = ARCHIVE.replace(sha256=None)
    done = fetch(dead_url(), sha256="-")
    failure = source_failure(taken(unknown), "other", 88, done.stdout.splitlines(), "/log")
    assert failure is not None
    assert failure.exit_code == 8
    assert (failure.details["component"], failure.details["file"], failure.details["expected"]) == ("thing", FILE, None)
    assert f"no source has {FILE};" in failure.message


UV = """\
error: Failed to download `six==1.16.0`
  cause: Hash mismatch for `six==1.16.0`

         Expected:
           sha256:{expected}

         Computed:
           sha256:{found}
"""
PIP = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, …
    six==1.16.0 from https://index.example/six-1.16.0-py2.py3-none-any.whl (from -r /mnt/requirements.txt (line 1)):
        Expected sha256 {expected}
             Got        {found}
"""


@pytest.mark.parametrize("said", [UV, PIP])
def test_a_hash_mismatch_of_a_package_is_a_source_failure(said):
    expected, found = "0" * 64, "1" * 64
    six = Input("thing", "python", PlannedSource(package="six==1.16.0", file="six.whl", sha256=expected))
    lines = said.format(expected=expected, found=found).splitlines()
    failure = source_failure(Materials(python=(six,)), "tools", 1, lines, "/log")
    assert failure is not None
    assert failure.details["component"] == "thing"
    assert (failure.details["file"], failure.details["expected"], failure.details["found"]) == (
        "six==1.16.0",
        expected,
        found,
    )
    assert expected in failure.message
    assert found in failure.message


def test_a_failed_sha256sum_is_a_source_failure():
    lines = [f"{FILE}: FAILED", "sha256sum: WARNING: 1 computed checksum did NOT match"]
    failure = source_failure(taken(ARCHIVE), "os", 1, lines, "/log")
    assert failure is not None
    assert (failure.details["component"], failure.details["file"]) == ("thing", FILE)
    assert failure.details["expected"] == SHA


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (88, ["something else that ends with 88"]),
        (1, [f"fetch: no place has {FILE} with the sha256 {SHA}"]),
        (2, ["make: *** [all] Error 2"]),
        (100, ["E: Unable to locate package nosuch"]),
        (23, ["fetch: cannot write /src/a (no space left on device?): curl: (23)"]),
    ],
)
def test_any_other_failure_is_none_of_a_source(code, lines):
    assert source_failure(taken(ARCHIVE), "thing", code, lines, "/log") is None

"""Where things come from: pip's configuration, the environment and trainwright.toml, without leaking a credential."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from trainwright.core.errors import RequestError
from trainwright.core.masking import mask
from trainwright.site.site import Site, load_site

INDEX = "https://me:s3cret@index.example/simple"
pytestmark = pytest.mark.usefixtures("own_places")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment without any site: pip's files are switched off (the machine's own are not a test's business)."""
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "PIP_CONFIG_FILE": "/dev/null"}


@pytest.fixture
def pip_conf(tmp_path: Path, env: dict[str, str]) -> Path:
    path = tmp_path / "pip.conf"
    env["PIP_CONFIG_FILE"] = str(path)
    # The machine's /etc/pip.conf is read as well: what a test looks at is set here.
    path.write_text("[global]\nindex-url =\nextra-index-url =\nfind-links =\ncert =\n")
    return path


def toml(tmp_path: Path, text: str) -> Path:
    (tmp_path / "trainwright.toml").write_text(text)
    return tmp_path


def test_a_bare_machine_has_no_site(tmp_path: Path, env: dict[str, str]) -> None:
    site = load_site(cwd=tmp_path, environ=env)
    assert site == Site()
    assert site.secrets(tmp_path / "s") == {} and site.build_args() == {}
    assert site.uv_config() == "" and site.apt_sources() == ""
    assert site.describe() == {"origins": {}}


def test_pip_configuration_is_read_as_pip_reads_it(tmp_path: Path, env: dict[str, str], pip_conf: Path) -> None:
    for folder in ("wheels", "more wheels", "simple"):
        (tmp_path / folder).mkdir()
    ca = tmp_path / "ca.pem"
    ca.write_text("ca")
    pip_conf.write_text(
        f"[global]\nindex_url = {INDEX}\ncert = {ca}\nfind-links =\n  {tmp_path}/wheels\n  /not/there\n"
        f"  https://links.example/\n  {(tmp_path / 'more wheels').as_uri()}\n"
        f"[install]\nextra-index-url = https://two.example/simple {(tmp_path / 'simple').as_uri()} file:///not/there\n"
    )
    site = load_site(cwd=tmp_path, environ=env)
    assert site.index_url == INDEX
    assert site.extra_index_urls == ("https://two.example/simple",)
    assert site.local_indexes == (tmp_path / "simple",)
    assert site.find_links == (tmp_path / "wheels", tmp_path / "more wheels")
    assert site.find_links_urls == ("https://links.example/",)
    assert site.ca_bundle == ca
    assert site.origins["index_url"] == site.origins["local_indexes"] == str(pip_conf)


def test_variables_win_over_files_and_the_venv_over_the_user(
    tmp_path: Path, env: dict[str, str], pip_conf: Path
) -> None:
    del env["PIP_CONFIG_FILE"]
    for name, url in (("home/.config/pip", "user"), ("home/.pip", "old"), ("venv", "venv")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "pip.conf").write_text(f"[global]\nindex-url = https://{url}.example\n")
    assert load_site(cwd=tmp_path, environ=env).index_url == "https://user.example"
    env["VIRTUAL_ENV"] = str(tmp_path / "venv")
    assert load_site(cwd=tmp_path, environ=env).index_url == "https://venv.example"
    env["PIP_INDEX_URL"] = "https://env.example"
    site = load_site(cwd=tmp_path, environ=env)
    assert (site.index_url, site.origins["index_url"]) == ("https://env.example", "PIP_INDEX_URL")


def test_a_local_default_index_means_no_index(tmp_path: Path, env: dict[str, str]) -> None:
    env["PIP_INDEX_URL"] = tmp_path.as_uri()
    site = load_site(cwd=tmp_path, environ=env)
    assert (site.index_url, site.local_indexes, site.no_index) == (None, (tmp_path,), True)
    assert site.uv_config() == "no-index = true\n"


@pytest.mark.parametrize("value", ["simple", "ftp://x", ""])
def test_an_odd_index_of_the_machine_is_left_alone(tmp_path: Path, env: dict[str, str], value: str) -> None:
    assert load_site(cwd=tmp_path, environ=env | {"PIP_INDEX_URL": value}) == Site()


def test_a_broken_pip_conf_says_which_file(tmp_path: Path, env: dict[str, str], pip_conf: Path) -> None:
    pip_conf.write_text("index-url = x\n")
    with pytest.raises(RequestError, match=r"pip\.conf"):
        load_site(cwd=tmp_path, environ=env)


def test_the_environment_gives_bundle_proxies_netrc_and_region(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "b.pem").write_text("b")
    (tmp_path / "home/.netrc").write_text("machine x login y password z\n")
    env |= {"SSL_CERT_FILE": "/not/there", "CURL_CA_BUNDLE": str(tmp_path / "b.pem"), "AWS_REGION": "eu-west-1"}
    env |= {"HTTP_PROXY": "http://upper", "http_proxy": "http://u:p@lower:3128", "NO_PROXY": "localhost"}
    site = load_site(cwd=tmp_path, environ=env)
    assert site.ca_bundle == tmp_path / "b.pem"
    assert site.aws.region == "eu-west-1"
    assert site.build_args() == {
        "HTTP_PROXY": "http://u:p@lower:3128",
        "http_proxy": "http://u:p@lower:3128",
        "NO_PROXY": "localhost",
        "no_proxy": "localhost",
    }
    assert site.secrets(tmp_path / "s") == {"ca": tmp_path / "b.pem", "netrc": tmp_path / "home/.netrc"}
    assert load_site(cwd=tmp_path, environ=env | {"AWS_REGION": "Mars!"}).aws.region is None


def test_the_file_overrides_the_machine_and_keeps_the_rest(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "w").mkdir()
    toml(
        tmp_path,
        'index_url = "https://file.example/simple"\nfind_links = ["w", "https://l.example/"]\n'
        'base_image = "debian:bookworm-slim"\nbuild_network = "host"\n[aws]\naccount = "123456789012"\n'
        '[proxies]\nno = "here"\n',
    )
    env |= {"PIP_INDEX_URL": INDEX, "AWS_REGION": "us-west-2", "https_proxy": "http://p"}
    site = load_site(cwd=tmp_path, environ=env)
    assert site.index_url == "https://file.example/simple"
    assert site.find_links == (tmp_path / "w",) and site.find_links_urls == ("https://l.example/",)
    assert (site.aws.account, site.aws.region) == ("123456789012", "us-west-2")
    assert (site.proxies.no, site.proxies.https) == ("here", "http://p")
    assert (site.base_image, site.build_network) == ("debian:bookworm-slim", "host")
    assert site.origins["index_url"] == "trainwright.toml"


def test_a_named_site_file_must_exist(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(RequestError, match=r"--site other\.toml: no such file"):
        load_site(Path("other.toml"), cwd=tmp_path, environ=env)
    (tmp_path / "other.toml").write_text('builder = "b"')
    assert load_site(Path("other.toml"), cwd=tmp_path, environ=env).builder == "b"


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ('\nindex_ulr = "x"', r"trainwright\.toml:2: index_ulr: unknown key", "index_url"),
        ('[aws]\nacount = "1"', r"trainwright\.toml:2: aws\.acount: unknown key", "account"),
        ("[proxies]\nhttps = 1", r"trainwright\.toml:2: proxies\.https: must be text", ""),
        ("[aws]\naccount = 123456789012", r"trainwright\.toml:2: aws\.account: must be text", ""),
        ('quux = {a = "b"}', r"trainwright\.toml:1: quux: unknown key", "Known"),
        ('build_network = "bridge"', r"trainwright\.toml:1: build_network: must be 'host' or 'none'", ""),
        ('find_links = "w"', r"trainwright\.toml:1: find_links: must be a list", ""),
        ('index_url = "ftp://u:pw@x"', r"trainwright\.toml:1: index_url: is neither", ""),
        ('ca_bundle = "no.pem"', r"trainwright\.toml:1: ca_bundle: .*no\.pem does not exist", ""),
        ('find_links = ["no"]', r"trainwright\.toml:1: find_links: .*no does not exist", ""),
        ("a = \nb = 1", r"trainwright\.toml: .*line 1", "TOML"),
    ],
)
def test_mistakes_name_file_line_and_key(
    tmp_path: Path, env: dict[str, str], text: str, message: str, remedy: str
) -> None:
    with pytest.raises(RequestError, match=message) as wrong:
        load_site(cwd=toml(tmp_path, text), environ=env)
    assert remedy in wrong.value.remedy
    assert "pw" not in wrong.value.message and wrong.value.exit_code == 2


def test_no_credential_is_ever_shown(tmp_path: Path, env: dict[str, str]) -> None:
    toml(
        tmp_path,
        f'index_url = "{INDEX}"\nextra_index_urls = ["https://tok3n@two.example/s"]\n'
        'apt_mirror = "http://a:p@ss@deb.example/debian"\n[proxies]\nhttp = "http://u:s3cret@proxy:1"\n',
    )
    site = load_site(cwd=tmp_path, environ=env)
    for shown in (json.dumps(site.describe()), str(site), repr(site), f"{site}"):
        assert not any(word in shown for word in ("s3cret", "tok3n", "p@ss", "me:"))
        assert "https://***@index.example/simple" in shown
    assert mask("no url, me@mail") == "no url, me@mail"


def test_secret_files_are_private_and_hold_the_credentials(tmp_path: Path) -> None:
    site = Site(
        index_url=INDEX,
        extra_index_urls=("https://two.example/s",),
        find_links_urls=("https://l.example/",),
        apt_mirror="http://mirror.example/debian/",
    )
    for _ in range(2):  # again over the old ones
        secrets = site.secrets(tmp_path / "deep" / "secrets")
    assert set(secrets) == {"uv", "pip", "apt-sources"}
    assert stat.S_IMODE((tmp_path / "deep/secrets").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets.values()} == {0o600}
    assert secrets["uv"].read_text() == (
        'index-strategy = "unsafe-best-match"\nfind-links = ["https://l.example/"]\n\n[[index]]\n'
        f'url = "https://two.example/s"\n\n[[index]]\nurl = "{INDEX}"\ndefault = true\n'
    )
    lines = [line.split("] ")[1] for line in secrets["apt-sources"].read_text().splitlines()]
    assert lines == [
        "http://mirror.example/debian bookworm main",
        "http://mirror.example/debian bookworm-updates main",
        "http://mirror.example/debian-security bookworm-security main",
    ]
    assert site.apt_sources("sid").count("\n") == 1


def test_the_site_is_frozen_and_strict() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Site().builder = "x"  # type: ignore[misc]
    with pytest.raises(ValueError, match="unknown key 'indx'"):
        Site(indx="x")  # type: ignore[call-arg]


def test_where_a_wheel_may_be_on_this_machine(tmp_path: Path) -> None:
    for folder in ("w", "index/simple/my-pkg", "index/files"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "index/files/My_Pkg-1+cu-py3-none-any.whl").write_bytes(b"p")
    (tmp_path / "index/simple/my-pkg/my.pkg-2.tar.gz").write_bytes(b"s")
    (tmp_path / "index/simple/my-pkg/index.html").write_text(
        '<a href="../../files/My_Pkg-1%2Bcu-py3-none-any.whl#sha256=00">x</a><a href="https://x/My_Pkg-3.whl">y</a>'
    )
    site = Site(find_links=(tmp_path / "w",), local_indexes=(tmp_path / "index/simple",))

    def indexed(name: str) -> list[str]:
        first, *others = site.local_files(name)
        assert first == tmp_path / "w" / name, "a folder is named for what it lacks as well"
        return [str(path.resolve().relative_to(tmp_path)) for path in others]

    assert indexed("a-1+cpu-py3-none-any.whl") == []
    assert indexed("My_Pkg-1+cu-py3-none-any.whl") == ["index/files/My_Pkg-1+cu-py3-none-any.whl"]
    assert indexed("my.pkg-2.tar.gz") == ["index/simple/my-pkg/my.pkg-2.tar.gz"]
    assert indexed("My_Pkg-3.whl") == []
    with pytest.raises(RequestError):
        site.local_files("../one/a-1.whl")


def test_the_artifact_mirror_is_a_secret_of_the_build(tmp_path: Path, env: dict[str, str]) -> None:
    site = load_site(cwd=toml(tmp_path, 'artifact_mirror = "https://me:s3cret@mirror.example/a"'), environ=env)
    path = site.secrets(tmp_path / "s")["artifacts"]
    assert path.read_text() == "https://me:s3cret@mirror.example/a\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "s3cret" not in str(site)


@pytest.mark.parametrize("written", ["archives", "./archives", "{}", "file://{}"])
def test_the_artifact_mirror_may_be_a_folder(tmp_path: Path, env: dict[str, str], written: str) -> None:
    folder = tmp_path / "archives"
    folder.mkdir()
    site = load_site(cwd=toml(tmp_path, f'artifact_mirror = "{written.format(folder)}"'), environ=env)
    assert (site.artifact_mirror, site.artifact_folder) == (None, folder)
    assert "artifacts" not in site.secrets(tmp_path / "s")


@pytest.mark.parametrize("written", ["", "ftp://mirror.example", "no-such-folder", "file:///no/such/folder"])
def test_an_artifact_mirror_that_is_none_is_an_error(tmp_path: Path, env: dict[str, str], written: str) -> None:
    with pytest.raises(RequestError, match=r"trainwright\.toml:1: artifact_mirror: "):
        load_site(cwd=toml(tmp_path, f'artifact_mirror = "{written}"'), environ=env)

"""The site of this machine: package indexes, mirrors, the CA bundle, proxies, AWS account and region.

It starts from the machine's configuration (pip's own, the environment), which a ``trainwright.toml`` overrides. Nothing
of a site may end up in a layer: it reaches a build only as BuildKit secrets and predefined build arguments.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urljoin, urlsplit

from trainwright.core.data_files import MAX_TOML_BYTES, parse_toml, read_text
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.fields import HostPort, OneLine, Reference, SiteUrl, form
from trainwright.core.masking import masked, remember
from trainwright.core.paths import ARTIFACTS, home_dir, setting
from trainwright.core.records import MisfitError, Record, read_record
from trainwright.site.apt_sources import DEBIAN_SUITES, machine_mirrors
from trainwright.site.pip_config import PIP_OPTIONS, pip_options
from trainwright.site.places import FILES, FOLDERS, check_place, expanded, many, on_the_web, sort_places, where_of

SITE_FILE = "trainwright.toml"
PROJECT = "image"  # the table of the same file that says what to build; trainwright.plan.project reads it
DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_REGION = r"^[a-z]{2}(-[a-z]{2,16}){1,4}-[0-9]$"
# A bucket by S3's rules for names, a repository of a registry, or a path.
_WHEELS = r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]{1,512})?|oci://[a-z0-9][a-z0-9.:_/-]{2,255}|[^:\x00-\x1f]{1,1024})$"
# The mount of apt_folder in a build step.
APT_MOUNT = "/mnt/apt/repository"


class Aws(Record):
    """The AWS account (twelve digits) and region that images are pushed to."""

    account: Annotated[str, form(r"^[0-9]{12}$")] | None = None
    region: Annotated[str, form(_REGION)] | None = None


_Proxy = Annotated[str, form(r"^[!-~]{1,2048}$")]


class Proxies(Record):
    """Proxy addresses, as in the environment variables of the same names."""

    http: _Proxy | None = None
    https: _Proxy | None = None
    no: OneLine | None = None


class Signing(Record):
    """What signs images, and whose signatures of them count (:mod:`trainwright.signing`).

    Attributes:
        key: a file with a private key, a key in KMS (``awskms:///alias/NAME``), or the ARN of a signing profile of AWS
            Signer. With it, ``push`` signs.
        trusted: public keys and certificates of authorities (files), and keys in KMS. With them, ``promote`` and
            ``estimator`` refuse images without a signature by one of them.
        authorities: certificates of signing authorities, such as AWS Signer.
        profiles: ARNs of the signing profiles of AWS Signer whose signatures count.
    """

    key: OneLine | None = None
    trusted: tuple[OneLine, ...] = ()
    authorities: tuple[OneLine, ...] = ()
    profiles: tuple[Annotated[str, form(r"^arn:aws[a-z-]*:signer:[!-~]+:/signing-profiles/[!-~]+$")], ...] = ()

    @property
    def required(self) -> bool:
        """Whether an image has to be signed before it is used."""
        return bool(self.trusted or self.authorities)


class Settings(Record):
    """What a site file may say.

    Attributes:
        index_url: pip's index, with its credentials; ``None`` for pip's default.
        extra_index_urls: further indexes over http(s), with their credentials.
        local_indexes: folders with a simple index (pip's ``file://`` indexes).
        find_links: folders with wheels and source archives.
        find_links_urls: pages with links to such files.
        no_index: pip's ``no-index``: only ``find_links`` and ``local_indexes`` are used.
        ca_bundle: PEM file with the certificate authorities for a build.
        netrc: credentials by host, in netrc form.
        proxies: proxies for a build.
        apt_mirror: mirror of Debian's archive (the folder that contains ``dists``); ``None`` for the default. Taken
            from the machine's apt if that uses another mirror (:mod:`trainwright.site.apt_sources`).
        apt_security_mirror: the same for the security suite; by default beside ``apt_mirror``, named ``-security``.
        base_image: replaces the Debian base image, for example with an image of a local registry.
        artifact_mirror: base URL of mirrored archives; may contain credentials.
        artifact_folder: the same as a folder of this machine.
        registries: replacements for registries (or parts of one), by name: ``docker.io`` to
            ``mirror.example/dockerhub``.
        image_folder: base images as archives of ``docker save``, each named by its image id.
        apt_folder: a repository of the distribution's packages, in the layout of Debian's archive.
        locks: the folder of the locks of plans; by default ``locks`` in the working folder.
        vulnerabilities: a folder with vulnerability records as OSV exports them (:mod:`trainwright.scan.database`).
        allowed_vulnerabilities: a file with those that are accepted for a time.
        wheels: where compiled wheels are kept besides this user's cache: a folder, ``s3://BUCKET/PREFIX`` or
            ``oci://REGISTRY/REPOSITORY``.
        scan_fail_on: the least level of a vulnerability with which no image is pushed or promoted.
        build_network: ``host`` to build in the machine's own network, ``none`` to build without any.
        builder: name of the buildx builder.
        aws: account and region.
        signing: what signs images, and whose signatures count.
    """

    index_url: SiteUrl | None = None
    extra_index_urls: tuple[SiteUrl, ...] = ()
    local_indexes: tuple[Path, ...] = ()
    find_links: tuple[Path, ...] = ()
    find_links_urls: tuple[SiteUrl, ...] = ()
    no_index: bool = False
    ca_bundle: Path | None = None
    netrc: Path | None = None
    proxies: Proxies = Proxies()
    apt_mirror: SiteUrl | None = None
    apt_security_mirror: SiteUrl | None = None
    base_image: Reference | None = None
    artifact_mirror: SiteUrl | None = None
    artifact_folder: Path | None = None
    registries: dict[HostPort, HostPort] = {}
    image_folder: Path | None = None
    apt_folder: Path | None = None
    locks: Path | None = None
    vulnerabilities: Path | None = None
    allowed_vulnerabilities: Path | None = None
    wheels: Annotated[str, form(_WHEELS)] | None = None
    scan_fail_on: Literal["critical", "high", "medium", "low"] | None = None
    build_network: Literal["host", "none"] | None = None
    builder: Annotated[str, form(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")] | None = None
    aws: Aws = Aws()
    signing: Signing = Signing()


class Site(Settings):
    """The settings of this machine, and where each came from (a file, an environment variable), by attribute."""

    origins: Mapping[str, str] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """The indexes and mirrors for builds, with their credentials."""
        named = (self.index_url, *self.extra_index_urls, *self.find_links_urls, self.artifact_mirror)
        return tuple(filter(None, (*named, self.apt_mirror, self.apt_security_mirror)))

    def __post_init__(self) -> None:
        # Every text of this process masks the secrets in the addresses.
        remember(*self.addresses, self.proxies.http, self.proxies.https)

    def describe(self) -> dict[str, Any]:
        """The settings, for ``doctor`` and ``explain``: JSON values, no credentials."""
        return masked({"origins": {}} | self.unusual())

    def __repr__(self) -> str:
        return f"Site({self.describe()})"

    __str__ = __repr__

    def image_sources(self, os_name: str) -> str:
        """One-line apt sources of build steps on a distribution: the repository of ``apt_folder``, else the mirror of
        Debian's archive; empty to keep the image's own sources."""
        if self.apt_folder is not None:
            # Not signed: the checksum of each package is checked before a build.
            return f"deb [trusted=yes] file:{APT_MOUNT} {os_name} main\n"
        suite = DEBIAN_SUITES.get(os_name)
        return self.apt_sources(suite) if suite else ""

    def apt_sources(self, suite: str = "bookworm") -> str:
        """One-line apt sources of the mirror for a stable ``suite``, with updates and security; empty without one."""
        if self.apt_mirror is None:
            return ""
        mirror = self.apt_mirror.rstrip("/")
        security = (self.apt_security_mirror or f"{mirror}-security").rstrip("/")
        rows = [(mirror, suite)]
        if suite not in {"sid", "unstable", "testing", "experimental"}:
            rows += [(mirror, f"{suite}-updates"), (security, f"{suite}-security")]
        return "".join(f"deb [signed-by={DEBIAN_KEYRING}] {url} {name} main\n" for url, name in rows)

    def uv_config(self) -> str:
        """A ``uv.toml`` with the indexes and their credentials; empty if only pip's default is used."""
        lines = []
        if self.no_index:
            lines += ["no-index = true"]
        if self.extra_index_urls:
            # pip searches all indexes; uv would stop at the first one that has the name.
            lines += ['index-strategy = "unsafe-best-match"']
        if self.find_links_urls:
            lines += [f"find-links = {json.dumps(list(self.find_links_urls))}"]
        for url in self.extra_index_urls:
            lines += ["", "[[index]]", f"url = {json.dumps(url)}"]
        if self.index_url:
            lines += ["", "[[index]]", f"url = {json.dumps(self.index_url)}", "default = true"]
        return "\n".join(lines).strip() + "\n" if lines else ""

    def pip_config(self) -> str:
        """A ``pip.conf`` with the indexes and their credentials; empty if only pip's default is used."""
        rows = {
            "index-url": self.index_url or "",
            "extra-index-url": " ".join(self.extra_index_urls),
            "find-links": " ".join(self.find_links_urls),
            "no-index": "true" if self.no_index else "",
        }
        lines = [f"{key} = {value.replace('%', '%%')}" for key, value in rows.items() if value]
        return "\n".join(["[global]", *lines]) + "\n" if lines else ""

    def secrets(self, dest: Path, os_name: str = "debian-12") -> dict[str, Path]:
        """The secret files of a build, by BuildKit secret id.

        Args:
            dest: folder for generated files (mode 0700, files 0600). The caller removes it.
            os_name: the distribution for ``apt-sources``.

        Returns:
            Those that the site has: ``ca`` (the bundle), ``netrc``, ``uv`` (a uv.toml), ``pip`` (a pip.conf),
            ``apt-sources`` and ``artifacts`` (the base URL of the artifact mirror).
        """
        found = {id: path for id, path in (("ca", self.ca_bundle), ("netrc", self.netrc)) if path is not None}
        texts = {"uv.toml": ("uv", self.uv_config()), "pip.conf": ("pip", self.pip_config())}
        texts["sources.list"] = ("apt-sources", self.image_sources(os_name))
        texts["artifacts"] = ("artifacts", f"{self.artifact_mirror}\n" if self.artifact_mirror else "")
        dest.mkdir(mode=0o700, parents=True, exist_ok=True)
        dest.chmod(0o700)
        for name, (id, text) in texts.items():
            if text:
                path = dest / name
                path.unlink(missing_ok=True)
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                    out.write(text)
                found[id] = path
        return found

    def build_args(self) -> dict[str, str]:
        """The proxies as predefined build arguments, which BuildKit keeps out of history and cache keys.

        They may contain a password: pass them as ``--build-arg NAME`` with the value in the environment.
        """
        values = {"HTTP_PROXY": self.proxies.http, "HTTPS_PROXY": self.proxies.https, "NO_PROXY": self.proxies.no}
        return {key: value for name, value in values.items() if value for key in (name, name.lower())}

    def local_files(self, name: str) -> list[Path]:
        """Where a file of a Python package may be on this machine: in ``find_links``, whether or not it is there, and
        where ``local_indexes`` have it, by the links of its project's page as well.

        Raises:
            RequestError: that is not the name of a file.
        """
        import html

        if Path(name).name != name:
            raise RequestError(f"{name!r} is not a file name")
        folders, paths = [folder / name for folder in self.find_links], list[Path]()
        stem = name.split("-", 1)[0] if name.endswith(".whl") else name.rsplit("-", 1)[0]
        project = re.sub(r"[-_.]+", "-", stem).lower()
        for index in self.local_indexes:
            page = index / project / "index.html"
            paths += [index / name, page.with_name(name)]
            if page.is_file():
                for link in re.findall(r'href\s*=\s*["\']([^"\']+)', page.read_text(errors="replace")):
                    parts = urlsplit(urljoin(page.absolute().as_uri(), html.unescape(link)))
                    if parts.scheme == "file" and unquote(parts.path).endswith("/" + name):
                        paths.append(Path(unquote(parts.path)))
        return list(dict.fromkeys([*folders, *(path for path in paths if path.is_file())]))


def load_site(file: Path | None = None, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> Site:
    """The site: this machine's configuration, overridden by ``trainwright.toml``.

    Args:
        file: a site file to read instead of ``trainwright.toml`` in ``cwd``; it must exist.
        cwd: the working folder (default: the current one).
        environ: the environment (default: this process's).

    Raises:
        RequestError: a file is missing or unreadable, or has an unknown key or a value of the wrong type.
    """
    cwd = cwd if cwd is not None else _working_folder()
    environ = environ if environ is not None else os.environ
    if file is not None and not (cwd / file).is_file():
        raise RequestError(f"--site {file}: no such file", remedy="Name an existing file with --site.")
    values, origins = _machine(environ, cwd)
    if (path := cwd / (file or SITE_FILE)).is_file():
        own = _read_toml(path)
        origins |= dict.fromkeys(own, path.name)
        for key, value in own.items():
            values[key] = values.get(key, {}) | value if isinstance(value, dict) else value
    if place := setting(ARTIFACTS, environ):
        own = _artifacts(place, cwd)
        values |= own
        origins |= dict.fromkeys(own, "--artifacts")
    try:
        return read_record(Site, values | {"origins": origins})
    except MisfitError as wrong:
        keys, what, remedy = _explain(wrong)
        where = origins.get(keys[0], "the site")
        raise RequestError(f"{where}: {'.'.join(keys)}: {what}", remedy=remedy) from None


def _artifacts(place: str, cwd: Path) -> dict[str, Any]:
    """The values of a site whose archives are in one place, a folder or an address (``--artifacts``)."""
    own = {"artifact_folder": None, **sort_places({"artifact_mirror": place}, lambda _: "--artifacts")}
    if own["artifact_folder"]:
        own["artifact_folder"] = expanded(cwd, own["artifact_folder"])
        check_place("artifact_folder", own["artifact_folder"], "--artifacts")
    return own


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise RequestError("the working folder no longer exists", remedy="Change to an existing folder: cd") from None


def _machine(environ: Mapping[str, str], cwd: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of pip's configuration and the environment, and where each comes from."""
    named = setting("HOME", environ)
    home = Path(named) if named else home_dir()
    options = pip_options(environ, home)
    raw: dict[str, Any] = {PIP_OPTIONS[key]: value.split() for key, (value, _) in options.items() if key in PIP_OPTIONS}
    sources = {name: options[option][1] for option, name in PIP_OPTIONS.items() if option in options}
    sources["find_links_urls"] = sources.get("find_links", "")
    sources["local_indexes"] = sources.get("extra_index_urls") or sources.get("index_url", "")
    index, no_index = ("".join(raw.pop(name, [])) for name in ("index_url", "no_index"))
    if index.startswith(("http://", "https://", "file:")):
        raw["index_url"] = index
    values = sort_places(raw, lambda key: sources.get(key) or SITE_FILE)
    for name in {"find_links", "local_indexes"} & set(values):  # pip ignores missing folders
        values[name] = [path for one in values[name] if (path := expanded(cwd, one)).is_dir()]
    if no_index.lower() in {"1", "true", "yes", "on"}:
        values["no_index"] = True
    bundles = [(environ.get(name), name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")]
    for place, where in (options.get("cert", ("", "")), *bundles):
        if place and "ca_bundle" not in values and (path := expanded(cwd, place)).is_file():
            values["ca_bundle"], sources["ca_bundle"] = path, where
    netrc = setting("NETRC", environ) or (home and home / ".netrc")
    if netrc and Path(netrc).is_file():
        values["netrc"], sources["netrc"] = Path(netrc), str(netrc)
    # Lower case first, as in curl.
    proxies = {
        kind: environ.get(f"{kind}_proxy") or environ.get(f"{kind}_proxy".upper()) for kind in Proxies.__struct_fields__
    }
    for name, mirror in zip(("apt_mirror", "apt_security_mirror"), machine_mirrors(), strict=True):
        if mirror:
            values[name], sources[name] = mirror, "apt's sources"
    region = stated_region(environ) or ""
    values["proxies"] = {kind: value for kind, value in proxies.items() if value}
    values["aws"] = {"region": region} if re.fullmatch(_REGION, region) else {}
    sources |= dict.fromkeys(("proxies", "aws"), "environment")
    return values, {key: where for key, where in sources.items() if values.get(key)}


def stated_region(environ: Mapping[str, str] = os.environ) -> str | None:
    """The AWS region that the environment names, valid or not; a site keeps only a valid one."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None


def _read_toml(path: Path) -> dict[str, Any]:
    """The checked values of a site file, with absolute paths."""
    text = read_text(path, limit=MAX_TOML_BYTES)
    data = parse_toml(text, str(path), remedy="Fix the file; it is TOML.")
    data.pop(PROJECT, None)
    try:
        kept = {"index_url", "extra_index_urls", "artifact_mirror"} & data.keys()
        read_record(Settings, {**data, **{key: on_the_web(data[key]) for key in kept}})
    except MisfitError as wrong:
        keys, what, remedy = _explain(wrong)
        raise RequestError(f"{where_of(path, text, *keys)}: {'.'.join(keys)}: {what}", remedy=remedy) from None
    data = sort_places(data, lambda key: where_of(path, text, key))
    for key in (FOLDERS | FILES) & data.keys():
        paths = [expanded(path.parent, one) for one in many(data[key])]
        for one in paths:
            name = "artifact_mirror" if key == "artifact_folder" else key  # as in the file
            check_place(key, one, f"{where_of(path, text, name)}: {name}")
        data[key] = paths if isinstance(data[key], list) else paths[0]
    if "wheels" in data and "://" not in data["wheels"]:
        data["wheels"] = str(expanded(path.parent, data["wheels"]))
    if "signing" in data:
        data["signing"] = {key: _from(path.parent, value) for key, value in data["signing"].items()}
    return data


def _from(folder: Path, value: Any) -> Any:
    """Files of ``[signing]``, relative to the folder of the file that names them; keys elsewhere stay as they are."""
    if isinstance(value, list):
        return [_from(folder, one) for one in value]
    return value if value.startswith(("awskms:", "arn:")) else str(expanded(folder, value))


def _explain(wrong: MisfitError) -> tuple[list[str], str, str]:
    """The keys of the first error, its text and a remedy."""
    first = wrong.found[0]
    keys = [str(part) for part in first.loc if isinstance(part, str) and part != "[key]"]
    return keys, first.says, did_you_mean(keys[-1], first.valid) if first.valid else "see docs/site.md"

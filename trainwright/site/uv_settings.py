"""The package indexes of this machine's pip, as settings of uv, which does not read pip.conf."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainwright.core import runner
from trainwright.core.masking import remember

if TYPE_CHECKING:
    from trainwright.site.site import Site

# The variables from which uv reads its indexes.
UV_ADDRESSES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")


def index_settings(indexes: Sequence[str], site: Site | None = None) -> tuple[dict[str, str], list[str]]:
    """pip's configuration as uv's variables and flags; uv's own variables take precedence.

    uv reads neither pip.conf nor ``PIP_*``. Addresses are passed as variables, because the journal of commands records
    arguments and an address may contain a password.

    Args:
        indexes: additional ones.
        site: its indexes and folders replace pip's.
    """
    pip = pip_settings() if site is None else _site_settings(site)
    extra = [*pip.get("extra-index-url", "").split(), *indexes]
    own = [pip.get("index-url", ""), *pip.get("extra-index-url", "").split(), *pip.get("find-links", "").split()]
    own += [address for name in UV_ADDRESSES for address in re.split(r"[\s,]+", os.environ.get(name, ""))]
    remember(*own, pip.get("proxy", ""))  # uv prints them when it fails
    wanted = {
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": " ".join(extra),
        "UV_FIND_LINKS": ",".join(pip.get("find-links", "").split()),
        "UV_INSECURE_HOST": " ".join(pip.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": pip.get("timeout") or pip.get("default-timeout", ""),
        "SSL_CERT_FILE": pip.get("cert", ""),
        "HTTPS_PROXY": pip.get("proxy", ""),
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip: the best version of all indexes
        "UV_NO_WRAP": "1",  # an address over two lines would not be masked
    }
    environment = {key: value for key, value in wanted.items() if value and not os.environ.get(key)}
    if indexes and os.environ.get("UV_INDEX"):
        environment["UV_INDEX"] = " ".join([os.environ["UV_INDEX"], *indexes])
    flags = ["--no-index"] if pip.get("no-index", "").lower() in {"1", "true", "yes", "on"} else []
    return environment | {"UV_PYTHON_DOWNLOADS": "never"}, flags


def insecure_hosts(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts whose certificates uv does not check: uv's own setting, or pip's ``trusted-host``.

    Args:
        settings: the variables of :func:`index_settings`.
    """
    hosts = os.environ.get("UV_INSECURE_HOST") or settings.get("UV_INSECURE_HOST", "")
    return tuple(sorted(set(re.split(r"[\s,]+", hosts)) - {""}))


def insecure_words(hosts: Sequence[str]) -> str:
    """The warning about hosts whose certificates are not checked."""
    return (
        f"the certificates of {', '.join(hosts)} are not checked (trusted-host of pip, or UV_INSECURE_HOST): "
        "an attacker on the network can put other packages into a lock"
    )


def _site_settings(site: Site) -> dict[str, str]:
    """The indexes of a site under pip's names; other options are pip's own."""
    extra = [*site.extra_index_urls, *(path.absolute().as_uri() for path in site.local_indexes)]
    settings = {
        "index-url": site.index_url or "",
        "extra-index-url": " ".join(extra),
        "find-links": " ".join([*map(str, site.find_links), *site.find_links_urls]),
        "no-index": "true" if site.no_index and not site.local_indexes else "",
        "cert": str(site.ca_bundle or ""),
        "proxy": site.proxies.https or "",
    }
    kept = ("trusted-host", "timeout", "default-timeout")
    return settings | {key: value for key, value in pip_settings().items() if key in kept}


def pip_settings() -> dict[str, str]:
    """What ``pip config list`` says, each key once: the environment over ``[install]`` over ``[global]``.

    Without pip, only the ``PIP_*`` variables.
    """
    listed = runner.run([sys.executable, "-m", "pip", "config", "list"], timeout=60)
    ranked: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.stdout.splitlines() if listed.ok else ():
        key, _, value = line.partition("=")
        section, _, name = key.strip().rpartition(".")
        if section in ranked and (text := _unquoted(value)):  # pip lists an empty variable, and takes it for unset
            ranked[section][name] = text
    if not listed.ok:
        variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_") and value}
        ranked[":env:"] = {name[4:].lower().replace("_", "-"): value for name, value in variables.items()}
    return {**ranked["global"], **ranked["install"], **ranked[":env:"]}


def _unquoted(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text

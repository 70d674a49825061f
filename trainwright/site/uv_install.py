"""Installs a requirements file with uv into the environment that runs this, if pip's configuration allows it.

``./invoke`` calls it before any package is installed, so it and what it imports need only the standard library.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from trainwright.site.uv_settings import index_settings, pip_settings

# Options of pip that uv is told (index_settings), and those that change nothing about what is installed.
_TOLD = {"index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "proxy", "timeout"}
_HARMLESS = {
    *("default-timeout", "retries", "cache-dir", "no-cache-dir", "disable-pip-version-check", "no-input", "no-color"),
    *("quiet", "verbose", "progress-bar", "log", "debug", "no-python-version-warning", "root-user-action", "user"),
    *("require-virtualenv", "break-system-packages", "no-warn-script-location", "no-warn-conflicts", "exists-action"),
    *("require-hashes", "prefer-binary", "upgrade", "compile", "no-compile", "config-file"),
}
PIP_IS_NEEDED = 3


def only_pip_reads(settings: Mapping[str, str]) -> list[str]:
    """The options of pip that are set and have no equivalent in uv.

    Args:
        settings: pip's options without ``--``, as :func:`trainwright.site.uv_settings.pip_settings` gives them.
    """
    return sorted(name for name, value in settings.items() if value and name not in _TOLD | _HARMLESS)


def environment(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables and flags with which uv fetches packages as pip would here.

    Args:
        environ: the environment of this process.
    """
    told, flags = index_settings(())
    # pip trusts what these name, else the certificates of the system; uv brings its own.
    bundle = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    certificates = {"SSL_CERT_FILE": bundle} if bundle else {"UV_NATIVE_TLS": "1", "UV_SYSTEM_CERTS": "1"}
    if "SSL_CERT_FILE" in told or environ.get("SSL_CERT_FILE"):
        certificates = {}
    proxy = {"HTTP_PROXY": told["HTTPS_PROXY"]} if "HTTPS_PROXY" in told else {}
    return {**environ, **certificates, **proxy, **told}, flags


def main(uv: str, requirements: str, *words: str) -> None:
    """Become uv, installing a requirements file; every package needs a hash.

    Args:
        uv: its path.
        requirements: the file.
        words: further options of ``uv pip install``.

    Exits with :data:`PIP_IS_NEEDED` if pip is configured in a way that has no equivalent in uv.
    """
    if names := only_pip_reads(pip_settings()):
        print(f"pip's configuration has {', '.join(names)}, which uv cannot be told")
        raise SystemExit(PIP_IS_NEEDED)
    environ, flags = environment(os.environ)
    install = [uv, "--no-config", "pip", "install", "--python", sys.executable, "--require-hashes"]
    os.execve(uv, [*install, *words, *flags, "-r", requirements], environ)  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])

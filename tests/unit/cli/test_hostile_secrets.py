"""Addresses with secrets in every place where a site may name one: no verb and no file of ours shows any of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.tries import Tried, Try

SECRETS = ("S3CRETpw", "T0KENpath9", "S1Gvalue7")
ADDRESSES = {
    "password": "https://bob:S3CRETpw@packages.invalid/simple",
    "user alone": "https://T0KENpath9@packages.invalid/simple",
    "encoded": "https://bob:S3CRETpw%21%40@packages.invalid/simple",
    "path": "https://packages.invalid/T0KENpath9/simple",
    "deep path": "https://packages.invalid/team/dl/T0KENpath9/basic/simple/",
    "query": "https://packages.invalid/simple?sv=2&sig=S1Gvalue7",
    "signed": "https://packages.invalid/simple?X-Amz-Credential=A&X-Amz-Signature=S1Gvalue7",
    "all": "https://bob:S3CRETpw@packages.invalid:8443/T0KENpath9/x?sig=S1Gvalue7",
}
PROXIES = ("u:S3CRETpw@proxy.invalid:3128", "http://u:S3CRETpw@proxy.invalid:3128", "S3CRETpw@proxy.invalid:3128")
PLAN = "--framework pytorch --cuda cpu"


def site(text: str) -> dict[str, str]:
    return {"trainwright.toml": f"{text}\n"}


ROWS = [
    *(
        Try(f"explain {PLAN}{json}", 0, "packages.invalid" if json else "", files=site(f'{key} = "{address}"'))
        for key in ("index_url", "artifact_mirror", "apt_mirror")
        for address in ADDRESSES.values()
        for json in ("", " --json")
        if json or key == "index_url"
    ),
    *(
        Try(f"explain {PLAN} --json", 0, "packages.invalid", files=site(f'{key} = ["{ADDRESSES[kind]}"]'))
        for key in ("extra_index_urls", "find_links_urls")
        for kind in ("password", "path", "query")
    ),
    *(
        Try(f"explain {PLAN} --json", 0, "proxy.invalid", files=site(f'[proxies]\n{key} = "{proxy}"'))
        for key in ("http", "https")
        for proxy in PROXIES
    ),
    *(
        Try(f"explain {PLAN} --json", 0, "proxy.invalid", env={name: proxy})
        for name in ("http_proxy", "https_proxy")
        for proxy in PROXIES
    ),
    *(
        Try(f"explain {PLAN} --json", 0, "packages.invalid", env={name: ADDRESSES[kind]})
        for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
        for kind in ("password", "path", "query", "all")
    ),
    *(
        Try(
            f"{verb} {PLAN}",
            0,
            files=site('base_image = "debian:12"'),
            env={"PIP_INDEX_URL": ADDRESSES["all"], "https_proxy": PROXIES[0]},
        )
        for verb in ("plan", "plan --json", "render", "render --output out")
    ),
    *(
        Try(
            f"explain {PLAN}",
            2,
            "trainwright.toml:",
            files=site(f'{key} = "ftp://bob:S3CRETpw@h/T0KENpath9?sig=S1Gvalue7"'),
        )
        for key in ("index_url", "apt_mirror", "artifact_mirror")
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row}-{[*row.files.values(), *row.env.values()]}"[:110])
def test_no_verb_shows_a_secret(row: Try, attempt: Callable[[Try], Tried]) -> None:
    tried = attempt(row)
    written = [path for folder in ("state", "work", "cache") for path in tried.work.parent.glob(f"{folder}/**/*")]
    texts = {str(path): path.read_bytes() for path in written if path.is_file() and path.name != "trainwright.toml"}
    for secret in SECRETS:
        assert secret not in tried.out + tried.err
        assert [name for name, content in texts.items() if secret.encode() in content] == []

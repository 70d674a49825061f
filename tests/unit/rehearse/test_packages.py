"""pip's configuration in the hosts of a rehearsal: what this machine is told, at the places where a host sees it."""

from __future__ import annotations

import configparser
import stat
from pathlib import Path

import pytest

from trainwright.rehearse.indexes import HostIndexes, write_indexes
from trainwright.site.site import Proxies, Site

SITE = "/opt/trainwright-rehearsal/site"


def config(control: Path) -> dict[str, str]:
    parser = configparser.ConfigParser()  # as pip reads it, "%%" and all
    parser.read(control / "site/pip.conf")
    return dict(parser["global"])


def test_nothing_is_given_where_pip_needs_no_telling(tmp_path):
    assert write_indexes(Site(), tmp_path) == HostIndexes()
    assert list(tmp_path.iterdir()) == []


def test_indexes_folders_and_authorities_of_this_machine(tmp_path):
    for name in ("wheels", "simple", "control"):
        (tmp_path / name).mkdir()
    (tmp_path / "ca.pem").write_text("authority")
    site = Site(
        index_url="https://me:100%25@index.example/simple",
        local_indexes=(tmp_path / "simple",),
        find_links=(tmp_path / "wheels",),
        find_links_urls=("https://pages.example/",),
        ca_bundle=tmp_path / "ca.pem",
        proxies=Proxies(https="http://proxy.example:3128"),
    )
    told = write_indexes(site, tmp_path / "control")
    assert told.mounts == ((tmp_path / "wheels", f"{SITE}/0"), (tmp_path, f"{SITE}/1"))
    assert dict(told.environment) == {"PIP_CONFIG_FILE": f"{SITE}/pip.conf"}
    assert config(tmp_path / "control") == {
        "index-url": "https://me:100%25@index.example/simple",
        "extra-index-url": f"file://{SITE}/1/simple",
        "find-links": f"https://pages.example/ {SITE}/0",
        "proxy": "http://proxy.example:3128",
        "cert": f"{SITE}/ca.pem",
    }
    # The host's mounts need a place each, and a password must not be for everybody.
    assert {path.name for path in (tmp_path / "control/site").iterdir()} == {"0", "1", "pip.conf", "ca.pem"}
    assert stat.S_IMODE((tmp_path / "control/site/pip.conf").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("local", "expected"),
    [(True, {"index-url": f"file://{SITE}/1/simple"}), (False, {"no-index": "true"})],
    ids=["a folder is the index", "wheels alone"],
)
def test_no_index_stays_without_one(tmp_path, local, expected):
    site = Site(no_index=True, find_links=(tmp_path,), local_indexes=(tmp_path / "simple",) if local else ())
    write_indexes(site, tmp_path / "control")
    assert config(tmp_path / "control") == {"find-links": f"{SITE}/0", **expected}

"""The machine's own apt: a mirror of the archive is taken, the default and other vendors' repositories are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.site.apt_sources import machine_mirrors

MIRROR = "http://mirror.example/debian"


def apt(folder: Path, **files: str) -> Path:
    (folder / "sources.list.d").mkdir()
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        path = folder / "sources.list" if name == "main_list" else folder / "sources.list.d" / f"{stem}.{suffix}"
        path.write_text(text)
    return folder


def test_one_line_sources_of_a_mirror(tmp_path):
    text = (
        f"deb [signed-by=/k.gpg] {MIRROR} bookworm main contrib\ndeb {MIRROR}/ bookworm-updates main\n"
        "# deb http://commented.example/debian bookworm main\ndeb http://sec.example/s bookworm-security main\n"
    )
    assert machine_mirrors(apt(tmp_path, main_list=text)) == (MIRROR, "http://sec.example/s")


def test_deb822_sources_of_a_mirror(tmp_path):
    text = f"Types: deb deb-src\nURIs: {MIRROR}\nSuites: bookworm bookworm-updates\nComponents: main\n"
    off = "\nEnabled: no\nTypes: deb\nURIs: http://off.example/d\nSuites: bookworm-security\nComponents: main\n"
    assert machine_mirrors(apt(tmp_path, debian_sources=text + off)) == (MIRROR, None)


def test_fields_of_deb822_may_go_on_in_the_next_line(tmp_path):
    # deb822(5): a line that begins with a space or a tab continues the field; comments may stand between.
    text = f"# ours\nTypes: deb\nURIs:\n {MIRROR}\nSuites: bookworm\n# and\n\tbookworm-updates\nComponents:\n main\n"
    assert machine_mirrors(apt(tmp_path, debian_sources=text)) == (MIRROR, None)


@pytest.mark.parametrize(
    ("word", "taken"),
    [("no", False), ("No", False), ("false", False), ("off", False), ("0", False), ("yes", True), ("1", True)],
)
def test_a_source_that_is_switched_off_is_not_taken(tmp_path, word, taken):
    text = f"Types: deb\nURIs: {MIRROR}\nSuites: bookworm bookworm-updates\nComponents: main\nEnabled: {word}\n"
    assert machine_mirrors(apt(tmp_path, debian_sources=text)) == ((MIRROR, None) if taken else (None, None))


@pytest.mark.parametrize("host", ["archive.debian.test", "ftp.xx.debian.test"])
def test_the_distribution_s_own_hosts_are_the_default(tmp_path, host):
    official = f"deb http://{host}/debian bookworm main\ndeb http://{host}/debian bookworm-updates main\n"
    other = f"deb {MIRROR} bookworm main\ndeb {MIRROR} bookworm-updates main\n"
    assert machine_mirrors(apt(tmp_path, main_list=official, other_list=other)) == (None, None)


def test_other_vendors_repositories_are_no_mirrors(tmp_path):
    vendor = "deb https://apt.vendor.example bookworm main\ndeb https://x.example cloud-bookworm main\n"
    assert machine_mirrors(apt(tmp_path, vendor_list=vendor)) == (None, None)


def test_a_machine_without_apt(tmp_path):
    assert machine_mirrors(tmp_path / "nothing") == (None, None)

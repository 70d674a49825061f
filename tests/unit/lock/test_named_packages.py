"""What apt says of the packages of ``--with-apt``, as ``ask.sh`` writes it, becomes an error with the nearest names."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.core.errors import RequestError
from trainwright.engine.engine import Client, Engine
from trainwright.lock import apt_packages
from trainwright.lock.apt_packages import Start, check_named
from trainwright.plan.plan import Base
from trainwright.site.site import Site

ENGINE = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")
START = Start(Base(kind="debian", os="debian-12"))
# Of apt 2.6.1 in Debian 12, for ffmpeg, libsnfile1-dev, graphviz=9, graphviz.
FAILED = "libsnfile1-dev\ngraphviz=9\n E: Version '9' for 'graphviz' was not found\n"
KNOWN = """\
  graphviz | 2.42.2-7+deb12u1 | http://deb.example/debian bookworm/main amd64 Packages
    ffmpeg | 7:5.1.9-0+deb12u1 | http://deb.example/debian bookworm/main amd64 Packages
"""
NAMES = "ffmpeg\ngraphviz\nlibsndfile1\nlibsndfile1-dev\nlibsnl-dev\nopenssh-server\n"


def answering(monkeypatch, failed: str | None) -> dict[str, str]:
    asked: dict[str, str] = {}

    def build(*_: object, files: dict[str, str], target: Path) -> None:
        asked.update(files)
        (question,) = {name.rpartition("/")[0] for name in files}
        (target / question).mkdir(parents=True)
        (target / "runtime/names").write_text(NAMES)
        (target / "runtime/known").write_text(KNOWN)
        if failed is not None:
            (target / question / "failed").write_text(failed)

    monkeypatch.setattr(apt_packages, "_build", build)
    return asked


def check(*packages: str) -> None:
    check_named(packages, START, Site(), ENGINE, say=lambda _: None)


def test_the_nearest_names_and_the_versions_that_there_are(monkeypatch):
    asked = answering(monkeypatch, FAILED)
    with pytest.raises(RequestError) as caught:
        check("ffmpeg", "libsnfile1-dev", "graphviz=9")
    assert list(asked.values()) == ["ffmpeg libsnfile1-dev graphviz=9"]
    message, remedy = caught.value.message, caught.value.remedy
    assert "libsnfile1-dev: debian-12 has no package of this name" in message
    assert "debian-12 has graphviz 2.42.2-7+deb12u1" in message and "ffmpeg" not in message
    assert "libsndfile1-dev" in remedy


def test_what_apt_itself_says_is_told(monkeypatch):
    answering(monkeypatch, "ffmpeg\n E: Unable to correct problems, you have held broken packages.\n")
    with pytest.raises(RequestError, match="held broken packages"):
        check("ffmpeg")


def test_nothing_to_say(monkeypatch):
    answering(monkeypatch, None)
    check("ffmpeg")

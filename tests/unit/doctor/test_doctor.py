"""The checks of ``doctor``: each one's good and bad case, the fixes, and the document."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.core import runner
from trainwright.core.errors import EngineError
from trainwright.core.paths import state_dir
from trainwright.doctor import doctor, host, network
from trainwright.doctor import engine as engine_checks
from trainwright.doctor import machine as examined
from trainwright.doctor.machine import Check, Machine, MachineFinding, Say, finding
from trainwright.engine import platforms
from trainwright.engine import setup as engine_setup
from trainwright.engine.engine import Client, Engine, PassedOver

CLIENT = Client("/x/docker", "builtin", "20.10.24", "plain")
SILENT = EngineError("no engine answers", remedy="dockerd")


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [*host.CA_VARIABLES, *(name for name in os.environ if name.startswith("AWS_"))]:
        monkeypatch.delenv(name, raising=False)


def machine(engine: Engine | EngineError | None = None, registries: tuple[str, ...] = ()) -> Machine:
    """A machine whose engine is known."""
    made = Machine(registries)
    made.__dict__["engine"] = engine or Engine(CLIENT, "20.10", data_root="/", endpoint="unix:///x.sock")
    return made


def check(name: str) -> Callable[[Machine], MachineFinding]:
    """The check of that name."""
    return next(one.run for one in doctor.CHECKS if one.name == name)


@pytest.mark.parametrize(
    ("system", "processor", "severity"),
    [
        ("Linux", "x86_64", "ok"),
        ("Linux", "aarch64", "error"),
        ("Darwin", "arm64", "error"),
        ("Windows", "AMD64", "error"),
    ],
)
def test_images_are_built_on_linux_x86_64(
    monkeypatch: pytest.MonkeyPatch, system: str, processor: str, severity: str
) -> None:
    monkeypatch.setattr(platforms.platform, "system", lambda: system)
    monkeypatch.setattr(platforms.platform, "machine", lambda: processor)
    found = check("platform")(machine())
    assert found.severity == severity
    assert processor in found.message
    assert bool(found.remedy) is (severity == "error")


Answer = Callable[[list[str]], "tuple[int, str, str] | str"]


@contextmanager
def commands(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> Iterator[list[list[str]]]:
    """Every command is answered by ``answer``; gives what was run."""
    seen: list[list[str]] = []

    def run(argv: list[str], **options: object) -> runner.Completed:
        seen.append([*argv, *([f"env {options['env']}"] if options.get("env") else [])])
        said = answer(seen[-1])
        code, out, err = (0, said, "") if isinstance(said, str) else said
        return runner.Completed(tuple(argv), code, out, err, 0.0)

    with monkeypatch.context() as patched:
        patched.setattr(runner, "run", run)
        yield seen


def test_the_document_is_one_of_plain_values() -> None:
    document = doctor.document([finding("disk", "warning", "12 GB", "prune")])
    assert document.as_json() == {
        "schema": "trainwright/doctor/1",
        "findings": [{"check": "disk", "severity": "warning", "message": "12 GB", "remedy": "prune"}],
    }


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Machine) -> MachineFinding:
        raise PermissionError("no")

    def failing(_: Machine) -> MachineFinding:
        raise SILENT

    good = finding("c", "ok", "")
    monkeypatch.setattr(doctor, "CHECKS", (Check("a", broken), Check("b", failing), Check("c", lambda _: good)))
    first, second, third = doctor.examine()
    assert (first.severity, second.severity, second.message, second.remedy) == (
        "error",
        "error",
        *SILENT.args,
        "dockerd",
    )
    assert third is good


def test_mend_fixes_what_is_wrong_and_looks_at_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def look(name: str, needs: str) -> Callable[[Machine], MachineFinding]:
        return lambda _: finding(name, "ok" if needs in done else "error", "", "r")

    def refuse(_: Machine, __: Say) -> None:
        raise EngineError("apt is broken", remedy="repair apt")

    monkeypatch.setattr(
        doctor,
        "CHECKS",
        (
            Check("fine", lambda _: finding("fine", "ok", ""), lambda *_: pytest.fail("fixed what is fine")),
            Check("engine", look("engine", "engine"), lambda *_: done.append("engine")),
            Check("disk", look("disk", "engine")),
            Check("tool", look("tool", "tool"), refuse),
        ),
    )
    document = doctor.run_doctor(fix=False, say=print)
    assert [row.severity for row in document.findings] == ["ok", "error", "error", "error"]
    assert done == []
    document = doctor.run_doctor(fix=True, say=print)
    assert [row.severity for row in document.findings] == ["ok", "ok", "ok", "error"]
    assert document.findings[3].message == "not fixed: apt is broken"
    assert document.findings[3].remedy == "repair apt"


def test_every_check_has_its_own_name() -> None:
    names = [one.name for one in doctor.CHECKS]
    assert len(names) == len(set(names))


def test_an_old_python_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check("python")(Machine()).severity == "ok"
    monkeypatch.setattr(host, "PYTHON", (3, 99))
    assert check("python")(Machine()).severity == "error"


def test_the_client_says_whom_it_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [PassedOver("/y/docker", "28.2.2", "needs the buildx plugin")]
    monkeypatch.setattr(engine_checks, "survey", lambda: ([CLIENT], passed))
    found = check("client")(Machine())
    assert found.severity == "ok"
    assert "/x/docker" in found.message
    assert "/y/docker: needs the buildx plugin" in found.message
    monkeypatch.setattr(engine_checks, "survey", lambda: ([], passed))
    with pytest.raises(EngineError, match="/y/docker"):
        check("client")(Machine())


def test_the_engine_is_not_set_up_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*, setup: bool = True, **_: object) -> Engine:
        assert not setup
        raise SILENT

    monkeypatch.setattr(examined, "connect", connect)
    with pytest.raises(EngineError, match="no engine answers"):
        check("engine")(Machine())
    assert check("disk")(Machine()).severity == "warning"


@pytest.mark.parametrize(("free", "severity"), [(4, "error"), (6, "warning"), (19, "warning"), (21, "ok")])
def test_disk_space(monkeypatch: pytest.MonkeyPatch, free: int, severity: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free * engine_checks.GB))
    found = check("disk")(machine())
    assert found.severity == severity
    assert bool(found.remedy) == (severity != "ok")
    far = Engine(CLIENT, "27", data_root="/", endpoint="tcp://far:2376")
    assert check("disk")(machine(far)).severity == "ok"


def test_bases_come_from_a_maker_or_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: "/usr/bin/mmdebstrap" if name == "mmdebstrap" else None)
    assert "mmdebstrap" in check("base images")(machine(SILENT)).message
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert check("base images")(machine()).severity == "warning"
    assert "mmdebstrap" in check("base images")(machine()).remedy
    assert check("base images")(machine(registries=("mirror.example",))).message == "from mirror.example"
    mirrored = Engine(CLIENT, "27", mirrors=("https://m.example/",))
    assert check("base images")(machine(mirrored)).severity == "ok"


@pytest.mark.parametrize(
    ("alone", "whole", "severity"), [(True, True, "ok"), (False, True, "warning"), (False, False, "error")]
)
def test_pip_index(monkeypatch: pytest.MonkeyPatch, alone: bool, whole: bool, severity: str) -> None:
    def answer(argv: list[str]) -> tuple[int, str, str]:
        if "import pip" in argv:
            return 0, "", ""
        fine = alone if "PIP_EXTRA_INDEX_URL" in argv[-1] else whole
        return (0, "pip (1)", "") if fine else (1, "  Could not fetch URL http://i/: refused - skipping", "ERROR: none")

    with commands(monkeypatch, answer):
        found = check("pip index")(Machine())
    assert found.severity == severity
    assert ("refused" in found.message) == (severity != "ok")


def test_pip_itself_says_that_its_index_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, against a port where nothing listens."""
    if not runner.run([sys.executable, "-I", "-c", "import pip"]).ok:
        pytest.skip("this Python has no pip")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    found = check("pip index")(Machine())
    assert found.severity == "error"
    assert "127.0.0.1" in found.message


def test_apt_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(network, "APT_HELPER", tmp_path)
    places = "http://a:s3cret@one.example/d/dists/x/\nhttp://two.example/d/dists/y/\nhttp://two.example/d/dists/y/\n"
    dead: tuple[str, ...] = ()

    def answer(argv: list[str]) -> tuple[int, str, str] | str:
        if "indextargets" in argv:
            return places
        url = next(word for word in argv if word.startswith("http"))
        return (100, "", "W: noise\nE: Failed to fetch it") if url.endswith(dead) else ""

    with commands(monkeypatch, answer) as seen:
        fine = check("apt sources")(Machine())
    assert (fine.severity, fine.message) == ("ok", "2 answer (one.example, two.example)")
    assert len(seen) == 3
    dead = ("y/InRelease",)
    with commands(monkeypatch, answer):
        assert check("apt sources")(Machine()).severity == "ok"
    dead = ("y/InRelease", "y/Release")
    with commands(monkeypatch, answer):
        found = check("apt sources")(Machine())
    assert (found.severity, found.message) == ("error", "no answer: E: Failed to fetch it")
    places = ""
    with commands(monkeypatch, answer):
        assert check("apt sources")(Machine()).severity == "error"
    monkeypatch.setattr(network, "APT_HELPER", tmp_path / "none")
    assert "neither" in check("apt sources")(Machine()).message


def test_certificates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    monkeypatch.setattr(host, "SYSTEM_CA", bundle)
    missing = check("certificates")(Machine())
    assert (missing.severity, "ca-certificates" in missing.remedy) == ("warning", True)
    bundle.write_text(EXPIRES_2100)
    assert check("certificates")(Machine()).severity == "ok"
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "typo.pem"))
    typo = check("certificates")(Machine())
    assert (typo.severity, "PIP_CERT" in typo.message, "PIP_CERT" in typo.remedy) == ("error", True, True)
    (tmp_path / "typo.pem").write_text("no certificate\n")
    assert "contains no certificates" in check("certificates")(Machine()).message
    monkeypatch.setenv("PIP_CERT", str(bundle))
    assert check("certificates")(Machine()).severity == "ok"
    monkeypatch.setattr(time, "time", lambda: 4_200_000_000.0)  # the year 2103
    expired = check("certificates")(Machine())
    assert (expired.severity, "expired" in expired.message) == ("error", True)


def test_aws_credentials_are_found_but_never_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("boto3", "botocore"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an error: it takes as long as all checks
    assert check("aws")(Machine()).severity == "warning"
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text("[other]\naws_access_key_id = AKIASECRET\naws_secret_access_key = x%y\n")
    assert check("aws")(Machine()).severity == "warning"
    monkeypatch.setenv("AWS_PROFILE", "other")
    found = check("aws")(Machine())
    assert (found.severity, "AKIASECRET" in found.message) == ("ok", False)
    monkeypatch.setenv("AWS_PROFILE", "sso")
    (folder / "config").write_text("[profile sso]\nsso_session = s\n")
    assert check("aws")(Machine()).severity == "ok"
    monkeypatch.setenv("AWS_PROFILE", "none")
    assert check("aws")(Machine()).severity == "warning"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    assert "environment" in check("aws")(Machine()).message


def ago(seconds: float) -> str:
    """A time as the docker client prints it."""
    return time.strftime("%Y-%m-%d %H:%M:%S.123 +0000 UTC", time.gmtime(time.time() - seconds))


def test_leftovers_are_those_of_no_living_command(monkeypatch: pytest.MonkeyPatch) -> None:
    containers = {
        "old-stopped": (3600, "s1", "exited"),
        "never-started": (3600, "s1", "created"),
        "just-made": (5, "s2", "created"),
        "at-work": (3600, "s3", "running"),
        "forgotten": (86_400, "s4", "running"),
    }
    networks = {"of-s1": (3600, "s1"), "of-s3": (3600, "s3"), "just-made-too": (5, "s5")}
    ps = "".join(f"{name}|{ago(age)}|{session}|{state}\n" for name, (age, session, state) in containers.items())
    ls = "".join(f"{name}|{ago(age)}|{session}\n" for name, (age, session) in networks.items())

    def answer(argv: list[str]) -> str:
        if "label=io.trainwright.rehearsal" in argv:
            return ""
        assert "label=io.trainwright.session" in argv or "rm" in argv
        return {"ps": ps, "network": ls}.get(argv[1], "")

    contexts = state_dir() / "contexts"
    for name in ("old", "new"):
        (contexts / name).mkdir(parents=True)
    os.utime(contexts / "old", (0, 0))
    with commands(monkeypatch, answer):
        found = check("leftovers")(machine())
    assert found.severity == "warning"
    assert found.message.endswith("3 containers, 1 network, 1 build context")
    said: list[str] = []
    fix = next(one.fix for one in doctor.CHECKS if one.name == "leftovers")
    assert fix is not None
    with commands(monkeypatch, answer) as seen:
        fix(machine(), said.append)
    removed = [argv[-1] for argv in seen if "rm" in argv]
    assert removed == ["old-stopped", "never-started", "forgotten", "of-s1"]
    assert len(said) == 5
    assert [path.name for path in contexts.iterdir()] == ["new"]
    with commands(monkeypatch, lambda _: ""):
        assert check("leftovers")(machine()).severity == "ok"


def test_the_fixes_are_those_of_the_engine_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(engine_setup, "ensure_tool", lambda name, _: done.append(name))
    monkeypatch.setattr(engine_checks, "connect", lambda **_: done.append("engine"))
    for one in doctor.CHECKS:
        if one.fix is not None and one.name != "leftovers":
            one.fix(Machine(), print)
    assert done == ["engine", "mmdebstrap"]


# A self-signed certificate for the name "test", valid until the year 2100.
EXPIRES_2100 = """\
-----BEGIN CERTIFICATE-----
MIIBdjCCARugAwIBAgIUf1de3rvOzI2anB4cT2c2Nq7tZ58wCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjEwNzMyNDZaGA8yMTAwMDcxNjA3MzI0
NlowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCuK
bpf7TMWOKWUqN6rVCluEuPdUN6PWylAJ8xF1geihouqcOvJAOQY63rlZ4bWXMlLF
qPAe8mJFnXvNdJ5v/tKjUzBRMB0GA1UdDgQWBBQ8W2Y7oLGTLqdWusY3Zhj3u5p2
HjAfBgNVHSMEGDAWgBQ8W2Y7oLGTLqdWusY3Zhj3u5p2HjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0kAMEYCIQCN2cbh+XrRC/w7goyJ7h0qaL5gdoKq0NeB
EyChtoYPlwIhAInSj85/2HvAFWNj1ASjceImqM6ilvRPtP6PItHYkgRi
-----END CERTIFICATE-----
"""


def test_trust_is_what_nobody_signed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UV_INSECURE_HOST", raising=False)
    config = ""
    with commands(monkeypatch, lambda _: config):
        assert check("trust")(Machine()).severity == "ok"
        config = "global.trusted-host='index.example'\n"
        found = check("trust")(Machine())
        assert found.severity == "warning" and "index.example" in found.message
        assert "pip config unset global.trusted-host" in found.remedy
        (tmp_path / "apt").mkdir()
        (tmp_path / "trainwright.toml").write_text('apt_folder = "apt"\n')
        both = check("trust")(Machine())
        assert "index.example" in both.message and str(tmp_path / "apt") in both.message
        assert "./invoke lock" in both.remedy


def test_the_group_docker_is_root_and_doctor_says_so() -> None:
    denied = EngineError("no permission", remedy='sudo usermod -aG docker "$USER"', state="denied")
    found = check("engine")(machine(denied))
    assert (found.severity, found.remedy) == ("error", denied.remedy)
    assert "root" in found.message


def test_no_finding_shows_a_secret() -> None:
    found = finding("pip index", "error", "no answer: http://u:s3cret@i/", "pip config set index http://u:s3cret@i/")
    assert "s3cret" not in str(doctor.document([found]).as_json())

"""The programs of the component ssh, run by a shell: whom a host lets in, whatever the platform's file holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from trainwright.core.paths import templates_dir

SSH = templates_dir() / "components" / "ssh"
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
TYPE, KEY = "ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIGNvbXBhcmVzIG5vdGhpbmc="
NOBODY = f'from="127.0.0.1,::1" {TYPE} {KEY}\n'
# What the resolver of a job knows, in the form of getent(1): one line for each kind of socket.
GETENT = """\
#!/bin/sh
test "$1" = ahosts || exit 64
shift
for name in "$@"; do
    printf '%s\\n' "$name" >> "$ASKED"
    case $name in
        algo-1) printf '10.0.0.1       STREAM algo-1\\n10.0.0.1       DGRAM  \\n' ;;
        algo-2) printf '10.0.0.2       STREAM algo-2\\nfe80::2%%eth0  STREAM \\nfd00::2        STREAM \\n' ;;
        10.0.0.9) printf '10.0.0.9       STREAM 10.0.0.9\\n' ;;
        -*) exit 64 ;;
    esac
done
exit 2
"""

Answer = Callable[[bytes | None], str]


@pytest.fixture(params=SHELLS)
def answer(request: pytest.FixtureRequest, tmp_path: Path) -> Answer:
    """What `job-hosts` says where the platform's file holds these bytes (None: the file is missing)."""
    resources, bin_folder = tmp_path / "resourceconfig.json", tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "getent").write_text(GETENT)
    (bin_folder / "getent").chmod(0o755)
    script = tmp_path / "job-hosts"
    text = (SSH / "job-hosts").read_text()
    assert text.count("/opt/ml/input/config/resourceconfig.json") == 1
    script.write_text(text.replace("/opt/ml/input/config/resourceconfig.json", str(resources)))
    work = tmp_path / "work"
    work.mkdir()

    def run(content: bytes | None) -> str:
        resources.unlink(missing_ok=True)
        if content is not None:
            resources.write_bytes(content)
        asked = tmp_path / "asked"
        asked.write_text("")
        environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "ASKED": str(asked)}
        done = subprocess.run([str(request.param), str(script), TYPE, KEY], env=environment, cwd=work, check=False,
                              capture_output=True, text=True, timeout=30)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert list(work.iterdir()) == []
        # getent would take these for flags.
        assert not any(name.startswith("-") for name in asked.read_text().splitlines())
        return done.stdout

    return run


def resources(*hosts: str, **more: object) -> bytes:
    return json.dumps({"current_host": "algo-1", "hosts": hosts, **more}).encode()


@pytest.mark.parametrize(
    ("content", "addresses"),
    [
        (resources("algo-1"), "10.0.0.1"),
        (resources("algo-1", "algo-2"), "10.0.0.1,10.0.0.2,fd00::2"),
        (json.dumps({"hosts": ["algo-2", "algo-1"]}, indent=4).encode(), "10.0.0.1,10.0.0.2,fd00::2"),
        (resources("algo-1", "not-there-yet"), "10.0.0.1"),
        (resources("10.0.0.9"), "10.0.0.9"),
        # A heterogeneous cluster names its hosts a second time, by groups.
        (resources("algo-1", groups=[{"hosts": ["algo-1"]}, {"hosts": ["algo-2"]}]), "10.0.0.1,10.0.0.2,fd00::2"),
    ],
)
def test_the_addresses_of_the_job_s_hosts_are_let_in(answer, content, addresses):
    assert answer(content) == f'from="127.0.0.1,::1,{addresses}" {TYPE} {KEY}\n'


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"\n",
        b"{",
        b"[]",
        b"null",
        b"\x00\xff\xfe",
        b"hosts",
        b'{"current_host": "algo-1"}',
        b'{"hosts": []}',
        b'{"hosts": null}',
        b'{"hosts": {"algo-1": 1}}',
        b'{"hosts": "algo-1"}',
        b'{"other_hosts": ["algo-1"]}',
        b'{"HOSTS": ["algo-1"]}',
        resources("nowhere"),
        resources(""),
        resources("*"),
        resources("0.0.0.0/0"),
        resources("!10.0.0.1"),
        resources("-s", "--service"),
        resources("$(touch made)"),
        resources("`touch made`"),
        resources("; touch made"),
        resources("a\ntouch made"),
        resources("| touch made |"),
        resources("> made"),
        resources("../../etc/passwd"),
        resources("${IFS}"),
        resources("%t"),
        resources("x" * 100_000),
        resources('" ssh-rsa AAAA'),
        resources("\\"),
        resources("ålgo-1"),
    ],
    ids=lambda content: repr(content)[:40],
)
def test_nothing_else_lets_anybody_in(answer, content):
    assert answer(content) == NOBODY


@settings(max_examples=some(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), st.lists(st.text(max_size=20), max_size=5).map(lambda x: resources(*x))))
@example(resources("algo-1\n"))
def test_the_answer_is_one_line_of_known_addresses(answer, content):
    """Whatever the file holds: no host that the resolver does not know, no second line, no other option."""
    said = answer(content)
    begin, _, rest = said.partition('"')
    addresses, _, key = rest.partition('"')
    assert (begin, key) == ("from=", f" {TYPE} {KEY}\n")
    assert set(addresses.split(",")) <= {"127.0.0.1", "::1", "10.0.0.1", "10.0.0.2", "fd00::2", "10.0.0.9"}


@pytest.fixture
def root_key(tmp_path: Path) -> tuple[list[str], Path]:
    """`root-key` for a home of the test's own."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen here; the image's own tests run the program")
    folder = tmp_path / "root" / ".ssh"
    script = tmp_path / "root-key"
    text = (SSH / "root-key").read_text()
    assert text.count("/root/.ssh\n") == 1
    script.write_text(text.replace("/root/.ssh\n", f"{folder}\n"))
    return ["sh", str(script)], folder


def test_a_key_pair_is_made_once(root_key):
    command, folder = root_key
    subprocess.run(command, check=True)
    private, public = folder / "id_ed25519", folder / "id_ed25519.pub"
    assert sorted(folder.iterdir()) == [private, public]
    assert (folder.stat().st_mode & 0o777, private.stat().st_mode & 0o777) == (0o700, 0o600)
    shown = subprocess.run(["ssh-keygen", "-y", "-P", "", "-f", private], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[:2] == public.read_text().split()[:2]
    before = private.read_bytes()
    subprocess.run(command, check=True)
    assert private.read_bytes() == before
    assert len(list(folder.iterdir())) == 2


def test_starts_at_once_agree_on_one_pair(root_key):
    command, folder = root_key
    running = [subprocess.Popen(command) for _ in range(8)]
    assert [each.wait(timeout=60) for each in running] == [0] * 8
    private, public = folder / "id_ed25519", folder / "id_ed25519.pub"
    assert sorted(folder.iterdir()) == [private, public]
    shown = subprocess.run(["ssh-keygen", "-y", "-P", "", "-f", private], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[:2] == public.read_text().split()[:2]


@pytest.mark.parametrize("name", ["id_rsa", "id_ecdsa", "id_ed25519"])
def test_a_key_of_the_user_is_left_alone(root_key, name):
    command, folder = root_key
    folder.mkdir(parents=True)
    (folder / name).write_text("mine")
    subprocess.run(command, check=True)
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, "mine")]


def test_a_folder_that_cannot_be_written_is_said(root_key):
    command, folder = root_key
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode != 0
    assert done.stderr

"""The image as SageMaker sees it before anything runs: configuration, contents, nothing that does not belong there."""

import re
import shlex

import pytest

CREDENTIALS = re.compile(r"\w+://[^/\s:@$]+:[^/\s@$]+@|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY")
# What a container starts with is settled when the image is whole; the probe asks the engine.
configuration = pytest.mark.outside("no image has a configuration before all of its steps are built")
# Programs with the rights of another user or group that Debian's packages bring (docs/security.md says which, and why).
SETUID = {"chfn", "chsh", "gpasswd", "mount", "newgrp", "passwd", "ssh-keysign", "su", "umount"}
SETGID = {"chage", "expiry", "ssh-agent", "unix_chkpwd"}
SYSTEM = re.compile(r"/(usr/)?(s?bin|lib)/")
SECRET_NAME = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|INDEX_URL$|^https?_proxy$", re.IGNORECASE)


@configuration
def test_entrypoint_hands_the_command_on(probe, host):
    # AWS's containers start a script by `bash -m`, which runs the command with eval.
    entrypoint = probe["image"]["entrypoint"]
    if not entrypoint:
        pytest.skip("the image has no ENTRYPOINT")
    command = " ".join(shlex.quote(word) for word in [*entrypoint, "echo", "reached"])
    folder = probe["image"]["working_dir"] or "/"
    assert host.check_output(f"cd {shlex.quote(folder)} && {command}").endswith("reached")


@configuration
def test_entrypoint_becomes_the_command(probe, host):
    # `docker run IMAGE train` must find `train` on PATH; a shell-form ENTRYPOINT would swallow both it and SIGTERM. Any
    # other command takes the ENTRYPOINT's place, and so gets its signals itself.
    entrypoint = probe["image"]["entrypoint"]
    if entrypoint:
        assert entrypoint[0].startswith("/"), f"not in exec form: {entrypoint}"
        assert len(entrypoint) == 1
        command = f"echo $$; exec {entrypoint[0]} sh -c 'echo $$'"
        before, after = host.check_output("sh -c %s", command).split()
        assert before == after


@configuration
def test_user_is_root(probe):
    # The toolkit writes /etc/environment and starts sshd; the platform's mounts belong to root.
    assert probe["image"]["user"] in ("", "root", "0", "0:0", "root:root")
    assert probe["user"]["uid"] == 0


@configuration
def test_no_volumes(probe):
    assert not [v for v in probe["image"]["volumes"] if v.startswith("/opt/ml")], (
        "a volume hides what the platform mounts"
    )


@configuration
def test_architecture(probe, plan):
    assert probe["image"]["architecture"] == plan.get("platform", "linux/amd64").rpartition("/")[2]


@configuration
def test_provider_of_libfabric_is_left_to_the_platform(probe):
    # Forced on an instance without EFA it hangs the job (deep-learning-containers issue 2675).
    assert "FI_PROVIDER" not in probe["image"]["environment"]


def test_no_driver_libraries(probe):
    assert probe["driver_libraries"] == []


def test_no_library_twice_on_the_loader_path(probe):
    assert probe["duplicates"] == {}


def test_no_host_keys(probe):
    assert "ssh host keys" not in probe["left_overs"], "host keys in a layer are everybody's keys"


@configuration
def test_no_credentials_in_the_configuration(probe):
    image = probe["image"]
    words = [*image["history"], *image["environment"].values(), *image["labels"].values()]
    assert [word for word in words if CREDENTIALS.search(word)] == []


@configuration
def test_no_secret_variables(probe):
    assert [name for name in probe["image"]["environment"] if SECRET_NAME.search(name)] == []


@pytest.mark.parametrize(
    "path",
    [
        "/etc/pip.conf",
        "/etc/uv/uv.toml",
        "/opt/venv/pip.conf",
        "/root/.aws",
        "/root/.config/pip",
        "/root/.config/uv",
        "/root/.docker",
        "/root/.netrc",
        "/root/.pip",
        "/root/.pypirc",
    ],
)
def test_no_settings_of_a_site(host, path):
    assert not host.file(path).exists


def test_no_secrets_left_behind(host):
    assert host.run("find /run/secrets /mnt -mindepth 1 2>/dev/null").stdout.split() == []
    # An empty bundle is what a secret's mount point leaves; it would break TLS for everything in the image.
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    assert not host.file(bundle).exists or host.file(bundle).size > 0


def test_no_files_that_look_like_credentials(probe, plan):
    if "secrets" not in probe:
        pytest.skip("the image was probed before this was looked for; ./invoke build probes it again")
    # What a base image of somebody else's holds at home is not ours to change.
    ours = "/opt/" if (plan.get("base") or {}).get("kind") == "dlc" else "/"
    allowed = {f"/opt/ml/code/{name}" for name in (plan.get("user") or {}).get("secrets", ())}
    assert [path for path in probe["secrets"] if path.startswith(ours) and path not in allowed] == []


@pytest.mark.parametrize(("bit", "known"), [("4000", SETUID), ("2000", SETGID)])
def test_programs_with_other_rights_are_the_distribution_s(host, plan, bit, known):
    base, user = plan.get("base") or {}, plan.get("user") or {}
    found = host.run("find / -xdev -type f -perm -%s", bit).stdout.split()
    beside = [path for path in found if not SYSTEM.match(path)]
    assert base.get("kind") == "dlc" or beside == [], "no component needs such a program"
    if base.get("kind") == "debian" and not (user.get("apt") or user.get("run")):
        assert {path.rpartition("/")[2] for path in found} <= known


def test_temporary_folder_can_be_written(host):
    assert host.run("touch /tmp/probe-of-smoke && rm /tmp/probe-of-smoke").rc == 0
    assert host.file("/tmp").mode == 0o1777


def test_licences_of_components_are_in_the_image(host, plan):
    named = [c for c in plan["components"] if c.get("licence") and c["provider"] != "base"]
    told = host.file("/licenses/components.txt").content_string.splitlines() if named else []
    for component in named:
        begins = f"{component['name']} {component['version']} ({component['provider']}): {component['licence']['name']}"
        assert any(line.startswith(begins) for line in told), component["name"]

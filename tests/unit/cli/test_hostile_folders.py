"""Folders and files that a user names for output: somebody's project is refused as it stands, and stays so."""

from pathlib import Path

import pytest

from tests.support.tries import Try

PROJECT = {
    "Dockerfile": "FROM scratch\n",
    "README.md": "# mine\n",
    "src/train.py": "print(1)\n",
    "data/results.csv": "1,2\n",
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/config": "[core]\n",
    ".ssh/id": "key\n",
    "notes.txt": "mine\n",
    "buildspec.yml": "version: 0.2\n",
    "start.py": "print('mine')\n",
    "report.xml": "<testsuites/>\n",
    "bake/docker-bake.json": "{}\n",
    "job.yaml": (
        "image: 763104351884.dkr.ecr.us-west-2.amazonaws.com/"
        "pytorch-training:2.6.0-gpu-py312-cu126-ubuntu22.04-sagemaker\n"
        "entry_point: src/train.py\ninstance_type: ml.g5.2xlarge\nrole: arn:aws:iam::123456789012:role/x\n"
    ),
}
REQUEST = "--framework pytorch --cuda cu113 --version 1.10.2"
FOLDERS = (".", "./", ".git", "src", "data", "bake", "../work", "{sentinel}")
# A verb that takes the folder of each.
VERB_OF = {"TRAINWRIGHT_STATE": "list --built", "TRAINWRIGHT_CACHE": f"render {REQUEST} --output new"}
TAKEN = [
    *(Try(f"render {REQUEST} --output {name}", 2, "not empty") for name in FOLDERS),
    Try(f"render {REQUEST} --output . --json", 2, "not empty"),
    *(Try(f"render {REQUEST} --output {file}", 2, "not a directory") for file in ("Dockerfile", "notes.txt")),
    Try("pipeline --output buildspec.yml", 2, "buildspec.yml"),
    Try("pipeline --output src/train.py", 2, "train.py"),
    Try("pipeline", 2, "buildspec.yml"),
    Try("pipeline --format batch --output notes.txt", 2, "notes.txt"),
    *(Try(f"pipeline --format bake --images pytorch-1.10.2-cu113 --output {name}", 2, "not empty") for name in FOLDERS),
    Try(f"lock {REQUEST} --output notes.txt", 2, "notes.txt"),
    Try(f"lock {REQUEST} --output src", 2, "src"),
    Try("smoke --image x --junit notes.txt", 2, "notes.txt"),
    Try("smoke --image x --junit report.xml", 2, "report.xml"),
    Try("smoke --image x --junit src", 2, "src"),
    Try("estimator --job job.yaml --output start.py", 2, "start.py"),
    Try("estimator --job job.yaml --output src", 2, "src"),
    *(
        Try(verb, 2, variable, env={variable: place})
        for variable, verb in VERB_OF.items()
        for place in ("{work}", "{sentinel}", "{work}/src", "{work}/notes.txt", "{work}/.git")
    ),
]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("row", TAKEN, ids=str)
def test_a_project_stays_as_it_is(row, attempt):
    tried = attempt(Try(row.words, row.code, row.says, files={**PROJECT, **row.files}, env=row.env))
    kept = {name: text.encode() for name, text in PROJECT.items()}
    assert {name: content for name, content in files_of(tried.work).items() if name in kept} == kept
    assert {name for name in files_of(tried.work) if not name.startswith(".trainwright/")} == set(kept)


def test_a_context_is_written_into_a_new_folder_and_again(attempt):
    first = attempt(Try(f"render {REQUEST} --output made", 0, "made/Dockerfile", files=PROJECT))
    made = files_of(first.work / "made")
    assert {"Dockerfile", ".trainwright-manifest.json"} <= set(made)
    assert (first.work / "Dockerfile").read_text() == PROJECT["Dockerfile"]

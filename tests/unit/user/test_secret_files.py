"""Names of files that hold credentials: the same before a build, and in the image by the probe."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.probe_program import probe_program
from trainwright.core.paths import templates_dir
from trainwright.user import secret_files

# By the tools' own documentation and sources, as far as they are public.
SECRET = [
    ".env",
    ".env.local",
    ".env.production",
    ".envrc",
    ".envs/.production/.django",
    "sub/.env",
    ".env.example.local",
    ".netrc",
    "_netrc",
    ".aws/credentials",
    ".aws/config",
    "home/.aws/sso/cache/a.json",
    ".ssh/id_rsa",
    ".ssh/config",
    ".ssh/anything",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "id_dsa",
    "id_ecdsa_sk",
    "id_ed25519_sk",
    "keys/id_rsa_work",
    "id_rsa.old",
    "id_rsa.bak",
    "server.pem",
    "a/b/server.key",
    "SERVER.KEY",
    "x.ppk",
    "x.p12",
    "x.pfx",
    ".git-credentials",
    ".config/git/credentials",
    ".pypirc",
    "pip.conf",
    ".pip/pip.conf",
    ".config/pip/pip.conf",
    "pip.ini",
    ".docker/config.json",
    ".dockercfg",
    ".dockerconfigjson",
    ".kube/config",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".huggingface/token",
    "stored_tokens",
    "wandb/settings",
    ".config/wandb/settings",
    "kaggle.json",
    ".kaggle/kaggle.json",
    ".kaggle/access_token",
    ".config/kaggle/access_token",
]
# What projects have that only looks alike.
HARMLESS = [
    ".env.example",
    ".env.sample",
    ".env.template",
    ".env.dist",
    ".env.production.example",
    "env.py",
    "environment.yml",
    "config/env/default.yaml",
    "train.env.py",
    "netrc.py",
    "aws/credentials.py",
    "ssh/id.py",
    "id_map.py",
    "id_map",
    "id_rsa.pub",
    "id_ed25519.pub",
    "id_rsa.py",
    "id_to_label.json",
    "tokenizer.json",
    "token.py",
    "tokens.txt",
    "huggingface/token.py",
    "key.py",
    "keys.txt",
    "monkey",
    "model.pem.py",
    "pip.conf.py",
    "pipeline.conf",
    "docker/config.json",
    "config.json",
    "kube/config.yaml",
    "wandb/settings.py",
    "wandb/run-1/files/config.yaml",
    "kaggle.py",
    "data/kaggle.json.gz",
    ".gitignore",
    ".dockerignore",
    ".gitconfig",
    "settings",
    "credentials.py",
]
BLOCK = "-----BEGIN {0}-----\nMIIB\n-----END {0}-----\n"


program = pytest.fixture(scope="module")(probe_program)


def looked_for(program: ModuleType, *roots: Path) -> list[str]:
    """What the probe finds; the rules reach it as JSON."""
    rules = json.loads(json.dumps(secret_files.rules()))
    found: list[str] = program.secrets(rules, [str(root) for root in roots], set())
    return found


@pytest.mark.parametrize("name", SECRET)
def test_secret(tmp_path: Path, program: ModuleType, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("secret")
    assert secret_files.is_secret(name, path)
    assert looked_for(program, tmp_path) == [str(path)]


def test_harmless(tmp_path: Path, program: ModuleType) -> None:
    for name in HARMLESS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [name for name in HARMLESS if secret_files.is_secret(name, tmp_path / name)] == []
    assert looked_for(program, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (BLOCK.format("CERTIFICATE") * 3, False),
        ("# a bundle of authorities\n" + BLOCK.format("TRUSTED CERTIFICATE"), False),
        (BLOCK.format("PUBLIC KEY"), False),
        (BLOCK.format("DH PARAMETERS"), False),
        (BLOCK.format("CERTIFICATE") + BLOCK.format("PRIVATE KEY"), True),
        (BLOCK.format("RSA PRIVATE KEY"), True),
        (BLOCK.format("OPENSSH PRIVATE KEY"), True),
        (BLOCK.format("ENCRYPTED PRIVATE KEY"), True),
        (BLOCK.format("SOMETHING NEW"), True),
        ("", True),
        ("whatever", True),
        ("\0\xff", True),
    ],
)
@pytest.mark.parametrize("name", ["a.pem", "a.key"])
def test_certificates_are_no_secret(tmp_path: Path, program: ModuleType, name: str, text: str, secret: bool) -> None:
    (tmp_path / name).write_text(text)
    assert secret_files.is_secret(name, tmp_path / name) is secret
    assert bool(looked_for(program, tmp_path)) is secret


def test_a_private_key_among_certificates_by_another_name_is_none_of_pem(tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text(BLOCK.format("CERTIFICATE"))
    assert secret_files.is_secret("id_rsa", tmp_path / "id_rsa"), "only .pem and .key are looked into"


def test_the_probe_leaves_packages_and_mounts_out(tmp_path: Path, program: ModuleType) -> None:
    code = tmp_path / "opt/ml/code"
    inside = ["lib/site-packages/x/test.key", "python3.11/test/keycert.pem", "node_modules/a/.env", "mounted/.env"]
    for name in [*inside, "sub/.env"]:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("x")
    rules = secret_files.rules()
    assert program.secrets(rules, [str(code), str(tmp_path / "missing")], {str(code / "mounted")}) == [
        str(code / "sub/.env")
    ]
    assert {"/opt/ml", "/opt/program", "/root", "/home"} <= set(program.ROOTS)


@given(st.text(alphabet="./abz_id-rsapemnvktoch", min_size=1, max_size=40))
def test_a_path_means_the_same_wherever_its_folder_is(name: str) -> None:
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    name = "/".join(parts) or "a"
    assert secret_files.named_like_a_secret(name) == secret_files.named_like_a_secret(f"some/folder/{name}")


# ---- the image test --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image_test() -> ModuleType:
    path = templates_dir() / "contract" / "test_image.py"
    spec = importlib.util.spec_from_file_location("contract_of_images", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("found", "plan", "passes"),
    [
        ([], {}, True),
        (["/opt/ml/code/.env"], {}, False),
        (["/opt/ml/code/.env"], {"user": {"secrets": [".env"]}}, True),
        (["/opt/ml/code/.env", "/opt/ml/code/a.pem"], {"user": {"secrets": [".env"]}}, False),
        (["/opt/ml/code/sub/.env"], {"user": {"secrets": [".env"]}}, False),
        (["/root/.aws/credentials"], {"user": {"secrets": [".aws/credentials"]}}, False),
        (["/root/.ssh/id_ed25519"], {"components": [{"name": "ssh"}]}, False),
        (["/root/x.pem"], {"base": {"kind": "dlc"}}, True),
        (["/opt/ml/code/x.pem"], {"base": {"kind": "dlc"}}, False),
    ],
)
def test_the_image_test(image_test: ModuleType, found: list[str], plan: dict[str, Any], passes: bool) -> None:
    whole = {"components": [], "base": {"kind": "debian"}, "user": {}, **plan}
    if passes:
        image_test.test_no_files_that_look_like_credentials({"secrets": found}, whole)
    else:
        with pytest.raises(AssertionError):
            image_test.test_no_files_that_look_like_credentials({"secrets": found}, whole)


def test_an_image_that_was_probed_before(image_test: ModuleType) -> None:
    with pytest.raises(pytest.skip.Exception):
        image_test.test_no_files_that_look_like_credentials({}, {"components": []})

"""The command line with folders and requirements files that may not enter an image."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.support.tries import Link, Try
from trainwright.user.secret_files import named_like_a_secret

PLAN = "plan --framework pytorch --base dlc"
RENDER = "render --framework pytorch --base dlc --output out"
CODE = "--code code --entry-point train.py"
TRAIN = {"code/train.py": "print(1)\n"}
SHA = "0" * 64


def code(says: str, files: dict[str, str | bytes | Link | None], exit_code: int = 2, flags: str = "") -> Try:
    return Try(f"{PLAN} {CODE} {flags}".strip(), exit_code, says, {**TRAIN, **files})


LINKS = [
    code("outside of the folder", {f"code/{link}": Link(target)})
    for link in ("link", "data/link", "train2.py")
    for target in ("/etc/shadow", "{sentinel}/.env", "{sentinel}", "/", "{home}", "/dev/zero", "/proc/self/environ")
]
FOLDERS = [
    Try(["plan", "--framework", "pytorch", "--code", folder, "--entry-point", entry], 2, says)
    for folder, entry, says in (
        ("/etc", "hostname", "system"),
        ("/", "etc/hostname", "system"),
        ("/proc/self", "environ", "system"),
        ("/sys/kernel", "notes", "system"),
        ("/dev/", "null", "system"),
        ("{sentinel}", "src/train.py", ".env, .ssh/id_ed25519"),
        ("missing", "train.py", "no such folder"),
        ("a" * 5000, "train.py", "cannot be opened"),
        ("\x1b]0;pwned\x07", "train.py", "\\x1b"),
        ("{sentinel}/README.md", "train.py", "not a directory"),
    )
]
SECRETS = [
    code(name, {f"code/{name}": "secret"})
    for name in (".env", "sub/.netrc", ".aws/credentials", ".ssh/config", "id_rsa", "server.key", ".git-credentials")
] + [
    code(".pypirc, pip.conf", {"code/.pypirc": "", "code/pip.conf": ""}),
    code("kaggle.json, token.pem", {"code/kaggle.json": "", "code/token.pem": ""}),
    code("and 2 more", {f"code/{number}.key": "" for number in range(12)}),
    code("--allow-secrets", {"code/.env": ""}),
    code(".env, a.pem", {"code/.env": "", "code/a.pem": ""}, 0, "--allow-secrets"),
    code("", {"code/.env.example": "", "code/id_map.py": "", "code/id_rsa.pub": ""}, 0),
    code("", {"code/.env": "", "code/.dockerignore": "**/.env\n"}, 0),
    code("settings.txt", {"code/.env": "", "code/settings.txt": Link(".env")}),
]
NAMES = [
    code("not UTF-8", {"code/a\udcff.py": ""}),
    code("control character", {"code/a\n.py": ""}),
    code("control character", {"code/\x1b[2J": ""}),
    code("\\u202e", {"code/\u202egnp.py": ""}),
    code("cannot be opened", {"code/link": Link("missing")}),
    code("cannot be opened", {"code/link": Link("link")}),
    code("in itself", {"code/sub/link": Link("..")}),
    code("", {"code/.#train.py": Link("me@host.1")}, 0),
]
IGNORED = [
    code(".dockerignore:2", {"code/.dockerignore": "a\n[\n"}),
    code(".dockerignore:1", {"code/.dockerignore": "!"}),
    code(".dockerignore:1", {"code/.dockerignore": "a" * 100_000}),
    code(".dockerignore", {"code/.dockerignore": b"\xff\xfe\x00\x00"}),
    code("would not be baked", {"code/.dockerignore": "*.py\n"}),
    code("outside", {"code/.dockerignore": Link("{sentinel}/README.md")}),
    code("", {"code/.dockerignore": "**/" * 1000 + "a\n" + "*" * 2000 + "\n!train.py\n"}, 0),
    code("", {"code/link": Link("/etc/shadow"), "code/.dockerignore": "link\n"}, 0),
]
LINES = (
    ("-r base.txt", "-r reads"),
    ("-e .", "-e installs"),
    ("--index-url https://user:tok-en@example.com/simple", "--index-url"),
    ("--extra-index-url=https://example.com/simple", "--extra-index-url"),
    ("--trusted-host example.com", "--trusted-host"),
    ("foo @ https://user:tok-en@example.com/foo.whl", "password"),
    ("https://tok-en@example.com/foo.whl", "password"),
    ("foo @ https://example.com/foo.whl?sig=tok-en", "token"),
    ("file:///etc/passwd", "path"),
    ("/etc/passwd", "path"),
    ("foo \x1b[31m", "control character"),
    ("x" * 200_000, "too long"),
    ("(" * 50_000, "not a requirement"),
    ("a[" + "b," * 40_000 + "c]==", "not a requirement"),
    ("a; " + "(" * 3000 + "python_version > '3'" + ")" * 3000, "not a requirement"),
    (f"six --hash=sha256:{SHA}{SHA}", "checksum"),
    ("\\\n" * 20_000 + "=", "not a requirement"),
)
REQUIREMENTS = [
    Try(f"{PLAN} --with-requirements r.txt", 2, says, {"r.txt": f"six\n{line}\n"}) for line, says in LINES
] + [
    Try(f"{PLAN} --with-requirements r.txt", 2, "UTF-8", {"r.txt": bytes(range(256)) * 100}),
    Try(f"{PLAN} --with-requirements r.txt", 2, "control", {"r.txt": b"\x7fELF\x00\x00"}),
    Try(f"{PLAN} --with-requirements r.txt", 2, "too large", {"r.txt": b"a\n" * 5_000_000}),
    Try(f"{PLAN} --with-requirements r.txt", 2, "no such file"),
    Try(f"{PLAN} --with-requirements r.txt", 2, "not a regular file", {"r.txt": None}),
    Try(f"{PLAN} --with-requirements /dev/zero", 2, "not a regular file"),
    Try(f"{PLAN} --with-requirements r.txt", 0, "", {"r.txt": "# git+ssh://git@x\nsix==1.17.0 ; python_version>'3'\n"}),
]
ROWS = [*LINKS, *FOLDERS, *SECRETS, *NAMES, *IGNORED, *REQUIREMENTS]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_hostile(row, attempt):
    tried = attempt(row)
    assert "sentinel-secret" not in tried.out + tried.err
    assert "tok-en" not in tried.out + tried.err


RENDERED = [
    Try(f"{RENDER} {CODE}", 2, "outside", {**TRAIN, "code/link": Link("{sentinel}/.env")}),
    Try(f"{RENDER} {CODE}", 2, ".env", {**TRAIN, "code/.env": "secret"}),
    Try(f"{RENDER} --with-requirements r.txt", 2, "r.txt:1", {"r.txt": "foo @ https://a:tok-en@example.com/f.whl"}),
]


@pytest.mark.parametrize("row", RENDERED, ids=str)
def test_nothing_is_written_of_what_is_refused(row, attempt):
    tried = attempt(row)
    assert not (tried.work / "out").exists()


def test_what_is_said_is_what_is_written(attempt):
    files = {**TRAIN, "code/a.csv": "12345", "code/.env": "", "code/.dockerignore": "*.csv\n.dockerignore\n"}
    files |= {"r.txt": "# https://user:tok-en@example.com\nsix==1.17.0\n"}
    tried = attempt(Try(f"{RENDER} {CODE} --with-requirements r.txt --allow-secrets --json", 0, "2 files, 9 B", files))
    out = tried.work / "out"
    baked = sorted(str(path.relative_to(out / "user/code")) for path in (out / "user/code").rglob("*"))
    assert baked == [".env", "train.py"]
    assert (out / "requirements/user.txt").read_text() == "six==1.17.0\n"
    assert json.loads(tried.out)["output"] == str(out)
    assert [path for path in out.rglob("*") if path.is_file() and b"tok-en" in path.read_bytes()] == []


def test_plan_says_what_would_be_baked(attempt):
    row = code("", {"code/sub/.env": "A=1\n"}, 0, "--allow-secrets --json")
    user = json.loads(attempt(row).out)["user"]
    assert (user["code_files"], user["code_bytes"], user["secrets"]) == (2, 13, ["sub/.env"])


def test_an_offered_command_insists_as_well(attempt):
    row = code("", {"code/.env": ""}, 2, "--allow-secrets --json")
    locked = dataclasses.replace(row, words=["build", *row.argv[1:], "--locked"])
    remedy = json.loads(attempt(locked).out)["remedy"]
    assert remedy.startswith("trainwright lock ")  # as the program was called
    assert "--allow-secrets" in remedy.split()


def test_the_sentinel_has_secrets():
    assert all(map(named_like_a_secret, (".env", ".ssh/id_ed25519")))

"""The front door with a real uv and pip, and copies of a venv; a wheel stands in for the packages. No network."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.front_door import ROOT, Checkout
from trainwright.site.uv_install import environment, only_pip_reads

UV = Path(sys.executable).with_name("uv")


@pytest.fixture
def checkout(tmp_path: Path, copying_python: Path) -> Checkout:
    """A checkout whose one pin is a wheel in the folder ``wheels``, which pip's configuration alone names."""
    made = Checkout(tmp_path)
    made.python = copying_python
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    made.pins(wheel(wheels, "invoke", "3.0.3", {"invoke_stub.py": ""}))
    for package in ("core", "site"):
        shutil.copytree(ROOT / "trainwright" / package, made.root / "trainwright" / package)
    shutil.copy2(ROOT / "trainwright" / "__init__.py", made.root / "trainwright")
    (made.root / "tasks.py").write_text("import invoke_stub\nprint('ran')\n")
    (tmp_path / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
    return made


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> str:
    """Make a wheel; returns the line that pins it."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            entry = zipfile.ZipInfo(place)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def settings(checkout: Checkout, **more: str) -> dict[str, str]:
    own = {name: "" for name in os.environ if name.startswith(("PIP_", "UV_"))}
    return {
        **own,
        "TRAINWRIGHT_PYTHON": str(checkout.python),
        "TRAINWRIGHT_UV": str(UV),
        "PIP_CONFIG_FILE": str(checkout.folder / "pip.conf"),
        "UV_CACHE_DIR": str(checkout.folder / "cache"),
        **more,
    }


def installer(checkout: Checkout) -> str:
    """Who installed the package."""
    (named,) = checkout.root.glob(".venv/lib/python3*/site-packages/invoke-3.0.3.dist-info/INSTALLER")
    return named.read_text().strip()


def test_uv_installs_what_pips_configuration_names(checkout: Checkout) -> None:
    done = checkout.run(env=settings(checkout))
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "(uv; every hash is checked)" in done.stderr
    assert "(pip;" not in done.stderr
    assert installer(checkout) == "uv"
    assert list(checkout.root.glob(".venv/lib/python3*/site-packages/__pycache__/invoke_stub.*.pyc"))
    assert checkout.run(env=settings(checkout)).stderr == ""


def test_a_uv_that_is_not_installed_is_the_pinned_one(checkout: Checkout) -> None:
    pins = (checkout.root / "requirements.txt").read_text()
    script = {"uv-0.13.8.data/scripts/uv": f'#!/bin/sh\nexec {UV} "$@"\n'}
    checkout.pins(pins + wheel(checkout.folder / "wheels", "uv", "0.13.8", script))
    done = checkout.run(env=settings(checkout, TRAINWRIGHT_UV="/nowhere/uv"))
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert installer(checkout) == "uv"
    assert (checkout.root / ".venv/bin/uv").is_file()


def test_a_wrong_hash_is_refused_by_both(checkout: Checkout) -> None:
    checkout.pins(f"invoke==3.0.3 --hash=sha256:{'0' * 64}\n")
    refused = checkout.run(env=settings(checkout))
    assert refused.returncode == 8
    assert "uv failed" in refused.stderr
    assert "Hash mismatch" in (checkout.root / ".venv" / "setup.log").read_text()
    assert not list(checkout.root.glob(".venv/lib/python3*/site-packages/invoke-3.0.3.dist-info"))


def test_what_uv_cannot_be_told_is_left_to_pip_and_said(checkout: Checkout) -> None:
    (checkout.folder / "pins.txt").write_text("invoke==3.0.3\n")
    done = checkout.run(env=settings(checkout, PIP_CONSTRAINT=str(checkout.folder / "pins.txt")))
    assert done.returncode == 0, done.stderr
    assert "constraint, which uv cannot be told" in done.stderr
    assert installer(checkout) == "pip"


@pytest.mark.parametrize("uv", ["", "/nowhere/uv"])
def test_without_uv_pip_installs(checkout: Checkout, uv: str) -> None:
    done = checkout.run(env=settings(checkout, TRAINWRIGHT_UV=uv))
    assert done.returncode == 0, done.stderr
    assert "(uv;" not in done.stderr
    assert "uv failed" not in done.stderr
    assert installer(checkout) == "pip"


def test_a_uv_that_fails_is_followed_by_pip(checkout: Checkout) -> None:
    checkout.program("uv", '[ "$1" = --version ] || { echo broken; exit 2; }')
    done = checkout.run(env=settings(checkout, TRAINWRIGHT_UV="uv"))
    assert done.returncode == 0, done.stderr
    assert "uv failed" in done.stderr
    assert installer(checkout) == "pip"


def test_only_options_that_decide_about_packages_need_pip() -> None:
    assert only_pip_reads({"index-url": "x", "timeout": "9", "no-cache-dir": "1", "only-binary": "", "cert": "c"}) == []
    assert only_pip_reads({"only-binary": ":all:", "client-cert": "c", "index-url": "x"}) == [
        "client-cert",
        "only-binary",
    ]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {"UV_NATIVE_TLS": "1"}),
        ({"PIP_CERT": "/pip.pem"}, {"SSL_CERT_FILE": "/pip.pem"}),
        ({"REQUESTS_CA_BUNDLE": "/requests.pem"}, {"SSL_CERT_FILE": "/requests.pem"}),
        ({"PIP_PROXY": "http://proxy:1"}, {"HTTP_PROXY": "http://proxy:1", "HTTPS_PROXY": "http://proxy:1"}),
        ({"PIP_TRUSTED_HOST": "a b"}, {"UV_INSECURE_HOST": "a b"}),
        ({"PIP_INDEX_URL": "http://i/simple"}, {"UV_DEFAULT_INDEX": "http://i/simple"}),
    ],
)
def test_uv_is_told_what_pip_is(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: dict[str, str]
) -> None:
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")) or name.upper().endswith(("_PROXY", "_CA_BUNDLE", "CERT_FILE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    told, _ = environment(os.environ)
    assert {name: told.get(name) for name in expected} == expected

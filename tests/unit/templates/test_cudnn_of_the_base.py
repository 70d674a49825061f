"""The probe of NVIDIA's base images for cuDNN, with a library of its name and a loader that knows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.catalog.catalog import load_catalog

PROBES = load_catalog().components["cuda"].component.providers["nvidia"].probe


def found(folder: Path, listed: str) -> str:
    """What the probe says of cuDNN where ``ldconfig -p`` prints this."""
    (folder / "ldconfig").write_text(f"#!/bin/sh\ncat <<'END'\n1 libs found in cache\n{listed}\nEND\n")
    (folder / "ldconfig").chmod(0o755)
    (script,) = [each.python for each in PROBES if each.python and "libcudnn" in each.python]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["cudnn"])


# cudnn_version.h: up to 8 major * 1000 + minor * 100 + patch, since 9 major * 10000 + minor * 100 + patch.
@pytest.mark.parametrize(("number", "version"), [(8005, "8.0.5"), (8101, "8.1.1"), (8906, "8.9.6"), (90501, "9.5.1")])
def test_the_library_of_the_loader_says_its_version(tmp_path, number, version):
    name = f"libcudnn.so.{version[0]}"
    (tmp_path / "c.c").write_text(f"unsigned long cudnnGetVersion(void) {{ return {number}; }}\n")
    subprocess.run(["cc", "-shared", "-o", tmp_path / name, tmp_path / "c.c"], check=True)
    others = (
        f"\tlibcudnn_ops_infer.so.8 (libc6,x86-64) => /x/libcudnn_ops_infer.so.8\n\tlibc.so.6 (libc6) => {tmp_path}/c"
    )
    assert found(tmp_path, f"{others}\n\t{name} (libc6,x86-64) => {tmp_path}/{name}") == version


def test_an_image_without_cudnn_has_none(tmp_path):
    assert found(tmp_path, "\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6") == ""

"""Debian packages and a last step of the user's own, through the program: refused early, built, locked, smoked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import CPU_LINE

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("proven")]  # its layers are in the cache

SCRIPT = """\
#!/usr/bin/env python3
import pathlib, subprocess
said = subprocess.run(["jq", "-n", "-r", ".answer = 42 | .answer"], stdout=subprocess.PIPE, check=True)
pathlib.Path("/opt/answer").write_bytes(said.stdout)
left = [str(p) for p in pathlib.Path("/run/secrets").glob("*")] + [str(p) for p in pathlib.Path("/mnt").iterdir()]
pathlib.Path("/opt/mounted").write_text(" ".join(sorted(left)))
"""


def test_packages_and_a_script(program, docker, tmp_path):
    script = tmp_path / "setup.py"
    script.write_text(SCRIPT)
    words = [*CPU_LINE, "--with-apt", "jq,tree", "--with-run", str(script), "--json"]
    done = program("build", *words)
    try:
        assert done.code == 0, done.err[-4000:]
        built = done.json
        inside = ("run", "--rm", "--network", "none", "--entrypoint", "cat", built["image_id"])
        assert docker(*inside, "/opt/answer").strip() == "42"
        assert docker(*inside, "/opt/mounted").split() == ["/mnt/script", "/mnt/settle-step"]
        assert {"jq", "tree"} <= set(built["probe"]["packages"])
        smoked = program("smoke", "--image", built["image_id"], "--select", "user/", "--json")
        assert smoked.code == 0, smoked.err[-4000:]
        outcomes = {row["check"]: row["outcome"] for row in smoked.json["rows"]}
        assert outcomes["test_packages_of_the_distribution_are_there_in_their_version"] == "passed"
        # Set times, and nothing of the step's own means in the layer.
        listed = ("run", "--rm", "--network", "none", "--entrypoint", "find", built["image_id"])
        assert docker(*listed, "/opt/answer", "-printf", "%T@").startswith("1700000000")
        assert not docker(*listed, "/mnt", "-mindepth", "1").strip()
        assert program("build", *words).json["cached"]
    finally:
        docker("rmi", "-f", *(done.json["tags"] if done.code == 0 else ()), check=False)


def test_what_is_wrong_with_them_is_told(program, tmp_path):
    early = program("build", *CPU_LINE, "--with-apt", "tree,libsnfile1-dev", "--json")
    assert early.code == 2, early.err[-4000:]
    assert "libsndfile1-dev" in json.dumps(early.json["nearest"])
    script = Path(tmp_path, "fails.sh")
    script.write_text("#!/bin/sh\necho about to fail\necho no such weights >&2\nexit 3\n")
    late = program("build", *CPU_LINE, "--with-run", str(script), "--json")
    assert late.code == 5
    assert late.json["component"] == "user" and late.json["step_exit_code"] == 3
    assert "no such weights" in late.json["message"]
    assert [line.strip() for line in late.json["last_lines"]][-2:] == ["about to fail", "no such weights"]

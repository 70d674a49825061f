"""Proves an image in a build step of its own: the probe, what it finds against the plan, and the image tests.

The argument is a folder: ``request.json``, ``probe.py``, ``plan.json``, ``tests/`` and ``runner.zip`` (pytest, and the
files of Trainwright that image tests need), which :mod:`trainwright.prove.in_build` has put there. The results go into
``results/`` of it: ``results.json``, ``probe.json``, ``smoke.xml``. The exit status is 1 if something is wrong.

The probe runs under Python 3.6 and newer; what compares and tests needs the Python of ``request.json``. Where the image
has an older one, or the request says why not, the rest is done with a container of the image.
"""

# ruff: noqa: PTH110, PTH118, PTH119, PTH120, PTH123, UP006, UP031, UP035
# The first PyTorch images have Python 3.6.

import hashlib
import json
import os
import subprocess  # the runner is not in the image
import sys
import xml.etree.ElementTree as ET
import zipfile
from typing import Any, Dict, List

SCHEMA = "trainwright/built-proof/1"
# Variables of the build and not of the image: arguments of the build, proxies, and what the shells before this set.
OF_THE_BUILD = {"prove", "source_revision", "http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"}
OF_THE_BUILD |= {"pwd", "oldpwd", "shlvl", "_"}
SAID = 4000  # characters


def environment() -> Dict[str, str]:
    """The variables that a container of the image would have."""
    return {name: value for name, value in os.environ.items() if name.lower() not in OF_THE_BUILD}


def run(argv: List[str], seconds: float, text: str, variables: Dict[str, str], folder: str = "/") -> Any:
    """A program with this input in a folder; exit status 124 if it found no end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "universal_newlines": True, "errors": "replace"}
    try:
        return subprocess.run(argv, input=text, timeout=seconds, env=variables, cwd=folder, check=False, **pipes)
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(argv, 124, str(late.output or ""), "no end after %d s" % seconds)


def read(*path: str) -> str:
    """The text of a file."""
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def write(text: str, *path: str) -> str:
    """Write a file; returns the sha256 of its text."""
    data = text.encode("utf-8")
    with open(os.path.join(*path), "wb") as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


def probed(folder: str, request: Dict[str, Any], variables: Dict[str, str]) -> Dict[str, Any]:
    """What the probe finds, or ``{"error": ...}``."""
    asked = json.dumps({"probes": request["probes"], "secrets": request["secrets"]})
    done = run(["python3", "-", asked], request["probe_seconds"], read(folder, "probe.py"), variables)
    try:
        found = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    return {"error": "exit status %d: %s" % (done.returncode, (done.stderr or done.stdout).strip()[-SAID:])}


def tested(folder: str, request: Dict[str, Any], found: Dict[str, Any], variables: Dict[str, str]) -> Dict[str, Any]:
    """The image tests: ``smoke.xml`` in the results, how pytest ended, and the tests that were left for a container."""
    results, left = os.path.join(folder, "results"), os.path.join(folder, "left.json")
    data = {"docker": "", "container": "", "image": "", "gpus": False, "select": "", "only": [], "probe": found}
    data.update(plan=json.loads(read(folder, "plan.json")), place="build", environment=variables, left=left)
    write(json.dumps(data), folder, "data.json")
    write(request["pytest_ini"], folder, "pytest.ini")
    junit = "--junitxml=" + os.path.join(results, "smoke.xml")
    argv = [sys.executable, "-P", "-m", "pytest", *request["pytest"], junit]
    own = dict(variables, TRAINWRIGHT_IMAGE_TEST=os.path.join(folder, "data.json"))
    own.update(request["variables"], PYTHONPATH=os.path.join(folder, "packages"))
    done = run([*argv, *request["tests"]], request["tests_seconds"], "", own, folder)
    held = json.loads(read(left)) if os.path.exists(left) else {}
    return {"status": done.returncode, "said": (done.stdout + done.stderr)[-SAID:], "left": held}


def failures(text: str) -> List[str]:
    """A line for each test that failed."""
    lines = []
    for case in ET.fromstring(text).iter("testcase"):
        for bad in [*case.findall("failure"), *case.findall("error")]:
            folder = os.path.basename(os.path.dirname(case.get("file") or "")) or "contract"
            first = ((bad.get("message") or "").strip().splitlines() or [""])[0]
            lines.append("%s: %s: %s" % (folder, case.get("name"), first[:200]))
    return lines


def main(folder: str) -> int:
    """Prove; returns 1 if something is wrong."""
    request, variables = json.loads(read(folder, "request.json")), environment()
    results = os.path.join(folder, "results")
    asked = (os.environ.get("PROVE") or "all").split()[0]
    wrong = []  # type: List[str]
    found = probed(folder, request, variables)
    files = {"probe.json": write(json.dumps(found, sort_keys=True), results, "probe.json")}
    if "error" in found:
        wrong.append("the probe failed: " + found["error"])
    result = {"schema": SCHEMA, "request": request["digest"], "plan": request["plan"], "asked": asked, "left": {}}
    older = list(sys.version_info[:2]) < request["python"]
    result["why"] = request["why"] or ("Python %d.%d is too old for the tests" % sys.version_info[:2] if older else "")
    whole = not result["why"]
    if whole and not wrong:
        with zipfile.ZipFile(os.path.join(folder, "runner.zip")) as packed:
            packed.extractall(os.path.join(folder, "packages"))
        sys.path.insert(0, os.path.join(folder, "packages"))
        # From the archive: the same that compares on the machine that reads the results.
        from trainwright.prove.differences import differences

        wrong += [str(each) for each in differences(json.loads(read(folder, "plan.json")), found, in_build=True)]
    if whole and not wrong and asked == "all":
        done = tested(folder, request, found, variables)
        result.update(done)
        text = read(results, "smoke.xml") if os.path.exists(os.path.join(results, "smoke.xml")) else ""
        if done["status"] not in (0, 1) or not text:
            wrong.append("the tests were not completed (exit status %d)\n%s" % (done["status"], done["said"]))
        else:
            files["smoke.xml"] = hashlib.sha256(text.encode("utf-8")).hexdigest()
            wrong += failures(text)
    result.update(wrong=wrong, files=files)
    write(json.dumps(result, indent=1, sort_keys=True), results, "results.json")
    print("\n".join(wrong) or "as planned" + (" (%s)" % result["why"] if result["why"] else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

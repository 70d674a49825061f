"""Holds the image that this runs in against its plan, and runs a training job in it as the platform does.

Arguments: the program of the probe, and a request: ``plan`` (its id), ``probes`` and ``secrets`` of the probe,
``expect`` (component, fact and value), ``module`` (of the framework, or nothing), ``gpus`` (how many it must see),
``job`` (folders and files of a job for ``train``, or nothing). It needs nothing but the standard library of Python 3.6
or later. Exit status 1: something differs.

``RESULT`` in the environment names a file for the result, which :mod:`trainwright.push.job_results` reads, and
``IMAGE_DIGEST`` the image by whose digest this was started. The file has less than 4096 bytes, the most that Kubernetes
takes as the message of a container ("Customizing the termination message").
"""

# ruff: noqa: PTH103, PTH110, PTH118, PTH123, UP006, UP031, UP035
# The first PyTorch images have Python 3.6, and the folders are those of the image.

import fnmatch
import hashlib
import json
import os
import subprocess  # the runner is not in the image
import sys
import time
from typing import Any, Dict, List, Tuple

SCHEMA = "trainwright/job-result/1"
SECONDS = 600
TOLD, TOLD_CHARACTERS = 8, 200  # of the result: how many failures, and how much of each
GPUS = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "tensorflow": "import tensorflow; print(len(tensorflow.config.list_physical_devices('GPU')))",
}


def run(argv: List[str], **more: Any) -> Tuple[int, str, str]:
    """Exit status and output of a program."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "universal_newlines": True}
    done = subprocess.run(argv, check=False, timeout=SECONDS, **pipes, **more)
    return done.returncode, done.stdout, done.stderr


def probed(program: str, request: Dict[str, Any]) -> Dict[str, Any]:
    """What the probe finds, or ``{"error": ...}``."""
    asked = {"probes": request["probes"], "secrets": request["secrets"]}
    code, out, error = run([sys.executable, "-", json.dumps(asked)], input=program)
    return {"error": error[-600:]} if code else json.loads(out)


def facts(found: Dict[str, Any], request: Dict[str, Any]) -> List[str]:
    """What the probe finds otherwise than the plan has it."""
    if "error" in found:
        return ["the probe failed: %s" % found["error"]]
    wrong = []
    for each in request["expect"]:
        seen = found["facts"].get(each["component"], {})
        value = seen.get(each["fact"], seen.get("error", "nothing"))
        value = value if isinstance(value, str) else json.dumps(value)
        wanted = str(each["value"])
        if not (fnmatch.fnmatchcase(value, wanted) if "*" in wanted else value == wanted):
            wrong.append("%s: %s should be %s, the image has %s" % (each["component"], each["fact"], wanted, value))
    return wrong


def gpus(request: Dict[str, Any]) -> List[str]:
    """Whether the framework sees fewer GPUs than the container has been given."""
    if not request["gpus"] or request["module"] not in GPUS:
        return []
    code, out, error = run([sys.executable, "-c", GPUS[request["module"]]])
    seen = int(out.split()[-1]) if not code and out.split() else 0
    if seen >= request["gpus"]:
        return []
    return ["%s sees %d of %d GPUs%s" % (request["module"], seen, request["gpus"], ": " + error[-600:] if code else "")]


def job(request: Dict[str, Any], root: str) -> List[str]:
    """Whether `train` runs a script as a job of one host; its files are those of SageMaker."""
    if not request["job"]:
        return []
    for folder in request["job"]["folders"]:
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    for path, text in request["job"]["files"].items():
        with open(os.path.join(root, path), "w") as out:
            out.write(text)
    environment = {key: value for key, value in os.environ.items() if key != "SAGEMAKER_PROGRAM"}
    environment.update(TRAINING_JOB_NAME="smoke", AWS_REGION="us-west-2")
    code, out, error = run(["train"], env=environment)
    said = (out + error)[-2000:]
    # `train` may end with 0 after a failure; what it leaves says how the job ended.
    if code or not os.path.exists(os.path.join(root, "model/report.json")):
        return ["a training job failed (exit status %d): %s" % (code, said)]
    return []


def sealed(request: str, found: Dict[str, Any], passed: List[str], failed: List[str]) -> str:
    """The result as a line of JSON, with a checksum of all that it says."""
    asked = json.loads(request)
    told = ["".join(c if " " <= c <= "~" else "?" for c in " ".join(line.split()))[:TOLD_CHARACTERS] for line in failed]
    content = [found.get(name) for name in ("os", "packages", "distributions")]
    result = {
        "schema": SCHEMA,
        "image": os.environ.get("IMAGE_DIGEST", ""),
        "plan": asked["plan"],
        "request": hashlib.sha256(request.encode("utf-8")).hexdigest(),
        "content": hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest(),
        "gpus": asked["gpus"],
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "passed": passed,
        "failed": told[:TOLD] + (["and %d more" % (len(told) - TOLD)] if told[TOLD:] else []),
    }
    digest = hashlib.sha256(json.dumps(result, sort_keys=True).encode("utf-8")).hexdigest()
    return json.dumps(dict(result, digest=digest), sort_keys=True)


def main(program: str, text: str, root: str = "/opt/ml") -> int:
    """Print each difference, leave the result, and return the exit status."""
    request = json.loads(text)
    found = probed(program, request)
    asked = [
        ("%d facts are as planned" % len(request["expect"]), facts(found, request)),
        ("%s sees %d GPUs" % (request["module"], request["gpus"]) if request["gpus"] else "", gpus(request)),
        ("a training job runs" if request["job"] else "", job(request, root)),
    ]
    wrong = [line for _, lines in asked for line in lines]
    for line in wrong:
        print(line)
    print("%d differences, %d facts as planned" % (len(wrong), len(request["expect"])) if wrong else "as planned")
    if os.environ.get("RESULT"):
        with open(os.environ["RESULT"], "w") as out:
            out.write(sealed(text, found, [name for name, lines in asked if name and not lines], wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Runs inside an environment of a SageMaker SDK: takes a program or an estimator per line, returns what it would send.

Nothing of the SDK is replaced but what tells its makers of every job. Calls are looked at where boto3 makes them. IAM's
simulation of policies, which moto does not have, says yes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
import warnings
from functools import cache
from importlib import import_module
from typing import Any

import boto3
import botocore.client

sent: list[dict[str, Any]] = []
uploaded: list[str] = []
original = botocore.client.BaseClient._make_api_call


def call(self: Any, name: str, params: dict[str, Any]) -> Any:
    if name == "SimulatePrincipalPolicy":
        return {"EvaluationResults": [{"EvalActionName": a, "EvalDecision": "allowed"} for a in params["ActionNames"]]}
    if name in ("CreateTrainingJob", "CreateHyperParameterTuningJob"):
        sent.append(json.loads(json.dumps(params, default=str)))
    if name == "PutObject":
        uploaded.append(f"s3://{params['Bucket']}/{params['Key']}")
    return original(self, name, params)


botocore.client.BaseClient._make_api_call = call  # type: ignore[assignment]


def silence() -> None:
    """No word to the SDK's makers. Their own switch is a file of settings, which costs a second at every use."""
    found = 0
    for name in ("sagemaker.telemetry.telemetry_logging", "sagemaker.core.telemetry.telemetry_logging"):
        with contextlib.suppress(ImportError):
            module = import_module(name)
            assert callable(module._requests_helper)
            module._requests_helper = lambda *_: None
            found += 1
    assert found, "this SDK tells its makers in another way"


def program(source: str, folder: str) -> None:
    os.chdir(folder)
    exec(compile(source, "generated.py", "exec"), {"__name__": "__main__"})


@cache
def session() -> Any:
    import sagemaker

    return sagemaker.Session(boto3.Session(region_name="us-west-2"), default_bucket="bucket")


def hyperparameters(framework: str, arguments: dict[str, Any]) -> dict[str, str]:
    """What a framework's estimator of SDK 2 makes of its arguments."""
    module = import_module(f"sagemaker.{framework}")
    kind = {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}[framework]
    made: dict[str, str] = getattr(module, kind)(**arguments, sagemaker_session=session()).hyperparameters()
    return made


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    sent.clear()
    uploaded.clear()
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if asked["do"] == "program":
                program(asked["source"], asked["folder"])
                return {"sent": list(sent), "uploaded": list(uploaded), "said": told.getvalue()}
            return {"hyperparameters": hyperparameters(asked["framework"], asked["arguments"])}
    except BaseException as failed:
        return {"error": f"{type(failed).__name__}: {failed}", "trace": traceback.format_exc()}


answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever an SDK prints past sys.stdout is no answer
silence()
for line in sys.stdin:
    answers.write(json.dumps(answer(json.loads(line))) + "\n")
    answers.flush()

"""What ``estimator`` finds out about an image that the engine has."""

from __future__ import annotations


def test_an_image_of_the_engine_is_checked_by_its_labels(program, cpu_image):
    words = ("--image", cpu_image, "--entry-point", "examples/mpi/train.py", "--check-only", "--json")
    job = ("--instance-type", "ml.m5.xlarge", "--instance-count", "2")
    mpi = '{"mpi": {"enabled": true, "processes_per_host": 2}}'
    done = program("estimator", *words, *job, "--distribution", mpi)
    assert done.code == 0, done.err
    image = done.json["image"]
    assert (image["origin"], image["framework"], image["cuda"]) == ("labels", "pytorch", "cpu")
    assert {"openmpi", "ssh", "mpi4py", "sagemaker-toolkit"} <= set(image["components"])
    # The library that this launcher needs is not in the image, and the labels say so.
    wanting = program(
        "estimator", *words, *job, "--distribution", '{"smdistributed": {"dataparallel": {"enabled": true}}}'
    )
    assert wanting.code == 1, "findings, not a wrong request"
    assert "TW243" in {each["code"] for each in wanting.json["findings"]}

"""Where the jobs of an image run (``--for``), and the components that follow from it.

SageMaker's training jobs are started by its toolkit, inside the image. Elsewhere an image has no part in starting: the
manifest or script of the job names the command (``torchrun``, ``hyperpodrun``, ``mpirun``). AWS's own images are of
these two kinds as well: the stages ``sagemaker`` and ``runtime`` of ``docker/pytorch/Dockerfile.cuda``
(aws/deep-learning-containers, e0ecedea, 2026-08-21).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trainwright.catalog.image_line import Selection

SAGEMAKER = "sagemaker"
DESTINATIONS = {
    SAGEMAKER: "training jobs of SageMaker",
    "hyperpod": "SageMaker HyperPod, on EKS or Slurm",
    "ec2": "EC2, EKS, ECS and ParallelCluster",
}
# Only the stage `sagemaker` of AWS's Dockerfiles has them, `ec2` has none (master f06ada0e, 2026-08-19,
# pytorch/training/docker/1.13/py3/cu117 and others); Boost is there for the data parallel library.
OF_SAGEMAKER = frozenset({"sagemaker-toolkit", "smdistributed-dataparallel", "smdistributed-modelparallel", "boost"})
CLUSTER = "cluster"  # the component that has the toolkit's place elsewhere


def settle(chosen: Mapping[str, Selection], destination: str, added: Collection[str]) -> dict[str, Selection]:
    """The components of an image for its destination.

    Args:
        chosen: those of the image line, with what the request adds and removes.
        destination: a key of :data:`DESTINATIONS`.
        added: what the request names itself: it is not removed in silence, and rules refuse it.
    """
    if destination == SAGEMAKER:
        return dict(chosen)
    kept = {name: selection for name, selection in chosen.items() if name not in OF_SAGEMAKER or name in added}
    return kept | {CLUSTER: Selection(provider=destination, version="1")}

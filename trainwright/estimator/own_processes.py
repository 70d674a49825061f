"""Scripts that use all GPUs of a host although the job starts only one process there."""

from __future__ import annotations

from trainwright.core.errors import RequestError
from trainwright.estimator.subject import Subject

# One process on all GPUs: TensorFlow's guide to distributed training, PyTorch's DataParallel, Keras's multi_gpu_model.
_ONE_PROCESS = (
    *("MirroredStrategy", "MultiWorkerMirroredStrategy", "CentralStorageStrategy"),
    *("DataParallel", "multi_gpu_model"),
)
# What accelerate's guide to big models lists for device_map; it divides one model among the GPUs.
_DIVIDED = r"^(auto|balanced|balanced_low_0|sequential)$"
# Launchers in a subprocess, as one text or as its first words.
_LAUNCHED = (
    r"(^|[\s/])(torchrun|deepspeed|mpirun|horovodrun)(\s|$)|\btorch\.distributed\.(run|launch)\b|accelerate launch"
)


def uses_all_gpus(subject: Subject) -> bool:
    """Return whether the entry point uses all GPUs of a host by itself, as far as the names in it say.

    False if it cannot be read.
    """
    from trainwright.preflight.subjects import subjects
    from trainwright.script.known import LIGHTNING
    from trainwright.script.script_facts import ScriptFacts

    job = subject.job
    if job.entry_point is None:
        return False
    try:
        found = subjects([job.entry_point], str(subject.folder / (job.source_dir or ""))).found
    except RequestError:
        return False  # preflight says why it cannot be read
    for each in found:
        code = ScriptFacts(each.script)
        divided = code.mentions("device_map") and code.says(_DIVIDED)
        lightning = code.imports(*LIGHTNING) is not None and code.mentions("devices", "gpus")
        launched = (each.started is not None and each.started.distribution) or code.says(_LAUNCHED)
        if code.mentions(*_ONE_PROCESS) or divided or lightning or launched or code.spawns is not None:
            return True
    return False

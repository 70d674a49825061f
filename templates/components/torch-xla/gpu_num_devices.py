"""GPU_NUM_DEVICES for torch/XLA, from the GPUs that a process sees; an environment that names it is left alone.

SageMaker's launcher for torch/XLA sets the variable, other ways to start a script (local mode among them) do not, and
then the compiler finds no device. A ``.pth`` file runs :func:`export` whenever Python starts, so it costs one look into
``/dev`` and never fails.
"""

import os
import re

VARIABLE = "GPU_NUM_DEVICES"


def visible(environment, devices="/dev"):
    """How many GPUs CUDA would give this process: the device files, or as many of them as CUDA_VISIBLE_DEVICES says."""
    try:
        present = sum(1 for name in os.listdir(devices) if re.match(r"nvidia\d+$", name))  # noqa: PTH208 - cheap at start
    except OSError:
        return 0
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return present
    names = [name.strip() for name in chosen.split(",")]
    # CUDA stops reading at the first name that stands for no device.
    valid = next((index for index, name in enumerate(names) if name in ("", "-1")), len(names))
    return min(present, valid)


def export(environment=None, devices="/dev"):
    """Set the variable where it is unset and there are GPUs."""
    environment = os.environ if environment is None else environment
    if not environment.get(VARIABLE):
        count = visible(environment, devices)
        if count:
            environment[VARIABLE] = str(count)

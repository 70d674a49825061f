"""A small SageMaker on one machine: a training job, run in an image as the platform would run it.

``job`` says what is rehearsed, ``files`` writes what the platform writes, ``network`` and ``hosts`` make the hosts,
``observer`` looks on from inside of them, ``watch`` follows the job to its end, ``facts`` holds what was seen,
``verdict`` and ``causes`` judge it, ``artifacts`` keeps what the job made, ``leftovers`` clears what a kill left, and
``run`` is the whole of it.
"""

"""Image tests can fail: faults planted in thin images on top of the CPU image, and which tests see them.

Faults that would hide each other are in images of their own. Tests that fail beside the one that a fault is meant for
are named as well, so that the sets are exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import image_tests
from trainwright.core.runner import run
from trainwright.engine.engine import find_client
from trainwright.prove import probe, smoke

SITE = "/opt/venv/lib/python3.11/site-packages"

# What the image holds and how it starts; jobs still run.
CONTENTS = f"""\
RUN ssh-keygen -A && mkdir -p /root/.ssh && ssh-keygen -q -N '' -t ed25519 -f /root/.ssh/id_ed25519 \\
 && cat /root/.ssh/id_ed25519.pub >> /root/.ssh/authorized_keys
RUN touch /root/.netrc && mkdir -p /root/.aws /mnt/left && printf '[default]\\naws_secret_access_key = x\\n' > /root/.aws/credentials
RUN mkdir -p /opt/ml/code && echo x > /opt/ml/code/x.py
RUN cp /lib/x86_64-linux-gnu/libibverbs.so.1 /usr/local/lib/libcuda.so.1 \\
 && cp /lib/x86_64-linux-gnu/libmpi.so.40 /usr/local/lib/libmpi.so.40 && ldconfig
RUN rm -r {SITE}/jmespath* && chmod 755 /tmp && : > /licenses/components.txt
RUN rm /opt/metis/lib/libmetis.so /opt/metis/bin/graphchk && rm -f /opt/metis/include/metis.h /etc/ld.so.conf.d/*metis*
RUN find {SITE}/sagemaker_training -name '*.pyc' -delete
RUN echo 'StrictHostKeyChecking yes' > /root/.ssh/config && sed -i 's/^UsePAM yes/UsePAM no/' /etc/ssh/sshd_config
ENV FI_PROVIDER=efa API_TOKEN=x PROXY=http://me:secret@proxy LANG=C
VOLUME /opt/ml/input
"""

# How jobs run: each of these ends some of them.
JOBS = f"""\
RUN chmod -x /opt/venv/bin/train /usr/sbin/sshd && printf '#!/bin/sh\\nexit 1\\n' > /usr/local/bin/pip3 && chmod +x /usr/local/bin/pip3
RUN rm /opt/venv/bin/pip3 /opt/venv/bin/torchrun && rm -rf {SITE}/inotify_simple* {SITE}/mpi4py
RUN printf '#!/bin/sh\\necho no' > /opt/metis/bin/gpmetis && echo text > $(python3 -c 'import gethostname; print(gethostname.__file__)')
RUN printf '#!/bin/sh\\nexec /usr/bin/mpirun --allow-run-as-root "$@"\\n' > /usr/local/bin/mpirun && chmod +x /usr/local/bin/mpirun
ENV OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_ALLOW_RUN_AS_ROOT=0
ENTRYPOINT train
"""

# Programs of MPI and SSH that lie about how they ended.
LAUNCHERS = """\
RUN mv /usr/bin/orted /usr/bin/orted.gone && printf '#!/bin/sh\\n/usr/bin/mpirun "$@" >/dev/null 2>&1\\nexit 0\\n' > /usr/local/bin/mpirun \\
 && chmod +x /usr/local/bin/mpirun
RUN rm /usr/lib/openssh/root-key
RUN printf '#!/bin/sh\\n"$@"\\nexit 0\\n' > /usr/local/bin/training-init && rm -r /opt/ml
USER nobody
"""

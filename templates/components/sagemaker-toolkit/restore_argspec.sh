#!/bin/sh
# restore_argspec.sh SITE-PACKAGES: `sagemaker_training.functions.matching_args`, which framework containers call, works with
# Python 3.11 and newer. It makes an inspect.ArgSpec, which Python 3.11 removed; a named tuple of the same fields does.
set -e
for file in "$@"; do
    file=$file/sagemaker_training/functions.py
    if grep -q 'return inspect\.ArgSpec(' "$file"; then
        sed -i -e 's/^import inspect$/import collections\nimport inspect/' \
            -e 's/return inspect\.ArgSpec(/return collections.namedtuple("ArgSpec", "args varargs keywords defaults")(/' "$file"
    fi
done

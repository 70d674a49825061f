#!/bin/sh
# build_against.sh PYTHON FOLDER: wheels of the source packages in /mnt/requirements.txt, compiled against the packages of
# the image that are named below /mnt/against (PyTorch, CUDA's headers). These are links into uv's cache, so that a stage
# does not hold some gigabytes a second time; they lead somewhere only while this step runs. AMEND_SETUP is what sed does to
# their setup.py.
set -e
python=$1 made=$2 against=/tmp/against
/opt/tools/uv venv --quiet --python "$python" $against
cat /mnt/against/*.txt > /tmp/against.txt
set --
for folder in /mnt/against/*/; do set -- "$@" --find-links "$folder"; done
/opt/tools/uv pip install --quiet --python $against --link-mode symlink --no-deps --require-hashes "$@" -r /tmp/against.txt
site=$(echo $against/lib/python3*/site-packages)
PYTHONPATH=$site
CPATH=$(echo "$site"/nvidia/*/include | tr ' ' :)
LD_LIBRARY_PATH=$(echo "$site"/nvidia/*/lib | tr ' ' :)
LIBRARY_PATH=$LD_LIBRARY_PATH
export PYTHONPATH CPATH LD_LIBRARY_PATH LIBRARY_PATH
# In a folder of a fixed name: compilers write the paths of sources into what they make.
/opt/tools/pip download --quiet --no-deps --no-build-isolation --require-hashes --find-links /mnt/wheels -r /mnt/requirements.txt \
    -d sources
for archive in sources/*.tar.gz; do
    unpacked=${archive#sources/}
    tar --no-same-owner -xzf "$archive"
    [ -z "${AMEND_SETUP:-}" ] || sed -i "$AMEND_SETUP" "${unpacked%.tar.gz}/setup.py"
    /opt/tools/pip wheel --quiet --no-index --no-deps --no-build-isolation -w "$made" "./${unpacked%.tar.gz}"
    rm -rf "${unpacked%.tar.gz}"
done
rm -rf $against /tmp/against.txt sources

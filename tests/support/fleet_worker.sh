#!/bin/sh
# Builds nothing: notes when it starts and ends, and then does as the file of its name in $FLEET says, once for each line
# of it. Called as `build` is, with the name of a line as its version, or directly with --name.
echo "$*" >>"$FLEET/argv"
name=
while [ $# -gt 0 ]; do
    case $1 in
    --name | --version) name=$2 && shift ;;
    --stages) name=$2 && shift ;;
    esac
    shift
done
[ -e "$FLEET/$name" ] && does=$(head -n 1 "$FLEET/$name") && sed -i 1d "$FLEET/$name"
echo "start $name" >>"$FLEET/events"
trap 'echo "told $name" >>"$FLEET/events"; echo "interrupted" >&2; exit 5' TERM
echo "[step of $name] RUN something" >&2
# shellcheck disable=SC2086
set -- ${does:-built}
case $1 in
hang) # until $FLEET/go is there, or it is told to end
    while [ ! -e "$FLEET/go" ]; do sleep 0.05; done
    ;;
deaf) # is told, and does not listen
    trap '' TERM
    while [ ! -e "$FLEET/go" ]; do sleep 0.05; done
    ;;
fail)
    echo "end $name" >>"$FLEET/events"
    echo "{\"schema\": \"trainwright/failure/1\", \"error\": \"$3\", \"message\": \"$name is wrong\", \"remedy\": \"fix $name\"}"
    exit "$2"
    ;;
die)
    echo "last words" >&2
    kill -9 $$
    ;;
silent)
    echo "end $name" >>"$FLEET/events"
    exit 0
    ;;
esac
echo "end $name" >>"$FLEET/events"
echo "{\"image_id\": \"sha256:$name\", \"tags\": [\"trainwright/x:$name\"], \"size_bytes\": 1234567}"

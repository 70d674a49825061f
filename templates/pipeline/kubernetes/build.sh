# In BuildKit's image: builds what lies in /workspace. The image is proven by a step of its own first, and an image that is not
# what its plan says goes nowhere; what was found is in the log, as lines that `run.sh` takes out of it. The image is pushed
# by its digest alone, which becomes the message of the container; stages are built for the cache, and make no image.
set -eu
set -- --local context="/workspace/contexts/$TARGET" --local dockerfile="/workspace/contexts/$TARGET"
while IFS= read -r word; do
  set -- "$@" "$word"
done < "/workspace/options/$JOB"
first=
for tag in $CACHE_TAGS; do
  [ -n "$CACHE" ] || break
  set -- "$@" --import-cache "type=registry,ref=$CACHE:$tag"
  first=${first:-$tag}
done
if [ -n "$REPOSITORY" ]; then
  buildctl-daemonless.sh build --frontend dockerfile.v0 "$@" --opt target=proof --output type=local,dest=/tmp/proof
  tar -czf - -C /tmp/proof . | base64 | sed 's/^/proof: /'
  cat /tmp/proof/said
  [ -e /tmp/proof/passed ]
  set -- "$@" --output "type=image,name=$REPOSITORY,push=true,push-by-digest=true,name-canonical=true"
fi
[ -z "$first" ] || set -- "$@" --export-cache "type=registry,ref=$CACHE:$first,$CACHE_EXPORT"
buildctl-daemonless.sh build --frontend dockerfile.v0 "$@" --metadata-file /tmp/metadata.json
if [ -n "$REPOSITORY" ]; then
  sed -n 's/.*"containerimage.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' /tmp/metadata.json > /dev/termination-log
fi

# In BuildKit's image: builds what lies in /workspace. The image is pushed by its digest alone, which becomes the message
# of the container; stages are built for the cache, and make no image.
set -eu
set -- --local context="/workspace/contexts/$TARGET" --local dockerfile="/workspace/contexts/$TARGET"
while IFS= read -r word; do
  set -- "$@" "$word"
done < "/workspace/options/$JOB"
first=
for tag in $CACHE_TAGS; do
  [ -n "$CACHE" ] || break
  set -- "$@" --import-cache "type=registry,ref=$CACHE:$tag"
  [ -n "$first" ] || set -- "$@" --export-cache "type=registry,ref=$CACHE:$tag,$CACHE_EXPORT"
  first=$tag
done
if [ -n "$REPOSITORY" ]; then
  set -- "$@" --output "type=image,name=$REPOSITORY,push=true,push-by-digest=true,name-canonical=true"
fi
buildctl-daemonless.sh build --frontend dockerfile.v0 "$@" --metadata-file /tmp/metadata.json
if [ -n "$REPOSITORY" ]; then
  sed -n 's/.*"containerimage.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' /tmp/metadata.json > /dev/termination-log
fi

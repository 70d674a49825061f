#!/bin/sh
# fetch FILE SHA256 URL...: an archive into /src, from the first place that has the right bytes.
# Places: the folder and the mirror of the site, where it has them, then the URLs in their order.
# SHA256 may be -: nobody published it; the first place that answers is taken, and the checksum is printed.
# Exit code 88: no place has the right bytes; the last lines say what each of them answered.
file=$1 sha256=$2
shift 2
base='' own=0
if [ -s /mnt/artifacts ]; then
    base=$(sed 's|/*$||' /mnt/artifacts) own=1
    set -- "$base/$file" "$@"
    [ "$sha256" = - ] || { set -- "$base/$(echo "$sha256" | cut -c1-2)/$sha256/$file" "$@"; own=2; }
fi
netrc=
[ -s /mnt/netrc ] && netrc="--netrc-optional --netrc-file /mnt/netrc"
said=/mnt/fetch-said
: > $said
mkdir -p /src && cd /src || exit

# Whether the file that was had is the right one; one that is not is removed.
right() {
    found=$(sha256sum < "$file" | cut -d' ' -f1)
    [ "$found" = "$sha256" ] && return
    [ "$sha256" = - ] && echo "fetch: $file has the sha256 $found, which nothing was compared with" && return
    why="has the sha256 $found"
    rm -f "$file"
    return 1
}

# curl by itself asks again where a server is busy; where the connection breaks off, it is asked again here.
# The URL may hold a password, so it is in no argument and in no output. A netrc knows hosts alone, so over plain http
# its passwords go to the site's own mirror only; https never leads back to http.
download() {
    login=$netrc redirects=http,https
    case $1 in
        https:*) redirects=https ;;
        *) [ "$own" -gt 0 ] || login= ;;
    esac
    for pause in 1 0; do
        : > "$file"
        why=$(printf 'url = "%s"\n' "$(printf %s "$1" | sed 's/[\\"]/\\&/g')" \
            | curl --config - --output "$file" --silent --show-error --fail --location --globoff \
                --proto =http,https --proto-redir "=$redirects" $login \
                --connect-timeout 10 --speed-limit 1024 --speed-time 30 \
                --retry 2 --retry-delay 1 --retry-max-time 20 2>&1)
        code=$?
        case $code in
            0) return 0 ;;
            18 | 52 | 55 | 56) sleep $pause ;;
            *) break ;;
        esac
    done
    why=$(printf '%s\n' "$why" | grep '^curl: ' | tail -n 1 | tr -d '\r')
    why=${why:-curl ended with $code}
    rm -f "$file"
    # Neither a missing curl nor a full disk is the source's fault.
    [ "$code" = 127 ] && echo "fetch: there is no curl in this stage" && exit 127
    [ "$code" = 23 ] && echo "fetch: cannot write /src/$file (no space left on device?): $why" && exit 23
    return 1
}

if [ -f "/mnt/archives/$file" ]; then
    cp "/mnt/archives/$file" "$file" || exit
    right && echo "fetch: $file from the build context" && exit 0
    echo "fetch: tried archives/$file of the build context: $why" >> $said
fi
for url in "$@"; do
    shown=$(printf '%s' "$url" | sed 's|://[^/]*@|://***@|; s|?.*|?***|')
    # The path of a mirror may hold a token; what comes behind it is ours.
    [ "$own" -gt 0 ] && shown=$(printf '%s' "$shown" | sed 's|^\([^:]*://[^/]*\)/.*|\1/…|')${url#"$base"}
    if download "$url" && right; then
        echo "fetch: $file from $shown"
        exit 0
    fi
    printf 'fetch: tried %s: %s\n' "$shown" "$why" >> $said
    own=$((own - 1))
done
echo "fetch: no place has $file with the sha256 $sha256"
cat $said
exit 88

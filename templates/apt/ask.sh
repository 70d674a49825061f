#!/bin/sh
# ask QUESTIONS: puts the questions of a folder to apt and leaves the answers in /answer.
#
# A question is a folder, with any of these files:
#   install     names of packages: which packages would apt install for them?
#   named       packages that a user named, as NAME or NAME=VERSION: are there such packages?
#   also        "NAME VERSION" on a line each: those that the archive has, in that version or the newest
#   download    name:architecture=version on a line each: fetch these packages
#   pool        "PACKAGE FILE SHA256" on a line each: fetch these files of the archive's pool
# Its answer is a folder of the same name:
#   records     what apt's index says of each package that it would install, or was to fetch
#   files/      what was fetched
#   failed      what could not be had, and what apt said of it
# And beside the answers:
#   installed   what the image has: name, version, architecture
#   names       every package that apt knows, if a user named some
#   known       every version that apt knows of these packages, and of those of the answers
set -eu
questions=$1
# What tools/apt/apt-run does in a build step.
rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml*.list
set --
if [ -e /mnt/apt-sources ]; then
    set -- -o Dir::Etc::SourceList=/mnt/apt-sources -o Dir::Etc::SourceParts=/dev/null
fi
mkdir -p /mnt/lists/partial /mnt/cache/archives/partial /answer
set -- "$@" -o Dir::State::Lists=/mnt/lists -o Dir::Cache=/mnt/cache -o APT::Sandbox::User=root
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
apt-get "$@" -q update

# apt's own name of a package's file: name_version_architecture.deb, an epoch's colon as %3a.
as_pins() {
    sed -n "s|^'[^']*' \([^ _]*\)_\([^ _]*\)_\([^ _]*\)\.deb .*|\1:\3=\2|p" | sed 's/%3a/:/g; s/:all=/=/' | sort -u
}

# The versions that the archive has of a package, the newest first.
versions_of() {
    name=$1
    shift
    apt-cache "$@" madison "$name" | sed -n 's/^[^|]*| *\([^ |]*\) *|.* Packages$/\1/p'
}

fetch_from_pool() {
    archive=$(cat /mnt/apt-sources /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null \
        | sed -n -e 's/^deb \(\[.*\] *\)\{0,1\}\([^ ]*\) .*/\2/p' -e 's/^URIs: *\([^ ]*\).*/\1/p' | head -n 1)
    while read -r package file sha256; do
        case $package in lib?*) initial=${package%"${package#????}"} ;; *) initial=${package%"${package#?}"} ;; esac
        found=
        : > /mnt/tried
        for area in main contrib non-free universe; do
            url=$archive/pool/$area/$initial/$package/$file
            /usr/lib/apt/apt-helper "$@" download-file "$url" "$file" "SHA256:$sha256" > /mnt/said 2>&1 && found=1 && break
            rm -f "$file"
            echo "$url: $(grep '^E:' /mnt/said | tail -n 1)" >> /mnt/tried
        done
        [ -n "$found" ] || { echo "$file"; sed 's/^/ /' /mnt/tried; } >> "$answer/failed"
    done < "$question/pool"
}

dpkg-query -W -f '${Package} ${Version} ${Architecture} ${db:Status-Abbrev}\n' \
    | sed -n 's/^\(.*\) ii *$/\1/p' > /answer/installed
sed 's/ .*//' /answer/installed > /mnt/names
for question in "$questions"/*; do
    [ -d "$question" ] || continue
    answer=/answer/${question##*/}
    mkdir -p "$answer/files"
    : > "$answer/records"
    cd "$answer/files"
    if [ -s "$question/install" ]; then
        apt-get "$@" --print-uris -y --no-install-recommends install $(cat "$question/install") > /mnt/uris
        as_pins < /mnt/uris > /mnt/pins
        [ ! -s /mnt/pins ] || apt-cache "$@" show $(cat /mnt/pins) >> "$answer/records"
        sed 's/[:=].*//' /mnt/pins >> /mnt/names
    fi
    if [ -s "$question/named" ]; then
        apt-cache "$@" pkgnames | sort > /answer/names
        sed 's/ /\n/g' "$question/named" | sed 's/=.*//' >> /mnt/names
        # apt-get takes a name that it does not know for a pattern, if there is a dot in it.
        for package in $(cat "$question/named"); do
            if ! grep -qxF "${package%%=*}" /answer/names; then
                echo "$package" >> "$answer/failed"
            else
                apt-get "$@" --print-uris -y --no-install-recommends install "$package" > /mnt/said 2>&1 \
                    || { echo "$package"; sed -n 's/^E:/ E:/p' /mnt/said; } >> "$answer/failed"
            fi
        done
        # The questions of the stages would end with apt's first error, which names less.
        if [ -e "$answer/failed" ]; then break; fi
    fi
    if [ -s "$question/also" ]; then
        while read -r name version; do
            versions=$(versions_of "$name" "$@")
            [ -n "$versions" ] || continue
            echo "$versions" | grep -qxF "$version" || version=$(echo "$versions" | head -n 1)
            apt-cache "$@" show "$name=$version" >> "$answer/records"
            echo "$name" >> /mnt/names
        done < "$question/also"
    fi
    if [ -s "$question/download" ]; then
        apt-cache "$@" show $(cat "$question/download") >> "$answer/records" 2> /dev/null || :
        # One after the other where not all are there, so each that is missing is named.
        apt-get "$@" -q download $(cat "$question/download") 2>&1 || while read -r package; do
            apt-get "$@" -q download "$package" > /mnt/said 2>&1 \
                || { echo "$package"; sed 's/^/ /' /mnt/said; } >> "$answer/failed"
        done < "$question/download"
    fi
    [ ! -s "$question/pool" ] || fetch_from_pool "$@"
done
apt-cache "$@" madison $(sort -u /mnt/names) > /answer/known 2> /dev/null
chmod -R a+rX /answer

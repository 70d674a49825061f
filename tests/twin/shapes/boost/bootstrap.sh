#!/bin/sh
# Makes b2 and keeps what it was told, as Boost's does.
prefix=/usr/local libraries=all
for word; do
    case $word in
        --prefix=*) prefix=${word#*=} ;;
        --with-libraries=*) libraries=${word#*=} ;;
        --with-toolset=gcc | --with-python=* | --without-icu | --with-python-version=*) ;;
        *) echo "unknown option $word" >&2; exit 1 ;;
    esac
done
command -v g++ > /dev/null || { echo "Failed to build Boost.Build build engine" >&2; exit 1; }
printf 'prefix=%s\nlibraries=%s\n' "$prefix" "$libraries" > project-config.jam
cp tools/build/b2.sh b2 && chmod 755 b2
echo "Bootstrapping is done. To build, run: ./b2"

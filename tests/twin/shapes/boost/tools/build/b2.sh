#!/bin/sh
# b2 [install] [--prefix=] [--with-X]... [link=shared] ...: compiles the libraries that were asked for.
set -e
. ./project-config.jam
known="atomic chrono context coroutine date_time filesystem program_options random regex serialization system thread"
asked= goal=stage
for word; do
    case $word in
        install | stage) goal=$word ;;
        --prefix=*) prefix=${word#*=} ;;
        --with-*) asked="$asked ${word#--with-}" ;;
        -j* | -d* | -q | --layout=* | --build-dir=* | --stagedir=* | --no-cmake-config | --ignore-site-config) ;;
        variant=* | link=* | threading=* | runtime-link=* | toolset=* | cxxflags=* | linkflags=* | debug-symbols=*) ;;
        address-model=* | install) ;;
        *) echo "error: unknown option $word" >&2; exit 1 ;;
    esac
done
[ -n "$asked" ] || { [ "$libraries" = all ] && asked=$known || asked=$(echo "$libraries" | tr , ' '); }
[ $goal = install ] || prefix=$PWD/stage
mkdir -p "$prefix/lib" "$prefix/include"
[ $goal = stage ] || cp -R boost "$prefix/include/"
for library in $asked; do
    case " $known " in *" $library "*) ;; *) echo "error: wrong library name '$library'" >&2; exit 1 ;; esac
    file=libboost_$library.so.@VERSION@
    g++ -shared -fPIC -O2 -I. -DLIBRARY="\"$library\"" -DSYMBOL="boost_${library}_version" -Wl,-soname,$file \
        -o "$prefix/lib/$file" libs/library.cpp
    ln -sf $file "$prefix/lib/libboost_$library.so"
    echo "common.copy $prefix/lib/$file"
done
echo "...updated targets..."

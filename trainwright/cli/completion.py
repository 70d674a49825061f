"""Completion of a command line: what may be in the place of its last word.

The scripts of the shells call ``PROGRAM __complete WORD...`` and offer the lines that it prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import FieldInfo, fields

from trainwright.cli.flags import Shelf, Verb, kind_of
from trainwright.cli.values import values_of

_WORDS = ("help", "version")

# $1 is the program as it was typed. A checkout whose environment is not made yet completes nothing, as its first run
# installs packages. Readline completes what is behind the last : or =, so that much is cut from each offer.
BASH = r"""_trainwright() {
    local line="${COMP_LINE:0:COMP_POINT}" words word prefix
    read -ra words <<<"$line"
    if [[ $line == *[[:space:]] ]]; then words+=(""); fi
    if [[ $1 == */invoke && ! -e ${1%/*}/.venv/requirements.txt ]]; then return; fi
    word="${words[${#words[@]} - 1]}"
    mapfile -t COMPREPLY < <("$1" __complete "${words[@]:1}" 2>/dev/null)
    prefix="${word%"${word##*[:=]}"}"
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
complete -o default -F _trainwright invoke trainwright ./invoke
"""
ZSH = r"""#compdef invoke trainwright ./invoke
_trainwright() {
    local -a found
    if [[ $words[1] == */invoke && ! -e ${words[1]:h}/.venv/requirements.txt ]]; then return 1; fi
    found=("${(@f)$("$words[1]" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n $found[1] ]]; then compadd -Q -- "${found[@]}"; else _files; fi
}
compdef _trainwright invoke trainwright ./invoke
"""
# Without -f, fish would offer the files of the folder beside verbs.
FISH = r"""function __trainwright_complete
    set -l words (commandline -opc) (commandline -ct)
    if string match -q '*/invoke' -- $words[1]; and not test -e (dirname $words[1])/.venv/requirements.txt
        return
    end
    set -l found ($words[1] __complete $words[2..-1] 2>/dev/null | string match -r '.+')
    if test (count $found) -gt 0
        printf '%s\n' $found
        return
    end
    set -l flag (string match -r -- '^--[^=]*=' $words[-1])
    set -l typed (string replace -- "$flag" '' $words[-1])
    for path in $typed*
        test -d $path; and set path $path/
        echo "$flag$path"
    end
end
complete -c invoke -f -a '(__trainwright_complete)'
complete -c trainwright -f -a '(__trainwright_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def candidates(words: Sequence[str], shelf: Shelf) -> list[str]:
    """What may be in the place of the last word, and begins as it does.

    Args:
        words: what follows the name of the program; the last one is what is typed of a word, and may be empty.
        shelf: the verbs.

    Returns:
        Whole words. Nothing if any text may follow, as for a file.
    """
    *before, last = words or ("",)
    if not before or before == ["help"]:
        return [name for name in (*shelf.names, *(_WORDS if not before else ())) if name.startswith(last)]
    verb = shelf.find(before[0])
    if verb is None or "--" in before:
        return []
    flags = {f"--{field.encode_name.replace('_', '-')}": field for field in fields(verb.record) if not field.required}
    flag, equals, value = last.partition("=")
    if equals and flag in flags:
        return [f"{flag}={each}" for each in _values(verb, flags[flag], value)]
    if before[-1] in flags and kind_of(flags[before[-1]].type) is not bool:
        return _values(verb, flags[before[-1]], last)
    if last.startswith("-"):
        given = {word.partition("=")[0] for word in before}
        free = [flag for flag, field in flags.items() if flag not in given or kind_of(field.type) is list]
        return [flag for flag in (*free, "--help") if flag.startswith(last)]
    bare = [field for field in fields(verb.record) if field.required or field.name == verb.record.bare]
    return [value for field in bare for value in _values(verb, field, last)]


def _values(verb: Verb[Any], field: FieldInfo, typed: str) -> list[str]:
    """The values of a flag that go on from what is typed; behind a comma, further names of a list."""
    told = verb.record.described[field.name]
    first, comma, last = typed.rpartition(",")
    begun = first + comma if told.metavar == "NAMES" else ""
    taken = begun.split(",")
    rest = last if begun else typed
    return [f"{begun}{value}" for value in values_of(told.values) if value.startswith(rest) and value not in taken]

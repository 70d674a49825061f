#!/bin/sh
# verify.sh ARCHIVE FINGERPRINT: whether ARCHIVE.sig is a signature of ARCHIVE by the key of that fingerprint, which
# aws-efa-installer.key holds. The fingerprint is what is trusted: the key comes from where the archive does. Exit
# code 88: it is not.
archive=$1 fingerprint=$2
gpgv=$(command -v gpgv || command -v gpgv2) || { echo "verify: there is no gpgv in this stage" >&2; exit 127; }
keyring=$(mktemp) && trap 'rm -f "$keyring"' EXIT
# Base images have gpgv, which takes no armoured keys, and not gpg, which would take the armour off.
if grep -q '^-----BEGIN PGP PUBLIC KEY BLOCK-----' aws-efa-installer.key; then
    tr -d '\r' < aws-efa-installer.key | sed -e '1,/^$/d' -e '/^[=-]/d' | base64 -d > "$keyring"
else
    cat aws-efa-installer.key > "$keyring"
fi
said=$("$gpgv" --status-fd 1 --keyring "$keyring" "$archive.sig" "$archive" 2>&1)
if printf '%s\n' "$said" | grep -Eq "^\[GNUPG:\] VALIDSIG ($fingerprint .*|.* $fingerprint)\$"; then
    echo "verify: $archive is signed by $fingerprint"
else
    printf '%s\n' "$said"
    echo "verify: $archive is not signed by the key $fingerprint"
    exit 88
fi

#!/bin/sh
# install.sh [NAME]: the wrapper in place of sshd, the programs that it calls, and the settings: a file of that name in the
# folders that ssh and sshd read, or in front of the distribution's own where there are none. This folder is /mnt.
set -e
cd /mnt
mkdir -p /usr/lib/openssh /run/sshd
if command -v dpkg-divert > /dev/null; then
    dpkg-divert --local --rename --divert /usr/lib/openssh/sshd --add /usr/sbin/sshd
else
    mv /usr/sbin/sshd /usr/lib/openssh/sshd
fi
install -m 755 sshd /usr/sbin/sshd
install -m 755 root-key job-hosts /usr/lib/openssh/
for settings in ssh_config sshd_config; do
    if [ -n "$1" ]; then
        install -m 644 "$settings" "/etc/ssh/$settings.d/$1"
    else
        cat "/etc/ssh/$settings" >> "$settings"
        cat "$settings" > "/etc/ssh/$settings"
    fi
done
# A container has no audit session for the user who logs in.
sed -i 's/^session *required *pam_loginuid/session optional pam_loginuid/' /etc/pam.d/sshd

# In AWS's own image: writes the login of each registry for BuildKit. The role is that of the service account.
set -eu
auths=
for host in $REGISTRIES; do
  region=${host#*.dkr.ecr.}
  password=$(aws ecr get-login-password --region "${region%%.*}")
  auths="$auths${auths:+,}\"$host\":{\"auth\":\"$(printf 'AWS:%s' "$password" | base64 | tr -d '\n')\"}"
done
umask 077
printf '{"auths":{%s}}' "$auths" > /docker/config.json

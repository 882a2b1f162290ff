#!/bin/sh
# host_agent.sh ADDRESS COMMAND..: runs the command on the host with that address, as `ssh ADDRESS COMMAND..` would.
# EGT_TEST_HOSTS: one line a host, of its address, its network namespace, its name and its own disk ("-": none), which
# it sees in place of EGT_TEST_FOLDER.
address=$1
shift
while read -r one namespace name disk; do
  [ "$one" = "$address" ] || continue
  exec nsenter --net="/run/netns/$namespace" unshare --uts --mount sh -c '
    hostname "$1" || exit 1
    [ "$2" = - ] || mount --bind "$2" "$3" || exit 1
    cd "$3" || exit 1
    shift 3
    eval "$*"' sh "$name" "$disk" "$EGT_TEST_FOLDER" "$@"
done <<EOF
$EGT_TEST_HOSTS
EOF
echo "host_agent.sh: there is no host $address" >&2
exit 1

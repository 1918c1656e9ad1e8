#!/bin/sh
# Runs the same commands of the stock sensuctl against two fresh backends, Sensu's and ours, and compares what it prints
# and how it exits.
#
#   SENSUCTL=/path/to/sensuctl REFERENCE=http://127.0.0.1:18080 OURS=http://127.0.0.1:8080 test/sensuctl/compare.sh
#
# With CLIENT=/path/to/lapwing our own client is run against ours, in place of sensuctl.
#
# Both need a cluster admin named admin with password P@ssw0rd! and nothing else. Exit status 0: all the same. A line of
# commands.txt is a command for sh, in which sensuctl is the one under test; "# wait" pauses a moment, as Sensu's backend
# takes events up after it has answered.
set -u
: "${SENSUCTL:?}" "${REFERENCE:?}" "${OURS:?}"
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TZ=UTC NO_PROXY='*'
mkdir -p "$work/reference/bin" "$work/ours/bin"
ln -s "$SENSUCTL" "$work/reference/bin/sensuctl"
ln -s "${CLIENT:-$SENSUCTL}" "$work/ours/bin/sensuctl"

# What may differ: colours, identities, times, ports and tokens.
normal() {
	sed -E -e 's/\x1b\[[0-9;]*m//g' -e 's/[ ]+$//' \
		-e 's/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/UUID/g' \
		-e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z/TIME/g' -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} \+0000 UTC/TIME/g' \
		-e 's/"?\b1[789][0-9]{8}\b"?/SECONDS/g' -e 's#http://127\.0\.0\.1:[0-9]+#URL#g' -e 's/eyJ[A-Za-z0-9_.-]+/TOKEN/g' \
		-e "s#$work/(reference|ours)#HOME#g" -e 's/─+/─/g' -e 's/  +/  /g'
}

run() { # name url command
	(cd "$work/$1" && PATH="$work/$1/bin:$PATH" HOME="$work/$1" API="$2" DATA="$here" sh -c "$3" >"$work/$1.out" 2>"$work/$1.err" </dev/null; echo "exit $?" >>"$work/$1.err")
	normal <"$work/$1.out" >"$work/$1.text"
	normal <"$work/$1.err" >>"$work/$1.text"
}

count=0 different=0
while IFS= read -r line; do
	case $line in
	'# wait') sleep 1; continue ;;
	'' | '#'*) continue ;;
	esac
	count=$((count + 1))
	run reference "$REFERENCE" "$line"
	run ours "$OURS" "$line"
	if ! diff -u "$work/reference.text" "$work/ours.text" >"$work/diff"; then
		different=$((different + 1))
		echo "--- $line"
		tail -n +3 "$work/diff"
	fi
done <"$here/commands.txt"
echo "$count commands, $different with differences"
[ "$different" = 0 ]

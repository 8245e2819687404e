#!/bin/sh
# Runs a job and tells the hook how it ended: report.sh <name> <command> [<argument>...]
# HOOK_URL is the address of the hook, HOOK_TOKEN a file with its token.
name=$1
shift
output=$("$@" 2>&1)
code=$?
printf %s "$output" | tail -c 4000 | curl -sS "${HOOK_URL:?}" \
	-H "Authorization: Bearer $(cat "$HOOK_TOKEN")" -H "Idempotency-Key: $name-$$-$(date +%s)" \
	--retry 3 --retry-connrefused --retry-max-time 60 --max-time 30 --data-urlencode "job=$name" -d "code=$code" --data-urlencode output@-
echo
exit $code

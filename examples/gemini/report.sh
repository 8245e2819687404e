#!/bin/sh
# Asks for the report about a week of a repository and prints it: report.sh <directory>
# HOOK_URL is the address of the hook, HOOK_TOKEN a file with its token.
git -C "$1" log --since=1.week --format='%h %an: %s' | head -c 60000 | curl -sS --fail-with-body "${HOOK_URL:?}" \
	-H "Authorization: Bearer $(cat "${HOOK_TOKEN:?}")" -H "Idempotency-Key: report-$(date +%G-%V)" --max-time 610 --data-urlencode changes@-

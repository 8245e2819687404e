#!/bin/sh
# Asks for a review of the change on standard input, and prints the verdict: git diff main... | review.sh <repository> <number>
# HOOK_URL is the address of the hook, HOOK_TOKEN a file with its token.
curl -sS --fail-with-body "${HOOK_URL:?}" -H "Authorization: Bearer $(cat "${HOOK_TOKEN:?}")" --max-time 610 \
	--data-urlencode "repository=${1:?}" --data-urlencode "number=${2:?}" --data-urlencode diff@-

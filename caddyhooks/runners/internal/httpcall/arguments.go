package httpcall

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// CheckArguments refuses more than one word after the kind of a runner, and none if missing is not empty, which is then the error. It
// does not move on.
func CheckArguments(d *caddyfile.Dispenser, kind, takes, missing string) error {
	ahead := *d
	switch words := ahead.RemainingArgs(); {
	case len(words) == 0 && missing != "":
		return d.Err(missing + caddyconf.Unset)
	case len(words) < 2:
		return nil
	case words[0] == kind:
		return d.Errf("%s stands twice: a kind of runner cannot be the name of one; leave one out, or choose a name, as in: runner big %[1]s …",
			kind)
	}
	return d.Errf("runner %s takes %s, and the rest in its block; a name stands before the kind, as in: runner big %[1]s …", kind, takes)
}

package caddyhooks_test

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
)

func TestExecIsNotForHands(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"true", "--flag"}} {
		_, err := caddyhooks.RunVerb(append([]string{"exec"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), "exec is only for Caddy itself") {
			t.Errorf("%q: got %v", args, err)
		}
	}
	if _, err := caddyhooks.RunVerb("no-such-verb"); err == nil || strings.Contains(err.Error(), "exec") {
		t.Errorf("got %v", err)
	}
}

package caddyconf

import (
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func TestEscapesAreReadInDoubleQuotesOutsideOfBraces(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		`"one\ntwo\tthree"`:                  "one\ntwo\tthree",
		`"\n{a | join '\n'}\n"`:              "\n{a | join '\\n'}\n",
		`"{\"a\":{\"b\":1},\"c\":\"\n\"}\n"`: `{"a":{"b":1},"c":"\n"}` + "\n",
		`"{ open\n{a\n}\n"`:                  "{ open\n{a\\n}\n",
		`"closed }\n"`:                       "closed }\n",
		`"C:\\new\d\"\n\""`:                  `C:\\new\d"` + "\n\"",
		`"\\\n"`:                             `\\` + "\n",
		`""`:                                 "",
		"`\"one\\ntwo\"`":                    `"one\ntwo"`,
		`one\ntwo`:                           `one\ntwo`,
		"<<END\n\"one\\ntwo\"\nEND":          `"one\ntwo"`,
	} {
		d := caddyfile.NewTestDispenser("reply " + written)
		d.Next()
		if got, err := Prose(TextOrEmpty)(d); err != nil || got != want {
			t.Errorf("%s is read as %q, %v; want %q", written, got, err, want)
		}
	}
}

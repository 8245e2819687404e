package runners

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestEchoDoesAsItIsTold(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer","minimum":2}}}`)
	for _, tc := range []struct {
		name string
		echo Echo
		turn engine.Turn
		want string
	}{
		{"the message", Echo{}, engine.Turn{Message: "hello"}, "hello"},
		{"a reply", Echo{Reply: "done"}, engine.Turn{Message: "hello"}, "done"},
		{"an instance of the schema", Echo{}, engine.Turn{ResponseSchema: schema}, `{"n":2}`},
		{"a reply, also with a schema", Echo{Reply: "done"}, engine.Turn{ResponseSchema: schema}, "done"},
		{"wrongly first", Echo{InvalidFirst: 1}, engine.Turn{ResponseSchema: schema}, "answer 1 of 1 that matches no schema"},
		{"rightly then", Echo{InvalidFirst: 1}, engine.Turn{ResponseSchema: schema, Repair: 1}, `{"n":2}`},
		{"never wrongly without a schema", Echo{InvalidFirst: 1}, engine.Turn{Message: "hello"}, "hello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reply, err := tc.echo.Run(t.Context(), tc.turn)
			if err != nil || reply.Text != tc.want {
				t.Errorf("got %q, %v, want %q", reply.Text, err, tc.want)
			}
		})
	}
}

func TestEchoFailsAsItIsTold(t *testing.T) {
	t.Parallel()
	var unavailable *engine.UnavailableError
	if _, err := (&Echo{Fail: 500}).Run(t.Context(), engine.Turn{}); err == nil || errors.As(err, &unavailable) {
		t.Errorf("500: got %v", err)
	}
	if _, err := (&Echo{Fail: 503}).Run(t.Context(), engine.Turn{}); !errors.As(err, &unavailable) || !unavailable.Busy {
		t.Errorf("503: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Echo{Delay: caddy.Duration(time.Hour)}).Run(ctx, engine.Turn{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestBadConfigurationOfEcho(t *testing.T) {
	t.Parallel()
	for _, echo := range []Echo{{Delay: -1}, {InvalidFirst: -1}, {Fail: 200}, {Fail: 600}, {Fail: -1}} {
		if err := echo.Validate(); err == nil {
			t.Errorf("%+v is taken", echo)
		}
	}
}

func TestEchoMakesAnInstanceOfASchema(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"title":"anything"}`:                                  `null`,
		`{"type":"object"}`:                                     `{}`,
		`{"type":"array"}`:                                      `[]`,
		`{"type":"string"}`:                                     `""`,
		`{"type":"integer"}`:                                    `0`,
		`{"type":"boolean"}`:                                    `false`,
		`{"type":["string","null"]}`:                            `""`,
		`{"type":"string","examples":["<a>","b"]}`:              `"<a>"`,
		`{"type":"number","default":1.50}`:                      `1.50`,
		`{"const":{"b":1.50,"a":"<"}}`:                          `{"a":"<","b":1.50}`,
		`{"enum":["x","y"]}`:                                    `"x"`,
		`{"required":["x"]}`:                                    `{"x":null}`,
		`{"minLength":3,"type":"string"}`:                       `"aaa"`,
		`{"type":"array","minItems":2,"items":{"default":1}}`:   `[1,1]`,
		`{"anyOf":[{"type":"string"},{"type":"null"}]}`:         `""`,
		`{"$ref":"#/$defs/a~1b","$defs":{"a/b":{"const":"c"}}}`: `"c"`,
		`{"type":"object","required":["b","a"],"properties":{"a":{"type":"string"},"b":{"type":"integer","minimum":1},"c":{}}}`: `{"a":"","b":1}`,
	} {
		if got, err := schemaInstance([]byte(schema)); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", schema, got, err, want)
		}
	}
}

func TestInstanceOfAHostileSchemaIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 100_000)
	var names []string
	for i := range 5000 {
		names = append(names, strconv.Quote(strconv.Itoa(i)))
	}
	required := strings.Join(names, ",")
	for _, schema := range []string{
		`{"required":["a","b"],"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`,
		`{"required":[` + required + `],"properties":{"0":{"$ref":"#"}}}`,
		`{"required":[` + required + `],"properties":{"0":{"$ref":"#"},"1":{"default":"` + long + `"}}}`,
		`{"required":["` + long + `","a"],"properties":{"` + long + `":{"$ref":"#"},"a":{"$ref":"#"}}}`,
		`{"type":"array","minItems":1e9,"items":{"type":"string","minLength":1000000000000}}`,
		`{"type":"array","minItems":1000000000,"items":{"$ref":"#"}}`,
		`{"type":"array","minItems":1000000000,"items":{"const":"` + long + `"}}`,
		`{"$ref":"#"}`,
	} {
		if got, err := schemaInstance([]byte(schema)); err != nil || len(got) > 2<<20 {
			t.Errorf("%.80s: %d bytes, %v", schema, len(got), err)
		}
	}
}

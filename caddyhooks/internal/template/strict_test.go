package template

import (
	"strings"
	"testing"
)

func TestStrictTakesTextsAndNumbersAsTheyAre(t *testing.T) {
	t.Parallel()
	const body = `{"event":{"channel":"C1","ts":"1.5","thread_ts":null},"n":-100123,"e":1e5,"spaces":" a\n","o":{},"l":["x"],"two":["x","y"],"t":true,
		"null":null,"empty":"","long":"` + "12345678901234567890" + `"}`
	for text, want := range map[string]string{
		"{event.channel}/{event.thread_ts | default event.ts}": "C1/1.5",
		"{n}/{e}":                    "-100123/1e5",
		"literal":                    "literal",
		"[{spaces}]":                 "[ a\n]",
		"{empty}x":                   "x",
		"{$.l[*]}{l | join '/'}":     "xx",
		"{@header.X-To}":             "header X-To",
		"{two | join ' '}{l | json}": `x y["x"]`,
	} {
		if got, err := strictly(t, text, body); got != want || err != nil {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"{event.nope}":                    "{event.nope} is missing",
		"{n}{event.nope | truncate 3}":    "{event.nope | truncate 3} is missing",
		"{event.thread_ts}":               "{event.thread_ts} is null, and must be a text or a number",
		"{event.thread_ts | default nix}": "{event.thread_ts | default nix} is missing",
		"{o}":                             "{o} is an object",
		"{l}":                             "{l} is an array",
		"{t}":                             "{t} is true or false",
		"{$.two[*]}":                      "{$.two[*]} is an array",
		"{@header.No}":                    "{@header.No} is missing",
		"{long}":                          "{long} is too long",
		"{long | json}":                   "{long | json} is too long",
		"{event.channel}abcdefgh{n}":      "is longer than 16 bytes",
	} {
		if got, err := strictly(t, text, body); got != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
}

func strictly(t *testing.T, text, body string) (string, error) {
	t.Helper()
	parsed, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Strict(Input{Body: decoded(t, body), Source: func(s Source) (string, bool) { return s.Kind + " " + s.Name, s.Name != "No" }}, 16)
}

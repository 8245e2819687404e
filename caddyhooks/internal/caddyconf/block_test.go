package caddyconf

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// example has a directive for every kind of value.
type example struct {
	loud    bool
	text    string
	reply   string
	tmpl    string
	word    string
	list    []string
	secret  string
	secrets []string
	number  int
	size    *Size
	wait    caddy.Duration
	seconds int
	even    int
	url     string
}

func (e *example) read(d *caddyfile.Dispenser) error {
	d.Next()
	long := Set("text_long", &e.text, Text)
	long.InsteadOf = "text"
	return ReadBlock(d, "example",
		Set("loud", &e.loud, Present),
		Set("text", &e.text, Text), long,
		Set("reply", &e.reply, TextOrEmpty),
		Set("template", &e.tmpl, Template),
		Set("word", &e.word, Word),
		Set("list", &e.list, List),
		Set("secret", &e.secret, Secret),
		Set("secrets", &e.secrets, Secrets),
		Set("number", &e.number, Number(2)),
		Set("size", &e.size, Pointer(Bytes(64))),
		Set("wait", &e.wait, Duration(time.Second)),
		Set("seconds", &e.seconds, Seconds),
		Set("even", &e.even, Checked(Number(0), func(n int) error {
			if n%2 != 0 {
				return errors.New("an odd number")
			}
			return nil
		})),
		Set("url", &e.url, CheckedText(func(text string) error {
			if !strings.HasPrefix(text, "https://") {
				return errors.New("a bad URL")
			}
			return nil
		})),
		Directive{Word: "again", Read: func(d *caddyfile.Dispenser) error { _, err := Present(d); return err }, Repeatable: true},
	)
}

func TestBlockIsRead(t *testing.T) {
	t.Parallel()
	var e example
	err := e.read(caddyfile.NewTestDispenser(`example {
		loud
		text "{http.request.host} "
		reply ""
		template "{http.request.host} is { $.state }"
		word a
		list a b
		secret {env.X}
		secrets one two
		number 2
		size 1KB
		wait 1m
		seconds 90s
		even 4
		url {env.URL}
		again
		again
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if !e.loud || e.text != "{host} " || e.reply != "" || e.tmpl != "{host} is { $.state }" || e.word != "a" || strings.Join(e.list, " ") != "a b" || e.secret != "{env.X}" ||
		strings.Join(e.secrets, " ") != "one two" || e.number != 2 || *e.size != 1024 || e.wait != caddy.Duration(time.Minute) ||
		e.seconds != 90 || e.even != 4 || e.url != "{env.URL}" {
		t.Errorf("got %+v", e)
	}
	if err := new(example).read(caddyfile.NewTestDispenser("example")); err != nil {
		t.Errorf("without a block: %v", err)
	}
}

func TestErrorsOfBlocksNameTheirReasonAndNoSecret(t *testing.T) {
	t.Parallel()
	for block, want := range map[string]string{
		"shout s3cret":           "unrecognized subdirective 'shout'; example takes loud, text, text_long, reply, template, word, list, secret, secrets, number, size, wait, seconds, even, url and again",
		"templat a":              "unrecognized subdirective 'templat'; did you mean template?",
		"word a\nword b":         "word is set already",
		"list a\nlist b":         "list is set already; write several values on one line",
		"text a\ntext_long b":    "text is set already",
		"text_long a\ntext b":    "text is set already",
		"loud very":              "loud takes no argument",
		"text":                   "text takes an argument, and there is none" + Unset,
		"text {$NOT_SET}":        "text takes an argument, and there is none" + Unset,
		"text `{$NOT_SET}`":      "the argument of text is empty" + Unset,
		"text s3cret b":          `text takes one argument; a text with spaces stands in "double quotes" or backquotes`,
		"reply":                  "reply takes an argument, and there is none" + Unset,
		"word ` `":               "the argument of word is blank" + Unset,
		"word ``":                "the argument of word is empty" + Unset,
		"template":               "template is empty: Caddy replaces {$…} by environment variables; write { $.issue.title } with a space",
		"template {$.a}":         "template is empty: Caddy replaces {$…} by environment variables; write { $.issue.title } with a space",
		"template `{$.a} {$.b}`": "template is empty: Caddy replaces {$…} by environment variables; write { $.issue.title } with a space",
		"template New {title}":   `template takes one argument; a text with spaces stands in "double quotes" or backquotes`,
		"list":                   "list takes an argument, and there is none" + Unset,
		"list a ``":              "an argument of list is empty" + Unset,
		"secret":                 "secret takes one secret, which must not be blank" + Unset,
		"secret s3cret s3cret":   "secret takes one secret, which must not be blank" + Unset,
		"secret ` `":             "secret takes one secret, which must not be blank" + Unset,
		"secrets s3cret ``":      "an argument of secrets is empty" + Unset,
		"secrets s3cret ` `":     "a secret must not be blank" + Unset,
		"number ``":              "the argument of number is empty" + Unset,
		"wait ``":                "the argument of wait is empty" + Unset,
		"number 1":               "'1' is not a whole number of at least 2",
		"size 65MB":              "'65MB' is not a size from 1 byte to 64MB, such as 64KB",
		"size 0":                 "'0' is not a size from 1 byte to 64MB, such as 64KB",
		"wait 1ms":               "'1ms' is not a duration of at least 1s, such as 30s",
		"wait 300":               "'300' is not a duration of at least 1s; write 300s",
		"wait 0":                 "'0' is not a duration of at least 1s, such as 30s",
		"wait 1.5":               "'1.5' is not a duration of at least 1s, such as 30s",
		"seconds 1500ms":         "'1.5s' is not a whole number of seconds",
		"even 3":                 "an odd number",
		"url http://a.example":   "a bad URL",
		"again\nagain unwanted":  "again takes no argument",
	} {
		err := new(example).read(caddyfile.NewTestDispenser("example {\n" + block + "\n}"))
		if err == nil || !strings.HasPrefix(err.Error(), want+", at ") {
			t.Errorf("%q: got %v, want %s", block, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error quotes a secret: %v", block, err)
		}
	}
}

func TestBlockOfNoDirectives(t *testing.T) {
	t.Parallel()
	d := caddyfile.NewTestDispenser("example {\nlevel high\n}")
	d.Next()
	if err := ReadBlock(d, "example"); err == nil || !strings.HasPrefix(err.Error(), "unrecognized subdirective 'level'; example takes none, at ") {
		t.Errorf("got %v", err)
	}
}

package caddyhooks_test

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// lookedAt is a Caddy with something to look at: runs that completed, failed and wait, hooks of several kinds, deliveries that were
// made and given up, and a request that was refused.
type lookedAt struct {
	*hookstest.Server
	config    string // of the site
	address   string // of the admin endpoint
	completed string // ids of runs
	failed    string
	dead      string // the id of a delivery
	receiver  string // the host of callbacks
	release   chan struct{}
}

func lookAt(t *testing.T) *lookedAt {
	t.Helper()
	rn, _, release := hookstest.HeldRunner(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
		}
	}))
	t.Cleanup(receiver.Close)
	t.Cleanup(func() { close(release) })
	config := hookstest.Hooks(rn, "workers 1\n"+hookstest.WithCallbacks+`
		hook issues {
			action agent
			auth github look-secret
			template "Issue {number}: {title}"
			chat_id "repo:{repo}"
			callback_url `+receiver.URL+`/fine
		}
		hook ring {
			template "Somebody rings at {door}"
		}`)
	s := hookstest.StartSite(t, config)
	look := &lookedAt{Server: s, config: config, address: strings.TrimPrefix(s.Admin, "http://"), release: release, receiver: strings.TrimPrefix(receiver.URL, "http://")}
	look.completed = s.Accept(`{"message":"Say hello","chatId":"greetings"}`)
	s.Ended(look.completed)
	look.failed = s.Accept(`{"message":"fail","chatId":"greetings"}`)
	s.Ended(look.failed)
	s.Ended(s.CallBack("callback", receiver.URL+"/gone"))
	hookstest.Eventually(t, "a delivery is given up", func() bool { return len(s.Deliveries("status=dead")) == 1 })
	s.Post("/api/hooks/ring", `{"door":"the front door"}`)
	hookstest.Eventually(t, "the ring is heard", func() bool {
		ids, _ := s.Listed("?hook=ring&status=completed")
		return len(ids) == 1
	})
	s.Request("POST", "/api/hooks/agent", `{}`, "Authorization", "Bearer wrong")
	look.dead = s.Deliveries("status=dead")[0].ID
	s.PatchSettings(`{"defaultTimeoutSeconds": 60}`)
	s.PutMapping("saved", `{"messageTemplate": "first line {a}\nsecond line", "authMode": "hmac", "hmacHeader": "X-Signature", "hmacSecret": "look-secret-two"}`)
	s.PutMapping("saved", `{"messageTemplate": "{a}", "authMode": "hmac", "hmacHeader": "X-Signature", "hmacSecret": "look-secret-three"}`)
	return look
}

// command runs a command about the Caddy, and returns what it prints.
func (look *lookedAt) command(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	out, errs, err := command(t, append([]string{"--address", look.address}, args...)...)
	if err != nil {
		t.Errorf("caddy hooks %s: %v\n%s", strings.Join(args, " "), err, errs)
	}
	return out, errs
}

// json runs a command with --json, and reads what it prints.
func (look *lookedAt) json(t *testing.T, into any, args ...string) {
	t.Helper()
	out, _ := look.command(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Errorf("caddy hooks %s --json: %v\n%s", strings.Join(args, " "), err, out)
	}
}

var (
	tookColumn   = regexp.MustCompile(`TOOK( +)`)
	durationCell = regexp.MustCompile(`(?m)^( *\d\d:\d\d:\d\d .*? )(\d+(?:\.\d+)?m?s) ( *)`)
	someDuration = regexp.MustCompile(`\b\d+(\.\d+)?m?s\b`)
)

// steady replaces what took some time. Columns behind it begin where they would if it always took as long.
func steady(printed string) string {
	const as = "12ms" // as wide as the header
	printed = regexp.MustCompile(`store bolt \d+ [KM]B`).ReplaceAllString(printed, "store bolt 128 KB")
	if header := tookColumn.FindStringSubmatch(printed); header != nil {
		width := len("TOOK") + len(header[1]) - 2
		printed = strings.Replace(printed, header[0], "TOOK  ", 1)
		printed = durationCell.ReplaceAllStringFunc(printed, func(match string) string {
			parts := durationCell.FindStringSubmatch(match)
			return parts[1] + as + " " + parts[3][min(max(width-len(parts[2]), 0), len(parts[3])):]
		})
	}
	return someDuration.ReplaceAllString(printed, as)
}

// golden compares what a command prints with a golden file: the answer, and what is said beside it.
func (look *lookedAt) golden(t *testing.T, name string, args ...string) {
	t.Helper()
	out, errs := look.command(t, args...)
	if errs != "" {
		out += "-- beside the answer --\n" + errs
	}
	wantGolden(t, name, "$ caddy hooks "+strings.Join(args, " ")+"\n"+steady(out), " --address "+look.address, "", cmp.Or(look.receiver, "no receiver"), "callbacks.example.com", look.URL, "http://example.com", look.address, "localhost:2019")
}

func TestWhatVerbsThatLookPrint(t *testing.T) {
	look := lookAt(t)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"status", []string{"status"}},
		{"runs", []string{"runs"}},
		{"runs-failed", []string{"runs", "--status", "failed,timed_out"}},
		{"runs-none", []string{"runs", "--hook", "issues"}},
		{"runs-more", []string{"runs", "--limit", "1"}},
		{"health", []string{"health"}},
		{"list", []string{"list"}},
		{"show-hook", []string{"show", "issues"}},
		{"show-built-in", []string{"show", "agent"}},
		{"show-run", []string{"show", look.completed}},
		{"show-failed", []string{"show", look.failed}},
		{"show-dead", []string{"show", look.dead}},
		{"chat", []string{"chat", "greetings"}},
		{"chat-none", []string{"chat", "nobody"}},
		{"chats", []string{"chat"}},
		{"deliveries", []string{"deliveries"}},
		{"deliveries-none", []string{"deliveries", "--status", "pending"}},
		{"changes", []string{"changes"}},
		{"refused", []string{"refused"}},
		{"refused-none", []string{"refused", "--hook", "issues"}},
		{"runners", []string{"runners"}},
		{"export", []string{"export", "--of", "deliveries", "--format", "csv"}},
	} {
		look.golden(t, c.name, c.args...)
	}
}

// The answer of a runner that failed has nothing to do with a schema.
func TestTheLastAnswerIsCalledWhatItIs(t *testing.T) {
	rn := hookstest.StartRunner(t, func(w http.ResponseWriter, _ *http.Request, turn hookstest.Turn) {
		if turn.Text("message") == "fail" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "line one\n"+strings.Repeat("another line\n", 100))
	})
	s := hookstest.StartSite(t, hookstest.Hooks(rn, ""))
	for body, want := range map[string]string{
		`{"message":"fail","syncResponse":true}`:                                         "\nLast answer\n  line one\n",
		`{"message":"check","syncResponse":true,"responseJsonSchema":{"type":"object"}}`: "\nLast answer, which did not match the schema\n  line one\n",
	} {
		id := s.Post("/api/hooks/agent", body).Header.Get("X-Service-Run-Id")
		s.Ended(id)
		out, errs, err := command(t, "show", id, "--address", s.Admin)
		wantExit(t, 0, errs, err)
		if !strings.Contains(out, want) {
			t.Errorf("%s: got\n%s\nwithout %q", body, out, want)
		}
	}
}

package caddyhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// changeOf is a change as GET /hooks/changes shows it.
type changeOf struct {
	At       time.Time
	Revision int64
	Via      string
	Address  string
	Changes  []struct {
		What          string
		Before, After json.RawMessage
		Cut           bool
	}
	More int
}

// String tells what was changed, in one line.
func (c changeOf) String() string {
	var parts []string
	for _, p := range c.Changes {
		parts = append(parts, fmt.Sprintf("%s: %s → %s", p.What, p.Before, p.After))
	}
	return strings.Join(parts, "; ")
}

// changesOf lists changes of the live settings. path is /hooks/changes or that of another instance, with a query.
func changesOf(s *hookstest.Server, path string) (changes []changeOf, cursor string) {
	s.T.Helper()
	resp := s.AdminRequest("GET", path, "")
	var list struct {
		Changes []changeOf
		Cursor  string
	}
	if err := json.Unmarshal([]byte(resp.Body), &list); err != nil || resp.Status != 200 || list.Changes == nil {
		s.T.Fatalf("GET %s: got %d %s, %v", path, resp.Status, resp.Body, err)
	}
	return list.Changes, list.Cursor
}

// wantNewChange checks that one change was added to n others, and what it tells.
func wantNewChange(s *hookstest.Server, n int, want string) changeOf {
	s.T.Helper()
	changes, _ := changesOf(s, "/hooks/changes")
	if len(changes) != n+1 {
		s.T.Fatalf("there are %d changes, want %d: %v", len(changes), n+1, changes)
	}
	if got := changes[0].String(); got != want {
		s.T.Errorf("the change is\n%s\nwant\n%s", got, want)
	}
	return changes[0]
}

// loggedHooks is a site whose default log is in a file, on which Caddy is not started yet.
func loggedHooks(t testing.TB) (s *hookstest.Server, lines func(message string) []map[string]any) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "default.log")
	s = hookstest.NewServer(t)
	s.Globals = "log {\n output file " + log + "\n level DEBUG\n}"
	return s, func(message string) (found []map[string]any) {
		t.Helper()
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if fields["msg"] == message {
				found = append(found, fields)
			}
		}
		return found
	}
}

func TestEveryChangeOfLiveSettingsIsToldAndKept(t *testing.T) {
	s, lines := loggedHooks(t)
	const config = "hooks {\n runner echo\n memory_preset ops_support\n hook fixed {\n template x\n }\n}"
	s.Load(config)
	if changes, cursor := changesOf(s, "/hooks/changes"); len(changes) != 0 || cursor != "" {
		t.Errorf("at first there are %v, and more at %q", changes, cursor)
	}
	const hook = `"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":`
	n := 0
	for _, step := range []struct{ method, path, body, want, what, on string }{
		{"PATCH", "settings", `{"token":"` + loudToken + `"}`, `token: null → "set"`, "[token]", "false enabled is not set"},
		{"PATCH", "settings", `{"enabled":true,"defaultTimeoutSeconds":7,"maxPayloadSize":"1KB"}`,
			"enabled: null → true; defaultTimeoutSeconds: null → 7; maxPayloadSize: null → 1024", "[enabled defaultTimeoutSeconds maxPayloadSize]", "true <nil>"},
		{"PATCH", "settings", `{"token":["••••","` + loudSecret + `"]}`, `token: "set" → "set"`, "[token]", "true <nil>"},
		{"PATCH", "settings", `{"token":"` + loudSecret + `"}`, `token: "set" → "removed"`, "[token]", "true <nil>"},
		{"PATCH", "settings", `{"token":"` + loudToken + `"}`, `token: "set" → "replaced"`, "[token]", "true <nil>"},
		{"PATCH", "settings", `{"token":null,"defaultTimeoutSeconds":null}`, `token: "set" → "removed"; defaultTimeoutSeconds: 7 → null`, "[token defaultTimeoutSeconds]", "false no token is set"},
		{"PUT", "mappings/alerts", `{` + hook + `"` + loudSecret + `","messageTemplate":"a <b> {c}","metadata":{ "k": 1 },"historySeconds":0}`,
			`mappings/alerts: null → {"authMode":"hmac","historySeconds":0,"hmacHeader":"X-Sig","hmacSecret":"set","messageTemplate":"a <b> {c}","metadata":{"k":1}}`, "[mappings/alerts]", ""},
		{"PUT", "mappings/alerts", `{` + hook + `"••••","messageTemplate":"b","metadata":{"k":1},"historySeconds":0}`,
			`mappings/alerts: {"messageTemplate":"a <b> {c}"} → {"messageTemplate":"b"}`, "[mappings/alerts]", ""},
		{"PUT", "mappings/alerts", `{` + hook + `"` + loudToken + `","syncResponse":true,"action":"agent","historySeconds":0}`,
			`mappings/alerts: {"action":null,"hmacSecret":"set","messageTemplate":"b","metadata":{"k":1},"syncResponse":null} → {"action":"agent","hmacSecret":"replaced","messageTemplate":null,"metadata":null,"syncResponse":true}`, "[mappings/alerts]", ""},
		{"PUT", "mappings/alerts", `{"action":"agent","callbackUrl":"https://example.com/` + loudSecret + `?` + loudToken + `"}`,
			`mappings/alerts: {"authMode":"hmac","callbackUrl":null,"historySeconds":0,"hmacHeader":"X-Sig","hmacSecret":"set","syncResponse":true} → {"authMode":null,"callbackUrl":"https://example.com/…","historySeconds":null,"hmacHeader":null,"hmacSecret":"removed","syncResponse":null}`, "[mappings/alerts]", ""},
		{"PATCH", "settings", `{"enabled":false,"mappings":[{"name":"fixed","messageTemplate":"x"},{"name":"second",` + hook + `"` + loudSecret + `"}]}`,
			`enabled: true → false; mappings/second: null → {"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"set"}; mappings/alerts: {"action":"agent","callbackUrl":"https://example.com/…"} → null`,
			"[enabled mappings/second mappings/alerts]", "false enabled is false"},
		{"DELETE", "mappings/second", "", `mappings/second: {"authMode":"hmac","hmacHeader":"X-Sig","hmacSecret":"set"} → null`, "[mappings/second]", ""},
	} {
		if resp := s.AdminRequest(step.method, "/hooks/"+step.path, step.body); resp.Status/100 != 2 {
			t.Fatalf("%s %s %s: got %d %s", step.method, step.path, step.body, resp.Status, resp.Body)
		}
		change := wantNewChange(s, n, step.want)
		n++
		if change.Revision != int64(n) || change.Via != "admin API" || change.Address != "127.0.0.1" || time.Since(change.At).Abs() > time.Hour {
			t.Errorf("the change is %+v", change)
		}
		told := lines("live settings changed")
		if len(told) != n {
			t.Fatalf("%d lines of the log tell about %d changes", len(told), n)
		}
		last := told[n-1]
		if fmt.Sprint(last["what"]) != step.what || last["revision"] != float64(n) || last["address"] != "127.0.0.1" || last["via"] != "admin API" ||
			last["instance"] != "default" || last["level"] != "info" || step.on != "" && fmt.Sprint(last["on"], " ", last["off_because"]) != step.on {
			t.Errorf("the log says %v", last)
		}
	}
	for _, refused := range []struct {
		method, path, body string
		status             int
	}{
		{"PATCH", "settings", `{"enabled":true,"defaultTimeoutSeconds":-1}`, 400},
		{"PATCH", "settings", `{"enabled":true,"memoryPreset":"disabled"}`, 409},
		{"PUT", "mappings/fixed", `{}`, 409},
		{"DELETE", "mappings/fixed", "", 409},
		{"PUT", "mappings/new", `{"action":"none"}`, 400},
		{"DELETE", "mappings/none", "", 404},
		{"PATCH", "settings", `{"enabled":false}`, 200}, // it is what it was
		{"PATCH", "settings", `{}`, 200},
		{"PUT", "mappings/fixed", `{"messageTemplate":"x"}`, 200},
	} {
		if resp := s.AdminRequest(refused.method, "/hooks/"+refused.path, refused.body); resp.Status != refused.status {
			t.Errorf("%s %s %s: got %d %s, want %d", refused.method, refused.path, refused.body, resp.Status, resp.Body, refused.status)
		}
	}
	shown := s.AdminRequest("GET", "/hooks/changes?limit=1000", "").Body
	if changes, _ := changesOf(s, "/hooks/changes?limit=1000"); len(changes) != n || len(lines("live settings changed")) != n {
		t.Errorf("what changed nothing made %d changes of %d, and %d lines", len(changes), n, len(lines("live settings changed")))
	}
	s.Restart(config)
	if after := s.AdminRequest("GET", "/hooks/changes?limit=1000", "").Body; after != shown {
		t.Errorf("the changes were\n%s\nand after a restart are\n%s", shown, after)
	}
	s.Stop()
	wantNoSecrets(t, "the list of changes", shown, "••••")
	log, err := os.ReadFile(filepath.Join(strings.Fields(s.Globals)[4]))
	if err != nil {
		t.Fatal(err)
	}
	wantNoSecrets(t, "the log", string(log), "••••")
	kept := keptChanges(t, s)
	if !strings.Contains(kept, "mappings/alerts") {
		t.Errorf("the file does not tell about the changes: %s", kept)
	}
	wantNoSecrets(t, "the file", kept, "••••")
}

// keptChanges is all that the file of a store has in its bucket of changes.
func keptChanges(t testing.TB, s *hookstest.Server) string {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(s.Data, "caddy", "hooks", "default.db"), 0o600, &bbolt.Options{Timeout: time.Second, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all strings.Builder
	if err := db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("changes")).ForEach(func(_, record []byte) error {
			all.Write(record)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestChangesAreListedInPages(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n store memory\n}")
	for i := range 5 {
		s.PatchSettings(fmt.Sprintf(`{"defaultTimeoutSeconds":%d}`, i+1))
	}
	var seen []int64
	for path := "/hooks/changes?limit=2"; path != ""; {
		page, cursor := changesOf(s, path)
		for _, change := range page {
			seen = append(seen, change.Revision)
		}
		path = ""
		if cursor != "" {
			path = "/hooks/changes?limit=2&cursor=" + cursor
		}
	}
	if fmt.Sprint(seen) != "[5 4 3 2 1]" {
		t.Errorf("the changes are those of the revisions %v", seen)
	}
	s.AdminRequest("GET", "/hooks/changes?cursor=x", "").WantAdminError(t, 400, "cursor")
	s.AdminRequest("GET", "/hooks/changes?limit=0", "").WantAdminError(t, 400, "limit")
	s.AdminRequest("POST", "/hooks/changes", "").WantAdminError(t, 405, "GET")
}

// However much is changed at once, little is kept of it, and what is left out is told.
func TestALargeChangeIsCut(t *testing.T) {
	s, lines := loggedHooks(t)
	s.Load("hooks {\n runner echo\n store memory\n}")
	long := strings.Repeat("<ä\\u0001", 2000)
	s.PutMapping("long", `{"messageTemplate":"`+long+`","metadata":{"k":"`+long+`"},"chatId":"short"}`)
	changes, _ := changesOf(s, "/hooks/changes")
	var after struct{ MessageTemplate, Metadata, ChatID string }
	part := changes[0].Changes[0]
	if err := json.Unmarshal(part.After, &after); err != nil || !part.Cut {
		t.Fatalf("got %s, cut %v, %v", part.After, part.Cut, err)
	}
	if !strings.HasPrefix(after.MessageTemplate, "<ä\u0001<ä") || !strings.HasSuffix(after.MessageTemplate, "…") || len(after.MessageTemplate) > 4<<10 ||
		!strings.HasPrefix(after.Metadata, `{"k":"<ä`) || !strings.HasSuffix(after.Metadata, "…") || after.ChatID != "short" {
		t.Errorf("the mapping is shown as %s", part.After)
	}

	var hooks []string
	for i := range 300 {
		hooks = append(hooks, fmt.Sprintf(`{"name":"hook-%d%s","messageTemplate":"%s"}`, i, strings.Repeat("x", 50), strings.Repeat("y", 5000)))
	}
	s.PatchSettings(`{"mappings":[` + strings.Join(hooks, ",") + `]}`)
	changes, _ = changesOf(s, "/hooks/changes?limit=1")
	change := changes[0]
	if len(change.Changes) != 100 || change.More != 201 {
		t.Errorf("%d hooks are listed, and %d more", len(change.Changes), change.More)
	}
	if last := change.Changes[99]; !last.Cut || last.Before != nil || last.After != nil || !strings.HasPrefix(last.What, "mappings/hook-99x") {
		t.Errorf("the last part is %+v", last)
	}
	if body := s.AdminRequest("GET", "/hooks/changes?limit=1", "").Body; len(body) > 64<<10 {
		t.Errorf("the change takes %d bytes", len(body))
	}
	line := lines("live settings changed")[1]
	if names, _ := line["what"].([]any); len(names) != 100 || line["more"] != 201.0 {
		t.Errorf("the log tells %v and %v more", line["what"], line["more"])
	}
}

func TestAChangeThroughAUnixSocketSaysSo(t *testing.T) {
	s := hookstest.NewServer(t)
	socket := filepath.Join(t.TempDir(), "admin.sock")
	s.Admin = "http://unix/" + socket
	s.Load("hooks {\n runner echo\n store memory\n}")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	ask := func(method, path, body string) string {
		t.Helper()
		req, err := http.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = ""
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s %s: got %d %s, %v", method, path, resp.StatusCode, data, err)
		}
		return string(data)
	}
	ask("PATCH", "/hooks/settings", `{"enabled":true}`)
	if list := ask("GET", "/hooks/changes", ""); !strings.Contains(list, `"address":"unix socket"`) {
		t.Errorf("the list is %s", list)
	}
}

func TestAChangeByAnotherNodeIsTakenOver(t *testing.T) {
	s, lines := loggedHooks(t)
	data := uuid.NewString()
	node := func(name string) string {
		return "hooks " + name + " {\n store shared " + data + "\n path /" + name + "\n}\n"
	}
	s.Load(node("a") + node("b"))
	for i, by := range []string{"a", "b", "a"} {
		if resp := s.AdminRequest("PATCH", "/hooks/instances/"+by+"/settings", fmt.Sprintf(`{"defaultTimeoutSeconds":%d}`, i+1)); resp.Status != 200 {
			t.Fatalf("got %d %s", resp.Status, resp.Body)
		}
		for _, name := range []string{"a", "b"} {
			if changes, _ := changesOf(s, "/hooks/instances/"+name+"/changes"); len(changes) != i+1 || changes[0].Revision != int64(i+1) {
				t.Errorf("node %s lists %v", name, changes)
			}
		}
		hookstest.Eventually(t, "the change is taken over", func() bool { return len(lines("live settings taken over")) > i })
		changed, takenOver := lines("live settings changed"), lines("live settings taken over")
		if len(changed) != i+1 || changed[i]["instance"] != by {
			t.Errorf("the log tells about the changes %v", changed)
		}
		other := map[string]string{"a": "b", "b": "a"}[by]
		if len(takenOver) != i+1 || takenOver[i]["instance"] != other || takenOver[i]["revision"] != float64(i+1) || takenOver[i]["what"] != nil {
			t.Errorf("of changes by others the log tells %v", takenOver)
		}
	}
}

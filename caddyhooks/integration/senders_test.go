package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// senderRow is what came of the requests of one sender. "-" stands for what the sender does not do, "WRONG" for what must not be.
type senderRow struct {
	test     schemeTest
	valid    string // the status of the answer to a good request
	changed  string // of one with one bit changed: of the body or, if that is not signed, of the credential
	unsigned string
	old      string
	future   string
	rotated  string // old and new secret pass while the hook has both, and the old one no longer once it is gone
	same     string // the very same request again
	repeated string // the event again, as the sender repeats it: with a new time, signature and body; "once" or "folded" by a line of its recipe
	tried    string // how the sender tries the hook out, if it is answered
	signer   string
}

func (r *senderRow) cells() []string {
	return []string{r.test.sender, r.valid, r.changed, r.unsigned, r.old, r.future, r.rotated, r.same, r.repeated, r.tried, r.signer}
}

// publishedVectors are the schemes with a signature that their sender has published, which TestVectorsOfSenders of package intake checks.
var publishedVectors = []string{"github", "standard", "slack", "sendgrid"}

// vouchedFor are the rows whose requests a library signs, or takes for genuine.
var vouchedFor = []string{"github", "gitlab-signed", "bitbucket", "stripe", "slack", "shopify", "linear", "discord", "telegram", "twilio",
	"twilio-json", "hubspot", "square", "sendgrid", "notion", "zoom", "meta", "standard", "svix"}

// fewestSenders is how many rows there are at least: a row is not lost unnoticed.
const fewestSenders = 30

// statusCell is the status of an answer as a cell.
func statusCell(t *testing.T, what string, resp hookstest.Response, want int) string {
	t.Helper()
	if resp.Status != want {
		t.Errorf("%s: answered %d %s, want %d", what, resp.Status, resp.Body, want)
		return fmt.Sprint("WRONG ", resp.Status)
	}
	return fmt.Sprint(resp.Status)
}

// Each sender's requests are tried with a hook of a running Caddy. The page about authentication says the same of every sender.
func TestSenders(t *testing.T) {
	t.Parallel()
	s := startSchemeSite(t, "old")
	rows := make([]*senderRow, len(schemeTests))
	t.Run("requests", func(t *testing.T) {
		for i, c := range schemeTests {
			rows[i] = &senderRow{test: c, changed: "-", old: "-", future: "-", rotated: "-", same: "-", repeated: "-", tried: "-"}
			t.Run(c.sender, func(t *testing.T) {
				t.Parallel()
				s.tryOut(t, rows[i])
				s.sendEvents(t, rows[i])
			})
		}
	})
	for _, path := range []string{"/hooks/refused", "/hooks/settings"} {
		shown := s.AdminRequest("GET", path, "").Body
		s.signatures.Range(func(signature, sender any) bool {
			if strings.Contains(shown, signature.(string)) {
				t.Errorf("%s shows a credential of %s", path, sender)
			}
			return true
		})
	}
	s.replaceSecrets(t, rows)

	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "sender\tvalid\tone bit\tunsigned\told\tfuture\trotated\tsame request\tevent again\thandshake\tsigned by")
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row.cells(), "\t"))
		if slices.Contains(row.cells(), "") {
			t.Errorf("the row of %s is not complete", row.test.sender)
		}
		if slices.Contains(vouchedFor, row.test.sender) != strings.HasPrefix(row.signer, "SDK ") {
			t.Errorf("the requests of %s are signed by %s", row.test.sender, row.signer)
		}
	}
	w.Flush()
	if len(rows) < fewestSenders {
		t.Errorf("there are %d senders", len(rows))
	}
	t.Logf("%d senders:\n%s", len(rows), table.String())
	wantDocumented(t, rows)
}

// sendEvents sends requests of one sender, good ones and bad ones.
func (s *schemeSite) sendEvents(t *testing.T, row *senderRow) {
	c, now := row.test, time.Now()
	refused := func(what string, r signedRequest) string {
		t.Helper()
		return statusCell(t, what, s.send(t, r), http.StatusUnauthorized)
	}
	good := s.signed(t, c, "old", "1", now)
	switch {
	case good.vouched != "":
		row.signer = "SDK " + good.vouched
	case c.nobody:
		row.signer = "we"
	case slices.Contains(publishedVectors, c.scheme()):
		row.signer = "document"
	default:
		row.signer = "we, after its documents"
	}
	bare := signedRequest{url: s.URL + "/api/hooks/" + c.sender, body: c.unsignedBody("1", now)}
	row.unsigned = refused("unsigned", bare)
	for _, header := range c.needed {
		r := good
		i := slices.IndexFunc(r.headers, func(h string) bool { return strings.EqualFold(h, header) })
		if i < 0 {
			t.Fatalf("the sender sends no %s: %v", header, r.headers)
		}
		value := r.headers[i+1]
		if _, err := time.Parse(time.RFC3339, value); err != nil && len(value) > 15 { // and no time or number
			s.signatures.Store(value, c.sender)
		}
		r.headers = slices.Delete(slices.Clone(r.headers), i, i+2)
		refused("without "+header, r)
		r.headers = append(slices.Clone(r.headers), header, "")
		refused("with an empty "+header, r)
	}
	refused("with a wrong secret", s.signed(t, c, "wrong", "2", now))
	row.changed = refused("with one bit changed", s.oneBitChanged(t, c, good))
	if !c.bodiless {
		r := good
		r.body += " "
		if c.lines == "body form" {
			r.body = good.body + "&b=2"
		}
		refused("with a longer body", r)
	}
	if c.timed > 0 {
		row.old = refused("from long ago", s.signed(t, c, "old", "3", now.Add(-c.timed-time.Minute)))
		row.future = refused("from the future", s.signed(t, c, "old", "4", now.Add(c.timed+time.Minute)))
	}

	runs := 0
	accepted := func(what string, r signedRequest) (first hookstest.Response, cell string) {
		t.Helper()
		runs++
		first = s.send(t, r)
		first.WantNew(t, c.accepted())
		return first, statusCell(t, what, first, c.accepted())
	}
	again := func(r signedRequest, first hookstest.Response) string {
		t.Helper()
		resp := s.send(t, r)
		resp.WantReplay(t, first)
		if resp.Header.Get("Idempotent-Replayed") == "" {
			return "WRONG"
		}
		return "one run"
	}
	first, cell := accepted("a good request", good)
	row.valid = cell
	if len(c.ids) > 0 || c.timed > 0 && c.kind != issuerKey {
		row.same = again(good, first)
	}
	switch c.recognised() {
	case "":
		if len(c.ids) > 0 {
			row.repeated = again(s.repeated(t, c, "1", now), first)
		}
	case "once":
		if row.repeated = strings.Replace(again(s.repeated(t, c, "1", now), first), "one run", "once", 1); c.timed == 0 {
			row.same = strings.Replace(again(good, first), "one run", "once", 1)
		}
	case "fold":
		same, _ := accepted("the same again", good)
		repeated, _ := accepted("the event again", s.repeated(t, c, "1", now))
		row.same, row.repeated = s.folded(t, same, first), s.folded(t, repeated, first)
	}
	for i, header := range c.ids[min(1, len(c.ids)):] { // other headers that may name the event
		n := fmt.Sprint("10", i)
		rename := func(r signedRequest) signedRequest {
			at := slices.IndexFunc(r.headers, func(h string) bool { return strings.EqualFold(h, c.ids[0]) })
			if at < 0 {
				t.Fatalf("the sender sends no %s: %v", c.ids[0], r.headers)
			}
			r.headers[at] = header
			return r
		}
		first, _ := accepted("with "+header, rename(s.signed(t, c, "old", n, now)))
		if row.repeated == "one run" {
			row.repeated = again(rename(s.repeated(t, c, n, now)), first)
		}
	}
	if c.timed > 0 {
		accepted("from a while ago", s.signed(t, c, "old", "5", now.Add(-c.timed/2)))
	}
	accepted("another event", s.signed(t, c, "old", "6", now))
	if ids, _ := s.Listed("?hook=" + c.sender); len(ids) != runs {
		t.Errorf("there are %d runs, want %d", len(ids), runs)
	}
}

// folded is "folded" if the run of a request shares the turn of the first one.
func (s *schemeSite) folded(t *testing.T, resp, first hookstest.Response) string {
	t.Helper()
	run := func(resp hookstest.Response) hookstest.RunView {
		t.Helper()
		id := runID.FindStringSubmatch(resp.Body)
		if id == nil {
			t.Fatalf("the answer %s has no run", resp.Body)
		}
		return s.Ended(id[1])
	}
	if follower, leader := run(resp), run(first); follower.FoldedInto != leader.RunID || leader.Folded != 3 {
		t.Errorf("the runs are %s and %s", follower.Body, leader.Body)
		return "WRONG"
	}
	return "folded"
}

var runID = regexp.MustCompile(`"runId":"([^"]+)"`)

// repeated is an event of a number again: sent a little earlier or later, and signed anew. All but its id may differ.
func (s *schemeSite) repeated(t *testing.T, c schemeTest, n string, at time.Time) signedRequest {
	t.Helper()
	if c.sameBody {
		return s.signed(t, c, "old", n, at)
	}
	at = at.Add(-2 * time.Second)
	body := c.unsignedBody(n, at)
	changed := strings.Replace(body, "original", "repeated", 1)
	if changed == body {
		t.Fatalf("the body %s has nothing to change", body)
	}
	return s.signedBody(t, c, "old", n, at, changed)
}

// oneBitChanged changes one bit of the body or, if that is not signed, of the credential.
func (s *schemeSite) oneBitChanged(t *testing.T, c schemeTest, r signedRequest) signedRequest {
	t.Helper()
	secret, _ := c.secret("old")
	part := "original"
	switch {
	case c.sender == "mailgun": // which sends a signature of a token beside the body
		part = regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(r.body)[1]
	case c.kind == issuerKey:
		_, part, _ = strings.Cut(r.headers[1], " ")
		part = part[strings.LastIndex(part, ".")+1:] // the signature of the token
	case c.bodiless:
		part = secret
	}
	letter := part[0]
	for _, bit := range []byte{1, 2, 4, 8} {
		if letter = part[0] ^ bit; regexp.MustCompile(`[0-9A-Za-z]`).MatchString(string(letter)) {
			break
		}
	}
	changed := string(letter) + part[1:]
	other := signedRequest{url: strings.Replace(r.url, part, changed, 1), body: strings.Replace(r.body, part, changed, 1), headers: slices.Clone(r.headers)}
	for i := 1; i < len(other.headers); i += 2 {
		other.headers[i] = strings.Replace(other.headers[i], part, changed, 1)
	}
	if reflect.DeepEqual(other, signedRequest{url: r.url, body: r.body, headers: r.headers}) {
		t.Fatalf("%s is nowhere in %s %v", part, r.body, r.headers)
	}
	return other
}

// tryOut sends what a sender sends to try the hook out. No run comes of it.
func (s *schemeSite) tryOut(t *testing.T, row *senderRow) {
	c := row.test
	var methods []string
	for _, h := range c.handshakes {
		r := signedRequest{url: s.URL + "/api/hooks/" + c.sender + h.query, body: h.body}
		if h.hook != "" {
			r.url = s.URL + "/api/hooks/" + h.hook
		}
		if h.signed {
			r = s.signedBody(t, c, "old", "1", time.Now(), h.body)
			statusCell(t, "a forged handshake", s.sendAs(t, h.method, s.signedBody(t, c, "wrong", "1", time.Now(), h.body), h.headers...), http.StatusUnauthorized)
		}
		for range 2 { // one that is repeated is none that was carried out
			resp := s.sendAs(t, h.method, r, h.headers...)
			answered := statusCell(t, h.method+" "+h.query+h.body, resp, h.status)
			if want := strings.TrimSpace(h.want + r.answer); h.status < 300 && !sameAnswer(resp.Body, want) {
				t.Errorf("%s %s%s: answered %s, want %s", h.method, h.query, h.body, resp.Body, want)
				answered = "WRONG"
			}
			if !slices.Contains(methods, h.method) {
				methods = append(methods, h.method)
			}
			if strings.HasPrefix(answered, "WRONG") {
				methods = append(methods, answered)
			}
			if h.hook != "" {
				break // Notion tells its secret once
			}
		}
	}
	if methods != nil {
		row.tried = strings.Join(methods, ", ")
	}
	if ids, _ := s.Listed("?hook=" + c.sender); len(ids) > 0 {
		t.Errorf("a handshake started the runs %v", ids)
	}
}

// sameAnswer compares two answers, as JSON if they are.
func sameAnswer(got, want string) bool {
	var a, b any
	if json.Unmarshal([]byte(got), &a) == nil && json.Unmarshal([]byte(want), &b) == nil {
		return reflect.DeepEqual(a, b)
	}
	return strings.TrimSpace(got) == want
}

// replaceSecrets replaces the secrets of all hooks while their senders go on sending.
func (s *schemeSite) replaceSecrets(t *testing.T, rows []*senderRow) {
	t.Helper()
	n := 1000
	everybody := func(secret string, isGood bool) {
		t.Helper()
		for _, row := range rows {
			if row.test.kind == issuerKey {
				continue // whose keys are those of the issuer
			}
			n++
			status := http.StatusUnauthorized
			if isGood {
				status = row.test.accepted()
			}
			what := fmt.Sprintf("%s with the %s secret", row.test.sender, secret)
			answered := statusCell(t, what, s.send(t, s.signed(t, row.test, secret, fmt.Sprint(n), time.Now())), status)
			switch {
			case strings.HasPrefix(answered, "WRONG"):
				row.rotated = answered
			case row.rotated == "-":
				row.rotated = "ok"
			}
		}
	}
	during := func(secret string, load ...string) {
		t.Helper()
		var loading sync.WaitGroup
		defer loading.Wait()
		var loaded atomic.Bool
		loading.Go(func() {
			if err := s.TryLoad(s.hooks(load...)); err != nil {
				t.Errorf("loading the secrets %v: %v", load, err)
			}
			loaded.Store(true)
		})
		for over := false; !over; { // at least once after it
			over = loaded.Load()
			everybody(secret, true)
		}
	}
	everybody("new", false)
	during("old", "old", "new")
	everybody("old", true)
	everybody("new", true)
	during("new", "new", "old") // the order does not matter
	during("new", "new")
	everybody("new", true)
	everybody("old", false)
}

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	recipeLink = regexp.MustCompile(`\[([^\]]+)\]\(\.\./\.\./\.\./examples/senders/([^)/]+)\)`)
)

// wantDocumented compares the table of senders in authentication.md with what came of their requests. The page leads to every recipe.
func wantDocumented(t *testing.T, rows []*senderRow) {
	t.Helper()
	documented := map[string][]string{} // the cells, by scheme
	for _, cells := range tableRows(t, "Senders") {
		code := codeSpan.FindStringSubmatch(cells[1])
		if code == nil || len(cells) != 6 {
			t.Fatalf("the row %q has no scheme", cells)
		}
		documented[code[1]] = cells
	}
	for _, sender := range settings.Senders {
		cells := documented[sender.Name]
		if cells == nil {
			t.Errorf("the table does not have %s", sender.Name)
			continue
		}
		var lines, ids, times, handshakes []string // ids are also once and fold
		for _, row := range rows {
			c := row.test
			if c.scheme() != sender.Name {
				continue
			}
			if c.lines != "" {
				lines = append(lines, c.lines)
			}
			for _, id := range append(slices.Clone(c.ids), c.recognised()) {
				if id != "" && !slices.Contains(ids, strings.ToLower(id)) {
					ids = append(ids, strings.ToLower(id))
				}
			}
			switch {
			case row.old != "-":
				times = append(times, strings.TrimSuffix(fmt.Sprintf("%.0f minutes", c.timed.Minutes()), map[bool]string{true: "s"}[c.timed == time.Minute]))
			case !c.bodiless:
				times = append(times, "forever")
			}
			if row.tried != "-" {
				handshakes = append(handshakes, row.tried)
			}
		}
		codes := func(cell string) (found []string) {
			for _, code := range codeSpan.FindAllStringSubmatch(cell, -1) {
				found = append(found, code[1])
			}
			return found
		}
		if got := codes(cells[1])[1:]; !slices.Equal(got, lines) {
			t.Errorf("%s: the table has the lines %v, want %v", sender.Name, got, lines)
		}
		for _, word := range []string{"forever", "1 minute", "3 minutes", "5 minutes"} {
			if slices.Contains(times, word) != strings.Contains(cells[3], word) {
				t.Errorf("%s: the table has %q, want %v", sender.Name, cells[3], times)
			}
		}
		got := codes(strings.ToLower(cells[4]))
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) {
			t.Errorf("%s: the table has the ids %v, want %v", sender.Name, got, ids)
		}
		if want := strings.Join(handshakes, ", "); cells[5] != want {
			t.Errorf("%s: the table has the handshake %q, want %q", sender.Name, cells[5], want)
		}
	}
	if len(documented) != len(settings.Senders) {
		t.Errorf("the table has %d senders, and there are %d", len(documented), len(settings.Senders))
	}
	page := string(readFile(t, filepath.Join(root, "caddyhooks", "docs", "reference", "authentication.md")))
	dirs, err := os.ReadDir(filepath.Join(root, "examples", "senders"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if !slices.ContainsFunc(recipeLink.FindAllStringSubmatch(page, -1), func(link []string) bool { return link[2] == dir.Name() }) {
			t.Errorf("the page does not lead to the recipe for %s", dir.Name())
		}
	}
}

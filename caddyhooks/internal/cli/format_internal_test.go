package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func TestDurationsAsPeopleReadThem(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration][2]string{ // briefly and roughly
		-time.Second:                             {"0ms", "0s"},
		412 * time.Millisecond:                   {"412ms", "0s"},
		999_999 * time.Microsecond:               {"999ms", "1s"},
		2_140 * time.Millisecond:                 {"2.1s", "2s"},
		18 * time.Second:                         {"18s", "18s"},
		59_960 * time.Millisecond:                {"1m", "1m"},
		5 * time.Minute:                          {"5m", "5m"},
		90 * time.Second:                         {"1m30s", "1m30s"},
		90 * time.Minute:                         {"1h30m", "1h30m"},
		50 * time.Hour:                           {"2d2h", "2d2h"},
		time.Hour + 30*time.Second:               {"1h", "1h"},
		59*time.Minute + 59_900*time.Millisecond: {"1h", "1h"},
	} {
		if got := [2]string{terminal.Briefly(d), terminal.Roughly(d)}; got != want {
			t.Errorf("%v is shown as %q, want %q", d, got, want)
		}
	}
}

func TestTimesAsPeopleReadThem(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("here", 2*60*60)
	c := terminal.Clock{Now: time.Date(2026, 11, 16, 1, 0, 0, 0, zone)}
	at := func(hour, minute int) *time.Time {
		utc := time.Date(2026, 11, 15, hour, minute, 0, 0, time.UTC)
		return &utc
	}
	for _, it := range []struct {
		at        *time.Time
		when, ago string
	}{
		{nil, "", ""},
		{at(22, 59), "00:59:00", "1m ago"},
		{at(21, 59), "2026-11-15 23:59:00", "1h1m ago"},
		{at(23, 1), "01:01:00", "in 1m"},
	} {
		if when, ago := c.When(it.at), c.Ago(it.at); when != it.when || ago != it.ago {
			t.Errorf("%v is shown as %q and %q, want %q and %q", it.at, when, ago, it.when, it.ago)
		}
	}
}

func TestNumbersAsPeopleReadThem(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1284: "1,284", 1234567: "1,234,567", -1284: "-1,284", -128: "-128"} {
		if got := terminal.WithCommas(n); got != want {
			t.Errorf("%d is shown as %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{1: "1 byte", 1023: "1,023 bytes", 1536: "1.5 KB", 2048: "2 KB", 214 << 20: "214 MB", 3 << 40: "3 TB"} {
		if got := terminal.ByteSize(n); got != want {
			t.Errorf("%d bytes are shown as %q, want %q", n, got, want)
		}
	}
	for usd, want := range map[float64]string{0: "$0", 0.00001: "< $0.0001", 0.0042: "$0.0042", 1.23456: "$1.2346", 99.5: "$99.5000", 1284.5: "$1,284.50"} {
		if got := terminal.Dollars(usd); got != want {
			t.Errorf("%v dollars are shown as %q, want %q", usd, got, want)
		}
	}
	for want, of := range map[string][2]int64{"0 %": {0, 10}, "1.0 %": {13, 1284}, "< 0.1 %": {1, 100_000}, "100.0 %": {3, 3}} {
		if got := terminal.ShareOf(of[0], of[1]); got != want {
			t.Errorf("%d of %d are shown as %q, want %q", of[0], of[1], got, want)
		}
	}
	if chat := shortChat("hook:5b7e0c1a-4c1e-7b02-9d55-1f0c6c0e7a31"); chat != "hook:5b7e0c1a…" {
		t.Errorf("a chat is shown as %q", chat)
	}
	if chat := shortChat(strings.Repeat("ü", 40)); chat != strings.Repeat("ü", 31)+"…" {
		t.Errorf("a chat is shown as %q", chat)
	}
}

// An instance that is busy, as the admin API tells of it.
const (
	busyAbout = `{"instance":"default","path":"/api/hooks","urls":["https://example.com/api/hooks"],"on":true,"runner":"http","runners":[{"name":"default","kind":"http"}],"store":"bolt","storeBytes":224395264}`

	busyOverview = `{"range":"1h","figures":{"accepted":1284,"running":7,"workers":16,"queued":23,"oldestSeconds":4.2,"ended":1261,"completed":1248,"failed":12,"timedOut":1,
		"medianSeconds":2.1,"p95Seconds":9.4,"p99Seconds":18.2,"delivered":402,"pending":5,"dead":3},"series":[],"hooks":[{"name":"agent","points":[[1,2]]}],"attention":[
		{"kind":"dead_deliveries","text":"3 deliveries to callbacks.acme.dev were given up","detail":"410 Gone","link":"#/deliveries?host=callbacks.acme.dev&status=dead","severity":"bad"},
		{"kind":"failing_hook","text":"12 of 40 runs of stripe did not complete","link":"#/runs?hook=stripe&since=1h&status=failed%2Ctimed_out%2Cexpired","severity":"bad"},
		{"kind":"not_in_force","text":"hook old-alerts is saved and not in force","detail":"channel names no channel that is configured here","link":"#/settings/hooks/old-alerts","severity":"bad"},
		{"kind":"runner_unreachable","text":"the agent has been out of reach for 40s, and 23 runs are queued","link":"#/runs?status=queued","severity":"bad"},
		{"kind":"refused_burst","text":"40 requests to stripe were refused within an hour","link":"#/runs/refused?hook=stripe","severity":"late"},
		{"kind":"warning","text":"hook stripe: authSecret has fewer than 16 characters and can be guessed","link":"#/settings/hooks/stripe","severity":"late"},
		{"kind":"dead_deliveries","text":"1 delivery to x;$(reboot) was given up","link":"#/deliveries?host=x%3B%24%28reboot%29%27&status=dead","severity":"bad"}]}`

	badRuns = `[{"status":"failed","runId":"019a86f2-4c1e-7b02-9d55-1f0c6c0e7a31","chatId":"hook:5b7e0c1a-4c1e-7b02-9d55-1f0c6c0e7a31","hook":"stripe-invoices","acceptedAt":"2026-11-16T10:59:12Z",
		"startedAt":"2026-11-16T10:59:12Z","finishedAt":"2026-11-16T10:59:30.4Z","errorMessage":"The run failed.","reason":"the answer did not match the schema after 3 repairs"},
		{"status":"timed_out","runId":"019a86ed-3f90-7c41-8e0a-77b1f6a20c55","chatId":"hook:c0 4d7712","hook":"agent","acceptedAt":"2026-11-15T10:53:50Z",
		"startedAt":"2026-11-15T10:53:50Z","finishedAt":"2026-11-15T10:58:50Z","errorMessage":"time was up after 5m"}]`
)

func TestABusyInstanceInATerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := &session{client: &client{&adminclient.Client{Address: "localhost:2019"}}, screen: printer{terminal.New(strings.NewReader(""),
		&out, &out)}, instance: "default"}
	status := instanceStatus{Instance: "default", About: json.RawMessage(busyAbout), Overview: json.RawMessage(busyOverview)}
	out.WriteString("$ caddy hooks status\n")
	if err := s.showStatus(new(cobra.Command), status, false); err != nil {
		t.Fatal(err)
	}
	var runs []api.RunSummary
	if err := json.Unmarshal([]byte(badRuns), &runs); err != nil {
		t.Fatal(err)
	}
	out.WriteString("$ caddy hooks runs --status failed,timed_out --since 48h --limit 2\n")
	list := runsOf("failed,timed_out")
	list.print(s.screen.Rows(list.columns...), terminal.Clock{Now: time.Date(2026, 11, 16, 11, 0, 0, 0, time.UTC)}, runs)
	want, err := os.ReadFile(filepath.Join("..", "..", "testdata", "commands", "busy.txt"))
	if err != nil || out.String() != string(want) {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, out.String(), want)
	}
}

// The words of a command and its flags, as a person reads about them.
func TestEveryVerbExplainsItself(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "hooks"}
	HooksCommand(root)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			if child.Hidden {
				continue
			}
			if child.Short == "" || strings.HasSuffix(child.Short, ".") || child.Long == "" && child.Example == "" && !child.HasSubCommands() {
				t.Errorf("%s has the words %q, and a longer text of %d bytes", child.CommandPath(), child.Short, len(child.Long))
			}
			walk(child)
		}
	}
	walk(root)
}

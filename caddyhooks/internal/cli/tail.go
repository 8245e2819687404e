package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func tailVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail [--hook HOOK,…]",
		Short: "Prints a line for each thing that happens, as it happens",
		Long: `
Prints a line whenever a run is accepted, started or ended, an answer is sent out, requests are refused or ignored, or live settings are
changed. It begins with what happens next; caddy hooks runs shows what was before. Refused requests of one kind share a line.

It goes on when Caddy reloads its configuration or restarts, and says so on stderr. If more happens than can be read, some of it is left
out, and how much is said there, too. Ctrl-C ends it. With --json each line is an object with the member run, delivery, refused or
settings.`,
		Example: `  caddy hooks tail
  caddy hooks tail --hook github-issues,stripe
  caddy hooks tail --json | jq 'select(.run.status == "failed")'`,
		RunE: withSession(runTail),
	}
	addFilters(cmd, tailFilters)
	return cmd
}

var tailFilters = []filter{{flag: "hook", parameter: "hook", complete: flags.CompleteSeveral(completeAllHooks),
	usage: "only what is about this hook, or about several with commas between them"}}

func runTail(s *session, cmd *cobra.Command, _ []string) error {
	query, err := filterQuery(cmd, tailFilters)
	if err != nil {
		return err
	}
	s.noteUnknownHooks(query.Get("hook"))
	t := &tail{session: s, wanted: newRunFilter(query), rows: s.screen.Rows().AtLeast(tailWidths...)}
	topics := []api.Topic{api.TopicRuns, api.TopicDeliveries, api.TopicRefused, api.TopicSettings}
	if query.Has("hook") {
		topics = topics[:3] // settings are of no hook
	}
	return s.follow(topics, t.event)
}

// tailWidths are the widths of the columns: a time, a status, a hook, a duration and the id of a run.
var tailWidths = []int{len(time.TimeOnly), len("completed"), 12, len("18.4s"), len(uuid.Nil.String())}

// tail prints a line for each event.
type tail struct {
	*session
	wanted  *runFilter
	rows    *terminal.Rows
	started bool
	since   time.Time // the latest time that Caddy has named
}

func (t *tail) event(event streamEvent) error {
	switch event.name {
	case "hello":
		var hello struct {
			Now time.Time `json:"now"`
		}
		if err := t.decode(event.data, &hello); err != nil {
			return err
		}
		if !t.started {
			t.started, t.since = true, hello.Now
			if t.screen.IsTerminal() {
				t.screen.Note("Waiting for something to happen. Ctrl-C ends this.")
			}
		}
		return nil
	case "reset":
		return t.catchUp()
	case "runs":
		return t.eachRow(event, t.run)
	case "deliveries":
		return t.eachRow(event, t.delivery)
	case "refused":
		return t.eachRow(event, t.refused)
	case "settings":
		return t.settings(event.data)
	default:
		return nil
	}
}

func (t *tail) eachRow(event streamEvent, show func(json.RawMessage) error) error {
	rows, err := t.eventRows(event)
	for _, raw := range rows {
		err = errors.Join(err, show(raw))
	}
	return err
}

// catchUp shows the runs that were accepted while there was no connection.
func (t *tail) catchUp() error {
	query := url.Values{"since": {t.since.Format(time.RFC3339Nano)}}
	rows, more, err := t.walk(listing{path: "runs", member: "runs", query: query, limit: api.MaxPage}, func(page listPage) (err error) {
		for i := len(page.rows) - 1; i >= 0; i-- {
			err = errors.Join(err, t.run(page.rows[i]))
		}
		return err
	})
	if more {
		t.screen.Note("More than %s meanwhile; caddy hooks runs shows them.", terminal.Counted(rows, "run was accepted", "runs were accepted"))
	}
	return err
}

func (t *tail) run(raw json.RawMessage) error {
	var run api.RunSummary
	if err := t.decode(raw, &run); err != nil {
		return err
	}
	at := cmp.Or(run.FinishedAt, run.StartedAt, run.AcceptedAt)
	if run.Status == engine.Queued {
		at = run.AcceptedAt
	}
	t.saw(at)
	if !t.wanted.matches(&run) || !t.wanted.news.isNews(run.RunID, string(run.Status)) {
		return nil
	}
	if t.json {
		return t.line("run", raw)
	}
	took := ""
	if run.Status.Ended() {
		took = runTook(terminal.NewClock(), &run.Run)
	}
	t.print(at, run.Hook, statusCell(run.Status), took, run.RunID, about(&run))
	return nil
}

func (t *tail) delivery(raw json.RawMessage) error {
	var d api.DeliveryDetails
	if err := t.decode(raw, &d); err != nil {
		return err
	}
	at := cmp.Or(d.LastAttemptAt, d.CreatedAt)
	t.saw(at)
	if !t.wanted.ofHook(d.Hook) || !t.wanted.news.isNews(d.ID, fmt.Sprint(d.Status, d.Attempts)) || d.Status == engine.Pending &&
		d.Attempts == 0 {
		return nil
	}
	if t.json {
		return t.line("delivery", raw)
	}
	t.print(at, d.Hook, statusCell(d.Status), "", d.RunID, terminal.Plain(attempt(&d)))
	return nil
}

// refused shows that requests of a kind became no run.
func (t *tail) refused(raw json.RawMessage) error {
	var k api.Refused
	if err := t.decode(raw, &k); err != nil {
		return err
	}
	t.saw(k.LastAt)
	kind := fmt.Sprintf("refused %q %d %v %s", k.Hook, k.Status, k.Ignored, k.Reason)
	if !t.wanted.ofHook(k.Hook) || !t.wanted.news.isNews(kind, strconv.FormatInt(k.Count, 10)) {
		return nil
	}
	if t.json {
		return t.line("refused", raw)
	}
	what, about := terminal.Bad("refused"), strconv.Itoa(k.Status)+" "+refusedReason(&k)+", from "+k.Client
	if k.Ignored {
		what = terminal.Plain("ignored")
	}
	if k.Count > 1 {
		about += " (" + terminal.WithCommas(k.Count) + " in all)"
	}
	t.print(k.LastAt, cmp.Or(k.Hook, "(unknown)"), what, "", "", terminal.Plain(terminal.ShortText(about, maxReasonCell)))
	return nil
}

// attempt says what came of the last attempt at a delivery.
func attempt(d *api.DeliveryDetails) string {
	text := "to " + d.Target
	if d.Status != engine.Delivered && d.LastError != "" {
		text += ": " + d.LastError
	}
	if d.Attempts > 1 {
		text += fmt.Sprintf(" (%d attempts)", d.Attempts)
	}
	return terminal.ShortText(text, maxReasonCell)
}

func (t *tail) settings(data []byte) error {
	if t.json {
		return t.line("settings", data)
	}
	var change struct {
		Revision int64  `json:"revision"`
		By       string `json:"by"`
	}
	if err := t.decode(data, &change); err != nil {
		return err
	}
	now := time.Now()
	t.print(&now, "", terminal.Warn("settings"), "", "",
		terminal.Plain(fmt.Sprintf("changed by %s; caddy hooks changes shows how", change.By)))
	return nil
}

// saw remembers how far Caddy's clock is.
func (t *tail) saw(at *time.Time) {
	if at != nil && at.After(t.since) {
		t.since = *at
	}
}

// line prints an event as JSON.
func (t *tail) line(kind string, value json.RawMessage) error {
	t.screen.printLine(text.PlainJSON(map[string]json.RawMessage{kind: value}))
	return nil
}

func (t *tail) print(at *time.Time, hook string, what terminal.Text, took, run string, about terminal.Text) {
	t.rows.Print(terminal.Cells(terminal.NewClock().When(at), what, hook, took, run, about))
}

// followRuns lists runs, the oldest first, and then prints a row whenever one is accepted, started or ended.
func (s *session) followRuns(cmd *cobra.Command, list *resource[api.RunSummary]) error {
	l, err := list.selected(cmd)
	if err != nil {
		return err
	}
	if l.query.Has("until") || l.query.Has("q") {
		return flags.Usagef("--follow does not go with --until and --search: it shows what happens from now on")
	}
	s.noteUnknownHooks(l.query.Get("hook"))
	wanted, table := newRunFilter(l.query), s.screen.Rows(list.columns...)
	show := func(rows []json.RawMessage) error {
		for _, raw := range rows {
			var run api.RunSummary
			if err := s.decode(raw, &run); err != nil {
				return err
			}
			switch {
			case !wanted.matches(&run) || !wanted.news.isNews(run.RunID, string(run.Status)):
			case s.json:
				s.screen.printLine(raw)
			default:
				list.print(table, terminal.NewClock(), []api.RunSummary{run})
			}
		}
		return nil
	}
	isListed := false
	return s.follow([]api.Topic{api.TopicRuns}, func(event streamEvent) error {
		switch {
		case event.name == "runs":
			rows, err := s.eventRows(event)
			return errors.Join(err, show(rows))
		case event.name == "hello" && !isListed, event.name == "reset":
			isListed = true
			page, err := s.page(l, min(cmp.Or(l.limit, api.MaxPage), api.MaxPage), "")
			slices.Reverse(page.rows)
			return errors.Join(err, show(page.rows))
		}
		return nil
	})
}

// runFilter selects runs among events, as the API does in lists.
type runFilter struct {
	statuses, hooks []string
	chat            string
	news            news
}

func newRunFilter(query url.Values) *runFilter {
	return &runFilter{statuses: splitList(query.Get("status")), hooks: splitList(query.Get("hook")), chat: query.Get("chatId")}
}

func (f *runFilter) matches(r *api.RunSummary) bool {
	return (len(f.statuses) == 0 || slices.Contains(f.statuses, string(r.Status))) && f.ofHook(r.Hook) && (f.chat == "" || f.chat == r.ChatID)
}

// ofHook reports whether events of a hook are wanted.
func (f *runFilter) ofHook(name string) bool {
	return len(f.hooks) == 0 || slices.Contains(f.hooks, name)
}

// news tells apart what was printed and what was not.
type news struct{ last, before map[string]string } // the states of the last ones, and of those before them

// isNews reports whether something is in another state than when this was last asked.
func (n *news) isNews(id, state string) bool {
	const kept = 4096 // of so many runs at least it is known what was printed
	known, ok := n.last[id]
	if !ok {
		known = n.before[id]
	}
	if n.last == nil || len(n.last) == kept {
		n.last, n.before = make(map[string]string), n.last
	}
	n.last[id] = state
	return known != state
}

// streamEvent is an event as a client gets it.
type streamEvent struct {
	name, id string
	data     []byte // valid until the next event
}

const (
	// maxEvent bounds an event that a client reads.
	maxEvent = 16 << 20
	// silence is how long a stream may say nothing before it counts as lost.
	silence = 3 * api.PingEvery
	// firstReconnect is the first pause between attempts to reach a Caddy that is unreachable.
	firstReconnect = 100 * time.Millisecond
	// longReload is a pause after which it is said that Caddy is still unreachable.
	longReload = 500 * time.Millisecond
)

// LastReconnect is the longest pause between attempts to reach a Caddy that is unreachable. Tests shorten it.
var LastReconnect = 2 * time.Second

// follow hands over events until the person at the terminal has enough. When Caddy reloads its configuration, restarts or is out of
// reach, it says so and goes on as soon as it can. The first event of each connection is hello.
func (s *session) follow(topics []api.Topic, each func(streamEvent) error) error {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = api.TopicNames[t]
	}
	var stopped error // what each returned
	stream := eventStream{session: s, topics: strings.Join(names, ",")}
	stream.each = func(event streamEvent) error {
		stopped = each(event)
		return stopped
	}
	saidWaiting := false
	for pause := firstReconnect; ; {
		connected, err := stream.read()
		switch {
		case s.ctx.Err() != nil:
			return nil //nolint:nilerr // somebody does not want to wait any more
		case stopped != nil:
			return stopped
		case !stream.wasConnected && err == nil:
			return s.client.NoHooks()
		case !stream.wasConnected:
			return err
		case connected:
			s.screen.Note("%s", stream.farewell(err))
			pause, saidWaiting = firstReconnect, false
		case pause > longReload && !saidWaiting:
			s.screen.Note("Waiting until Caddy is back; Ctrl-C ends this.")
			saidWaiting = true
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-time.After(pause):
			pause = min(2*pause, LastReconnect)
		}
	}
}

// eventStream reads the events of an instance, over one connection after the other.
type eventStream struct {
	*session
	topics string
	each   func(streamEvent) error

	lastID       string // of the last event
	wasConnected bool
	bye          string // why the last connection ended, as Caddy says
}

// read reads the events of one connection. It reports whether there was one.
func (s *eventStream) read() (connected bool, err error) {
	call := adminclient.Call{Path: s.path("events"), Query: url.Values{"topics": {s.topics}}}
	if s.lastID != "" {
		call.Header = http.Header{"Last-Event-Id": {s.lastID}}
	}
	resp, err := s.client.Download(s.ctx, call, silence)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	s.bye = ""
	err = readEvents(resp.Body, func(event streamEvent) error {
		switch {
		case event.name == "bye":
			var bye struct {
				Reason string `json:"reason"`
			}
			_ = json.Unmarshal(event.data, &bye) // without a reason it is a farewell, too
			s.bye = bye.Reason
			return nil
		case event.name == "hello" && s.wasConnected:
			s.screen.Note("Connected again.")
		}
		s.wasConnected, connected = true, true
		if event.id != "" {
			s.lastID = event.id
		}
		return s.each(event)
	})
	return connected, err
}

// farewell says why a connection ended.
func (s *eventStream) farewell(err error) string {
	switch s.bye {
	case "reload":
		return "Caddy reloads its configuration."
	case "shutdown":
		return "Caddy shuts down."
	}
	if err == nil {
		return "The connection to Caddy ended."
	}
	return fmt.Sprintf("The connection to Caddy was lost (%v).", err)
}

var errLongEvent = errors.New("an event is too long")

// readEvents reads server-sent events until their end, or until each returns an error.
func readEvents(from io.Reader, each func(streamEvent) error) error {
	events := sse.NewReader(from, math.MaxInt64, maxEvent, errLongEvent)
	for events.Next() {
		if events.Name == "" {
			continue
		}
		if err := each(streamEvent{events.Name, events.ID, bytes.TrimSuffix(events.Data, []byte("\n"))}); err != nil {
			return err
		}
	}
	return events.Err()
}

// eventRows are the rows of an event about runs or deliveries. It says how many were left out.
func (s *session) eventRows(event streamEvent) (rows []json.RawMessage, err error) {
	var members map[string]json.RawMessage
	if err := s.decode(event.data, &members); err != nil {
		return nil, err
	}
	var skipped int
	if err := errors.Join(s.decode(members[event.name], &rows), s.decode(members["skipped"], &skipped)); err != nil {
		return nil, err
	}
	if skipped > 0 {
		s.screen.Note("%s at once went by unseen.", terminal.Counted(skipped, "more event", "more events"))
	}
	return rows, nil
}

// printLine prints a value of JSON on one line.
func (p printer) printLine(value json.RawMessage) {
	fmt.Fprintf(p.Out(), "%s\n", text.CompactJSON(value))
}

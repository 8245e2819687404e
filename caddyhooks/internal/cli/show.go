package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func showVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "show HOOK|RUN-ID|DELIVERY-ID",
		Short: "Shows all about a hook, a run or a delivery",
		Long: `
Shows all that is known about a hook, a run or a delivery. Of an id its beginning is enough, from eight characters of a run on, if no other
begins like that.`,
		Example: `  caddy hooks show github-issues
  caddy hooks show 019a86f2-4c1e
  caddy hooks show msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
		Args:              takesOne("what to show"),
		RunE:              withSession(runShow),
		ValidArgsFunction: completeOne(completeAny(completeAllHooks, runs.complete(), deliveries.complete())),
	}
}

func runShow(s *session, _ *cobra.Command, args []string) error {
	name := args[0]
	if strings.HasPrefix(name, deliveryPrefix) {
		return s.showDelivery(name)
	}
	hooks, _, err := s.listHooks("24h")
	if err != nil {
		return err
	}
	at := slices.IndexFunc(hooks, func(h listedHook) bool { return h.Name == name && h.Action != "" })
	switch {
	case at >= 0:
		return s.showHook(&hooks[at])
	case api.IsRunID(name, time.Now()):
		return s.showRun(name)
	default:
		return fmt.Errorf("there is no hook %q, and an id of a run or a delivery looks otherwise: caddy hooks list, caddy hooks runs and caddy hooks deliveries show what there is", text.Abridge(name))
	}
}

// deliveryPrefix is how ids of deliveries begin.
const deliveryPrefix = "msg_"

// wholeRunID finds the run whose id begins like that.
func (s *session) wholeRunID(beginning string) (string, error) {
	if uuid.Validate(beginning) == nil {
		return beginning, nil
	}
	const tellApart = 5
	var found []string
	l := listing{path: "runs", member: "runs", query: url.Values{"q": {beginning}}, limit: tellApart}
	_, _, err := s.walk(l, func(page listPage) error {
		runs, err := rowsOf[api.RunSummary](s, page)
		for i := range runs {
			found = append(found, runs[i].RunID)
		}
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", fmt.Errorf("there is no run whose id begins with %s: caddy hooks runs shows which there are", beginning)
	case len(found) > 1:
		return "", fmt.Errorf("several runs begin with %s: %s", beginning, text.List(found))
	default:
		return found[0], nil
	}
}

// runIDOf is the id of a run that an argument names whole or by its beginning. What is no id is for Caddy to refuse.
func (s *session) runIDOf(arg string) (string, error) {
	if !api.IsRunID(arg, time.Now()) {
		return arg, nil
	}
	return s.wholeRunID(arg)
}

// deliveryIDOf is runIDOf for a delivery.
func (s *session) deliveryIDOf(arg string) (string, error) {
	if !strings.HasPrefix(arg, deliveryPrefix) || strings.Count(arg, "_") > 1 {
		return arg, nil
	}
	return s.wholeDeliveryID(arg)
}

// fact is a name and a value.
type fact struct {
	name  string
	value terminal.Text
}

// facts are shown below each other. Those without a value are left out.
type facts []fact

func (f *facts) add(name, value string) {
	if value != "" {
		f.addText(name, terminal.Plain(value))
	}
}

func (f *facts) addText(name string, value terminal.Text) { *f = append(*f, fact{name, value}) }

func (s *session) showFacts(facts facts) {
	width := 0
	for _, f := range facts {
		width = max(width, len(f.name)+2)
	}
	for _, f := range facts {
		s.screen.Line(terminal.Faint(f.name).Padded(width), f.value)
	}
}

// showBlock shows a text of several lines below a title, whole.
func (s *session) showBlock(title, text string) {
	s.screen.Line()
	s.screen.Line(terminal.Bold(title))
	s.printLines(terminal.Plain("  "), text)
}

// showRun shows a run.
func (s *session) showRun(beginning string) error {
	id, err := s.wholeRunID(beginning)
	if err != nil {
		return err
	}
	var run api.RunDetails
	answer, err := s.get("runs/"+url.PathEscape(id), nil, &run)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(answer)
	}
	clock := newClock()
	s.showFacts(runFacts(&run, clock))
	s.showSteps(run.Steps, clock)
	for _, problem := range run.ValidationErrors {
		s.screen.Line(terminal.Bad("! "), terminal.Plain(problem))
	}
	if run.Message != nil {
		title := "Message"
		if run.MessageCut {
			title += ", of which not all was kept"
		}
		s.showBlock(title, *run.Message)
	}
	s.showJSONBlock("Metadata", run.Metadata)
	s.showJSONBlock("Schema", run.Schema)
	if run.Reply != nil {
		s.showBlock("Reply", *run.Reply)
	}
	if run.LastAnswer != "" {
		title := "Last answer"
		if len(run.ValidationErrors) > 0 {
			title += ", which did not match the schema"
		}
		s.showBlock(title, run.LastAnswer)
	}
	for _, p := range run.Permissions {
		s.screen.Line(terminal.Faint("The agent asked for "), terminal.Plain(p.Kind+" "+p.Title+": "+p.Answer))
	}
	if run.MorePermissions > 0 {
		s.screen.Line(terminal.Faint("The agent asked for "), terminal.Plain(counted(run.MorePermissions, "more permission", "more permissions")))
	}
	s.showSentOut(run.Deliveries, clock)
	return nil
}

func runFacts(r *api.RunDetails, clock clock) (f facts) {
	f.addText("run", terminal.Bold(r.RunID))
	f.addText("status", statusCell(r.Status))
	f.add("why", runReason(&r.RunSummary))
	f.add("hook", r.Hook)
	if r.Hook != string(r.Action) {
		f.add("action", string(r.Action))
	}
	f.add("name", r.Name)
	f.add("chat", r.ChatID)
	f.add("accepted", clock.whenAndAgo(r.AcceptedAt))
	f.add("started", clock.when(r.StartedAt))
	f.add("ended", clock.when(r.FinishedAt))
	f.add("took", clock.took(&r.Run))
	f.add("runner", r.Runner)
	f.add("tier", r.Tier)
	f.add("memory", r.MemoryPreset)
	f.add("client", r.Client)
	f.add("timeout", briefly(inUnits(r.TimeoutSeconds)))
	if r.Attempts > 1 {
		f.add("attempts", withCommas(r.Attempts))
	}
	if r.RepairAttempts > 0 {
		f.add("repairs", withCommas(r.RepairAttempts))
	}
	f.add("again of", r.AgainOf)
	f.add("again as", r.AgainAs)
	f.add("folded into", r.FoldedInto)
	if r.Folded > 0 {
		f.add("folded", counted(r.Folded, "run in one turn", "runs in one turn"))
	}
	if r.SessionRenewed {
		f.add("session", "the agent had lost the conversation, and began another one")
	}
	if r.Test {
		f.add("test", "yes: nothing is sent out")
	}
	f.add("trace", r.TraceParent)
	f.add("texts kept", clock.until(r.KeptUntil))
	return f
}

// until is a time in the future.
func (c clock) until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return "until " + c.when(t)
}

func (s *session) showJSONBlock(title string, value json.RawMessage) {
	if value != nil {
		s.showBlock(title, string(value))
	}
}

func (s *session) showSteps(steps []api.Step, clock clock) {
	if len(steps) == 0 {
		return
	}
	var rows [][]terminal.Text
	for _, s := range steps {
		bytes := ""
		if s.Bytes > 0 {
			bytes = byteSize(int64(s.Bytes))
		}
		rows = append(rows, []terminal.Text{terminal.Plain(clock.when(s.StartedAt)), terminal.Plain(string(s.Phase)), terminal.Plain(briefly(inUnits(s.Seconds))),
			terminal.Plain(s.Tier), terminal.Plain(bytes), terminal.Plain(strings.Join(s.Errors, "; "))})
	}
	s.screen.Line()
	s.screen.Table([]string{"AT", "STEP", "TOOK", "TIER", "ANSWER", "ERRORS"}, rows)
}

// showSentOut lists the deliveries of a run, each with its attempts.
func (s *session) showSentOut(deliveries []api.DeliveryDetails, clock clock) {
	for i := range deliveries {
		d := &deliveries[i]
		s.screen.Line()
		s.screen.Line(terminal.Bold("Delivery "+d.ID), terminal.Plain("  "), deliveryStatusCell(d.Status), terminal.Plain("  to "+d.Target))
		if next := clock.next(d); next != "" {
			s.screen.Line(terminal.Plain("  next attempt " + next + waitsForWords(d)))
		}
		s.showAttempts(d.History, clock)
	}
}

func waitsForWords(d *api.DeliveryDetails) string {
	if d.WaitsFor == "" {
		return ""
	}
	return ", waits for " + d.WaitsFor
}

func (s *session) showAttempts(history []api.Attempt, clock clock) {
	var rows [][]terminal.Text
	for _, a := range history {
		outcome := terminal.Good("delivered")
		if a.Error != "" {
			outcome = terminal.Plain(a.Error)
		}
		status := ""
		if a.Status != 0 {
			status = fmt.Sprint(a.Status)
		}
		rows = append(rows, []terminal.Text{terminal.Plain("  " + clock.when(a.At)), terminal.Plain(briefly(inUnits(a.Seconds))), terminal.Plain(status), outcome})
	}
	s.screen.Table(nil, rows)
}

// showDelivery shows a delivery by its id, or the beginning of it.
func (s *session) showDelivery(id string) error {
	if _, _, ok := engine.ParseDeliveryID(id); !ok {
		whole, err := s.wholeDeliveryID(id)
		if err != nil {
			return err
		}
		id = whole
	}
	var d api.DeliveryDetails
	answer, err := s.get("deliveries/"+url.PathEscape(id), nil, &d)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(answer)
	}
	clock := newClock()
	var f facts
	f.addText("delivery", terminal.Bold(d.ID))
	f.addText("status", deliveryStatusCell(d.Status))
	f.add("to", d.Target)
	f.add("attempts", withCommas(d.Attempts))
	f.add("last error", d.LastError)
	if next := clock.next(&d); next != "" {
		f.add("next", next+waitsForWords(&d))
	}
	f.add("created", clock.whenAndAgo(d.CreatedAt))
	f.add("last tried", clock.when(d.LastAttemptAt))
	f.add("run", d.RunID+" ("+statusWord(d.RunStatus)+")")
	f.add("hook", d.Hook)
	f.add("chat", d.ChatID)
	f.add("type", d.ContentType)
	s.showFacts(f)
	if d.History != nil {
		s.screen.Line()
		s.screen.Line(terminal.Bold("Attempts"))
		s.showAttempts(d.History, clock)
	}
	if d.LastAnswer != "" {
		s.showBlock("Last answer of the receiver", d.LastAnswer)
	}
	if d.Body != "" {
		s.showBlock("Body", d.Body)
	}
	return nil
}

// wholeDeliveryID finds the delivery whose id begins like that. It has the digits of its run.
func (s *session) wholeDeliveryID(beginning string) (string, error) {
	digits, _, _ := strings.Cut(strings.TrimPrefix(beginning, deliveryPrefix), "_")
	var id strings.Builder
	for i, digit := range digits {
		if i == 8 || i == 12 || i == 16 || i == 20 {
			id.WriteByte('-')
		}
		id.WriteRune(digit)
	}
	none := fmt.Errorf("there is no delivery whose id begins with %s: caddy hooks deliveries shows which there are", text.Abridge(beginning))
	if !api.IsRunID(id.String(), time.Now()) {
		return "", none
	}
	runID, err := s.wholeRunID(id.String())
	if err != nil {
		return "", err
	}
	var run api.RunDetails
	if _, err := s.get("runs/"+url.PathEscape(runID), nil, &run); err != nil {
		return "", err
	}
	var found []string
	for _, d := range run.Deliveries {
		if strings.HasPrefix(d.ID, beginning) {
			found = append(found, d.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", none
	case 1:
		return found[0], nil
	default:
		return "", fmt.Errorf("several deliveries begin with %s: %s", beginning, text.List(found))
	}
}

// showHook shows a hook.
func (s *session) showHook(hook *listedHook) error {
	var fields map[string]json.RawMessage
	answer, err := s.get("mappings/"+url.PathEscape(hook.Name), nil, &fields)
	var refused *refusedError
	if errors.As(err, &refused) && refused.status == http.StatusNotFound { // it is built in
		answer, err = text.PlainJSON(hook), nil
	}
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(answer)
	}
	var about api.About
	if _, err := s.get("about", nil, &about); err != nil {
		return err
	}
	clock := newClock()
	var f facts
	f.addText("hook", terminal.Bold(hook.Name))
	for _, base := range about.URLs {
		f.add("url", base+"/"+hook.Name)
	}
	f.add("action", string(hook.Action))
	f.add("auth", hook.AuthMode)
	switch {
	case fields == nil:
		f.add("from", "built in")
	case hook.Pinned:
		f.add("from", "the Caddyfile")
	default:
		f.add("from", "saved; caddy hooks changes shows by whom")
	}
	f.add("last 24h", fmt.Sprintf("%s, %s failed", counted(hook.Accepted, "run", "runs"), withCommas(hook.Failed)))
	f.add("last run", clock.whenAndAgo(hook.LastAt))
	var long []string // fields of several lines
	texts := make(map[string]string)
	for _, name := range settings.MappingFields {
		raw, ok := fields[name]
		if !ok || slices.Contains([]string{"name", "action", "authMode", "pinned"}, name) {
			continue
		}
		var value string
		if json.Unmarshal(raw, &value) != nil {
			value = string(text.CompactJSON(raw))
		}
		if strings.Contains(value, "\n") {
			long = append(long, name)
			texts[name] = value
		} else {
			f.add(name, value)
		}
	}
	s.showFacts(f)
	for _, name := range long {
		s.showBlock(name, texts[name])
	}
	return nil
}

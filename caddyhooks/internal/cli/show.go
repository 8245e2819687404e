package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func showVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "show HOOK|RUN-ID|DELIVERY-ID|REQUEST-ID",
		Short: "Shows all about a hook, a run or a delivery",
		Long: `
Shows all that is known about a hook, a run or a delivery. Of an id its beginning is enough, from eight characters of a run on, if no other
begins like that. A run is also found by the whole id that its sender gave the request, such as GitHub's X-GitHub-Delivery.`,
		Example: `  caddy hooks show github-issues
  caddy hooks show 019a86f2-4c1e
  caddy hooks show msg_019a86f24c1e7b029d551f0c6c0e7a31_0`,
		Args:              flags.TakesOne("what to show"),
		RunE:              withSession(runShow),
		ValidArgsFunction: flags.CompleteOne(flags.CompleteAny(completeAllHooks, runs.complete(), deliveries.complete())),
	}
}

func runShow(s *session, _ *cobra.Command, args []string) error {
	name := args[0]
	if _, _, ok := engine.ParseDeliveryID(name); ok {
		return s.showDelivery(name)
	}
	hooks, _, err := s.listHooks("24h")
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(hooks, func(h listedHook) bool { return h.Name == name && h.Action != "" }); at >= 0 {
		return s.showHook(&hooks[at])
	}
	sent, err := s.runIDs(url.Values{"requestId": {name}})
	switch {
	case err != nil:
		return err
	case len(sent) > 0:
		if len(sent) > 1 {
			s.screen.Note("This is the newest run of this request. Others are %s.", text.List(sent[1:]))
		}
		return s.showRun(sent[0])
	case strings.HasPrefix(name, deliveryPrefix):
		return s.showDelivery(name)
	case api.IsRunID(name, time.Now()):
		return s.showRun(name)
	default:
		return fmt.Errorf("there is no hook %q, and it is not the id of a run or a delivery: caddy hooks list, caddy hooks runs and "+
			"caddy hooks deliveries list them", text.Abridge(name))
	}
}

// deliveryPrefix is how ids of deliveries begin.
const deliveryPrefix = "msg_"

// wholeRunID finds the run whose id begins like that.
func (s *session) wholeRunID(beginning string) (string, error) {
	if uuid.Validate(beginning) == nil {
		return beginning, nil
	}
	found, err := s.runIDs(url.Values{"q": {beginning}})
	if err != nil {
		return "", err
	}
	return onlyID(found, "run", "runs", beginning)
}

// runIDs are the ids of runs that a query selects, the newest first, and no more than are told apart.
func (s *session) runIDs(query url.Values) (found []string, err error) {
	const tellApart = 5
	_, _, err = s.walk(listing{path: "runs", member: "runs", query: query, limit: tellApart}, func(page listPage) error {
		runs, err := rowsOf[api.RunSummary](s, page)
		for i := range runs {
			found = append(found, runs[i].RunID)
		}
		return err
	})
	return found, err
}

// onlyID is the id that was found, if it is the only one that begins like that.
func onlyID(found []string, one, many, beginning string) (string, error) {
	switch len(found) {
	case 0:
		return "", fmt.Errorf("there is no %s whose id begins with %s: caddy hooks %s shows which there are", one, text.Abridge(beginning), many)
	case 1:
		return found[0], nil
	default:
		return "", fmt.Errorf("several %s begin with %s: %s", many, beginning, text.List(found))
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

// properties are names and values, which are shown below each other.
type properties struct {
	names  []string
	values []terminal.Text
}

// add adds a value that is a text or a terminal.Text. An empty text is left out.
func (p *properties) add(name string, value any) {
	if value != "" {
		p.names, p.values = append(p.names, name), append(p.values, terminal.Cells(value)...)
	}
}

// print prints values whole, where a table would cut them.
func (p *properties) print(screen printer) {
	width := 0
	for _, name := range p.names {
		width = max(width, len(name)+2)
	}
	for i, name := range p.names {
		screen.Line(terminal.Faint(name).Padded(width), p.values[i])
	}
}

// showBlock shows a text of several lines below a title, whole.
func (p printer) showBlock(title, text string) {
	p.Line()
	p.Line(terminal.Bold(title))
	p.Lines(terminal.Plain("  "), text)
}

// showText is showBlock for a text that is not empty.
func (p printer) showText(title, text string) {
	if text != "" {
		p.showBlock(title, text)
	}
}

// showRun shows a run.
func (s *session) showRun(beginning string) error {
	id, err := s.wholeRunID(beginning)
	if err != nil {
		return err
	}
	var run api.RunDetails
	answer, err := s.get("runs/"+url.PathEscape(id), nil, &run)
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	clock := terminal.NewClock()
	runProperties(&run, clock).print(s.screen)
	s.screen.showSteps(run.Steps, clock)
	s.screen.showQuestions(run.Questions, clock)
	for _, problem := range run.ValidationErrors {
		s.screen.Line(terminal.Bad("! "), terminal.Plain(problem))
	}
	if run.Message != nil {
		title := "Message"
		if run.MessageCut {
			title += ", of which not all was kept"
		}
		s.screen.showBlock(title, *run.Message)
		if strings.Contains(*run.Message, "<missing>") && !settings.IsBuiltIn(run.Hook) {
			s.screen.Line(terminal.Warn("! "), terminal.Plain("<missing> stands for a placeholder that finds nothing in the payload"))
		}
	}
	s.screen.showText("Metadata", string(run.Metadata))
	s.screen.showText("Schema", string(run.Schema))
	if run.Reply != nil {
		s.screen.showBlock("Reply", *run.Reply)
	}
	title := "Last answer"
	if len(run.ValidationErrors) > 0 {
		title += ", which did not match the schema"
	}
	s.screen.showText(title, run.LastAnswer)
	for _, p := range run.Permissions {
		s.screen.Line(terminal.Faint("The agent asked for "), terminal.Plain(p.Kind+" "+p.Title+": "+p.Answer))
	}
	if run.MorePermissions > 0 {
		s.screen.Line(terminal.Faint("The agent asked for "), terminal.Plain(terminal.Counted(run.MorePermissions, "more permission",
			"more permissions")))
	}
	s.screen.showSentOut(run.Deliveries, clock)
	return nil
}

func runProperties(r *api.RunDetails, clock terminal.Clock) *properties {
	f := new(properties)
	f.add("run", terminal.Bold(r.RunID))
	f.add("status", statusCell(r.Status))
	f.add("why", runReason(&r.RunSummary))
	f.add("hook", r.Hook)
	if r.Hook != string(r.Action) {
		f.add("action", string(r.Action))
	}
	f.add("name", r.Name)
	f.add("chat", r.ChatID)
	f.add("accepted", clock.WhenAndAgo(r.AcceptedAt))
	f.add("started", clock.When(r.StartedAt))
	f.add("ended", clock.When(r.FinishedAt))
	f.add("took", runTook(clock, &r.Run))
	f.add("runner", r.Runner)
	for i := range r.Usage {
		f.add("used", usedWords(&r.Usage[i]))
	}
	if r.UsageRefused != "" {
		f.add("used", terminal.Warn("not known: "+r.UsageRefused))
	}
	f.add("tier", r.Tier)
	f.add("memory", r.MemoryPreset)
	f.add("client", r.Client)
	f.add("request id", r.RequestID)
	f.add("timeout", terminal.Briefly(terminal.InUnits(r.TimeoutSeconds)))
	if r.Attempts > 1 {
		f.add("attempts", terminal.WithCommas(r.Attempts))
	}
	if r.RepairAttempts > 0 {
		f.add("repairs", terminal.WithCommas(r.RepairAttempts))
	}
	f.add("again of", r.AgainOf)
	f.add("again as", r.AgainAs)
	f.add("folded into", r.FoldedInto)
	if r.Folded > 0 {
		f.add("folded", terminal.Counted(r.Folded, "run in one turn", "runs in one turn"))
	}
	if r.SessionRenewed {
		f.add("session", "the agent had lost the conversation, and began another one")
	}
	if r.Test {
		f.add("test", "yes: nothing is sent out")
	}
	f.add("trace", r.TraceParent)
	if r.KeptUntil != nil {
		f.add("texts kept", "until "+clock.When(r.KeptUntil))
	}
	return f
}

func (p printer) showSteps(steps []api.Step, clock terminal.Clock) {
	if len(steps) == 0 {
		return
	}
	var rows [][]terminal.Text
	for _, s := range steps {
		bytes := ""
		if s.Bytes > 0 {
			bytes = terminal.ByteSize(int64(s.Bytes))
		}
		rows = append(rows, terminal.Cells(clock.When(s.StartedAt), string(s.Phase), terminal.Briefly(terminal.InUnits(s.Seconds)), s.Tier, bytes,
			strings.Join(s.Errors, "; ")))
	}
	p.Line()
	p.Table([]string{"AT", "STEP", "TOOK", "TIER", "ANSWER", "ERRORS"}, rows)
}

// showSentOut lists the deliveries of a run, each with its attempts.
func (p printer) showSentOut(deliveries []api.DeliveryDetails, clock terminal.Clock) {
	for i := range deliveries {
		d := &deliveries[i]
		p.Line()
		p.Line(terminal.Bold("Delivery "+d.ID), terminal.Plain("  "), statusCell(d.Status), terminal.Plain("  to "+d.Target+repeatedWords(d)))
		if next := nextAttempt(clock, d); next != "" {
			p.Line(terminal.Plain("  next attempt " + next + waitsForWords(d)))
		}
		p.showAttempts(d.History, clock)
	}
}

// repeatedWords says that a delivery was sent again although it had arrived.
func repeatedWords(d *api.DeliveryDetails) string {
	if d.Repeats == 0 {
		return ""
	}
	return ", sent again " + terminal.Counted(d.Repeats, "time", "times") + " after it had arrived"
}

func waitsForWords(d *api.DeliveryDetails) string {
	if d.WaitsFor == "" {
		return ""
	}
	return ", waits for " + d.WaitsFor
}

func (p printer) showAttempts(history []api.Attempt, clock terminal.Clock) {
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
		rows = append(rows, terminal.Cells("  "+clock.When(a.At), terminal.Briefly(terminal.InUnits(a.Seconds)), status, outcome))
	}
	p.Table(nil, rows)
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
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	clock := terminal.NewClock()
	var f properties
	f.add("delivery", terminal.Bold(d.ID))
	f.add("status", statusCell(d.Status))
	f.add("to", d.Target)
	f.add("attempts", terminal.WithCommas(d.Attempts)+repeatedWords(&d))
	f.add("last error", d.LastError)
	if next := nextAttempt(clock, &d); next != "" {
		f.add("next", next+waitsForWords(&d))
	}
	f.add("created", clock.WhenAndAgo(d.CreatedAt))
	f.add("last tried", clock.When(d.LastAttemptAt))
	f.add("run", d.RunID+" ("+statusWord(d.RunStatus)+")")
	f.add("hook", d.Hook)
	f.add("chat", d.ChatID)
	f.add("type", d.ContentType)
	f.print(s.screen)
	if d.History != nil {
		s.screen.Line()
		s.screen.Line(terminal.Bold("Attempts"))
		s.screen.showAttempts(d.History, clock)
	}
	s.screen.showText("Last answer of the receiver", d.LastAnswer)
	s.screen.showText("Body", d.Body)
	return nil
}

// wholeDeliveryID finds the delivery whose id begins like that. It has the digits of its run.
func (s *session) wholeDeliveryID(beginning string) (string, error) {
	id := dashed(strings.TrimPrefix(beginning, deliveryPrefix))
	if !api.IsRunID(id, time.Now()) {
		return onlyID(nil, "delivery", "deliveries", beginning)
	}
	runID, err := s.wholeRunID(id)
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
	return onlyID(found, "delivery", "deliveries", beginning)
}

// dashed is the run id whose digits, or the first of them, the id of a delivery or of a question has.
func dashed(digits string) string {
	digits, _, _ = strings.Cut(digits, "_")
	var id strings.Builder
	for i, digit := range digits {
		if i == 8 || i == 12 || i == 16 || i == 20 {
			id.WriteByte('-')
		}
		id.WriteRune(digit)
	}
	return id.String()
}

// showHook shows a hook.
func (s *session) showHook(hook *listedHook) error {
	var fields map[string]json.RawMessage
	answer, err := s.get(mappingPath(hook.Name), nil, &fields)
	if adminclient.IsRefused(err, http.StatusNotFound) { // it is built in
		answer, err = text.PlainJSON(hook), nil
	}
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	about, err := s.About()
	if err != nil {
		return err
	}
	clock := terminal.NewClock()
	var f properties
	f.add("hook", terminal.Bold(hook.Name))
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
	f.add("last 24h", fmt.Sprintf("%s, %s failed", terminal.Counted(hook.Accepted, "run", "runs"), terminal.WithCommas(hook.Failed)))
	f.add("last run", clock.WhenAndAgo(hook.LastAt))
	var long [][2]string // fields of several lines
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
			long = append(long, [2]string{name, value})
		} else {
			f.add(name, value)
		}
	}
	f.print(s.screen)
	for _, field := range long {
		s.screen.showBlock(field[0], field[1])
	}
	return nil
}

func sessionVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chat [CHAT | --since TIME] [--limit N]",
		Short: "Shows a chat as a conversation, or lists chats",
		Long: `
Shows the last runs of a chat as a conversation, the newest at the end: what came in after >, what the agent said after <, why a run failed
after !, and where an answer was sent after ->. An answer that folded runs share stands after the last of them. Without a chat it lists
the chats that somebody named, the last active one first.

Long texts are cut; caddy hooks show RUN-ID has them whole.`,
		Example: `  caddy hooks chat
  caddy hooks chat repo:acme/api --limit 5`,
		Args:              flags.TakesOneAtMost,
		RunE:              withSession(runSession),
		ValidArgsFunction: flags.CompleteOne(chats.complete()),
	}
	addFilters(cmd, chats.filters)
	limitFlag(cmd, "runs or chats")
	return cmd
}

func runSession(s *session, cmd *cobra.Command, args []string) error {
	limit, err := limitOf(cmd)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return chats.list(s, cmd)
	}
	if args[0] == "" || cmd.Flags().Changed("since") {
		return flags.Usagef("name a chat, which is not empty, or list chats with --since")
	}
	chat := listing{path: "chat", member: "runs", query: url.Values{"chatId": args[:1]}, limit: limit}
	if s.json {
		return s.printList(chat)
	}
	var turns []api.ChatTurn
	_, more, err := s.walk(chat, func(page listPage) error {
		rows, err := rowsOf[api.ChatTurn](s, page)
		turns = append(turns, rows...)
		return err
	})
	if err != nil {
		return err
	}
	if len(turns) == 0 {
		s.screen.Note("There are no runs of the chat %s. caddy hooks chat lists chats.", args[0])
	}
	if more {
		s.screen.Note("There is more before this: use --limit %d, or --limit 0 for all.", limit*moreRows)
	}
	slices.Reverse(turns)
	clock := terminal.NewClock()
	answers := lastOfTurns(turns)
	for i := range turns {
		if i > 0 {
			s.screen.Line()
		}
		s.screen.showTurn(&turns[i], answers[ownTurn(&turns[i])], clock)
	}
	return nil
}

// turnEnd is how the turn ended that a run had, alone or folded with others.
type turnEnd struct {
	run    string // that led it
	status engine.Status
}

func ownTurn(t *api.ChatTurn) turnEnd { return turnEnd{cmp.Or(t.FoldedInto, t.RunID), t.Status} }

// lastOfTurns are the last runs of turns: the answer that several runs share stands after the last of them.
func lastOfTurns(turns []api.ChatTurn) map[turnEnd]string {
	last := make(map[turnEnd]string)
	for i := range turns {
		last[ownTurn(&turns[i])] = turns[i].RunID
	}
	return last
}

// showTurn shows a run in the course of its chat, and how it ended if that is not shown with the run answered.
func (p printer) showTurn(t *api.ChatTurn, answered string, clock terminal.Clock) {
	plain := terminal.Plain
	head := []terminal.Text{terminal.Bold(clock.When(t.AcceptedAt)), plain("  " + t.Hook + "  "), statusCell(t.Status)}
	if took := runTook(clock, &t.Run); took != "" {
		head = append(head, plain("  "+took))
	}
	p.Line(append(head, terminal.Faint("  "+t.RunID))...)
	p.showPart(terminal.Faint("> "), t.Message, t.MessageBytes, t.MessageCut)
	if answered != t.RunID {
		p.Line(terminal.Faint("  one turn with " + answered))
	} else {
		p.showPart(terminal.Good("< "), t.Reply, t.ReplyBytes, false)
		if why := runReason(&t.RunSummary); why != "" {
			p.Line(terminal.Bad("! "), plain(why))
		}
	}
	for i := range t.Deliveries {
		d := &t.Deliveries[i]
		p.Line(plain("-> "), statusCell(d.Status), plain("  "+attempt(d)))
	}
}

// showPart shows a text of which the API may have given the beginning only.
func (p printer) showPart(mark terminal.Text, text *string, whole int, cut bool) {
	if text == nil {
		return
	}
	p.Lines(mark, *text)
	switch {
	case len(*text) < whole:
		p.Line(mark, terminal.Faint(fmt.Sprintf("… %s more", terminal.ByteSize(int64(whole-len(*text))))))
	case cut:
		p.Line(mark, terminal.Faint("… and more, which was not kept"))
	}
}

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func statusVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [--range 1h|6h|24h|7d]",
		Short: "Shows the state of the hooks, and what needs attention",
		Long: `
Shows whether webhooks are on, the queue, how many runs were accepted and failed, how long they took, and what was sent out. Lines that
begin with ! are about what needs attention, with a command that shows more. Without --instance all instances are shown.

With --json it prints what the API says about each instance, without the points of plots.`,
		Example: `  caddy hooks status
  caddy hooks status --range 24h --instance ops`,
		RunE: flags.Interruptible(runStatus),
	}
	rangeFlag(cmd, api.OverviewRanges[0].Name)
	return cmd
}

// rangeNames are the ranges of time that counts are about.
var rangeNames = func() (names []string) {
	for _, r := range api.OverviewRanges {
		names = append(names, r.Name)
	}
	return names
}()

func rangeFlag(cmd *cobra.Command, usual string) {
	flags.AddText(cmd, "range", usual, "count what happened in the last "+strings.Join(rangeNames, ", "), flags.CompleteWords(rangeNames...))
}

// rangeOf reads that flag.
func rangeOf(cmd *cobra.Command) (string, error) {
	if wanted := flags.Text(cmd, "range"); slices.Contains(rangeNames, wanted) {
		return wanted, nil
	}
	return "", flags.Usagef("--range must be one of %s", text.List(rangeNames))
}

// instanceStatus is what the API says about an instance.
type instanceStatus struct {
	Instance string          `json:"instance"`
	NotReady string          `json:"notReady,omitempty"` // why
	About    json.RawMessage `json:"about,omitempty"`
	Overview json.RawMessage `json:"overview,omitempty"`

	runnersAlone bool // it is not ready because its runners are unreachable, and for no other reason
}

// overview is an overview without its plots.
type overview struct {
	Range     string              `json:"range"`
	Figures   api.Figures         `json:"figures"`
	Attention []api.AttentionItem `json:"attention"`
	Dismissed []api.Warning       `json:"dismissed,omitempty"`
	Nodes     []api.Node          `json:"nodes,omitempty"`
	Hooks     []struct {
		api.HookFigures
		Points json.RawMessage `json:"points,omitempty"` // which only pages draw
	} `json:"hooks"`
}

func runStatus(ctx context.Context, cmd *cobra.Command, _ []string) error {
	during, err := rangeOf(cmd)
	if err != nil {
		return err
	}
	s, health, names, err := askHealth(ctx, cmd)
	if err != nil {
		return err
	}
	all := []instanceStatus{}
	for i, name := range names {
		s.instance = name
		status := instanceStatus{Instance: name, NotReady: health.whyNotReady(name), runnersAlone: health.lacksRunnersAlone(name)}
		if status.About, err = s.get("about", nil, nil); err == nil {
			status.Overview, err = s.get("overview", url.Values{"range": {during}}, nil)
		}
		if err != nil && status.NotReady == "" {
			return err
		}
		if s.json {
			status.Overview = withoutPlots(status.Overview)
			all = append(all, status)
			continue
		}
		if i > 0 {
			s.screen.Line()
		}
		if err := s.showStatus(cmd, status, len(health.Instances) > 1 && name != "default"); err != nil {
			return err
		}
	}
	if !s.json {
		return nil
	}
	return s.printJSON(text.PlainJSON(map[string]any{"instances": all}))
}

// withoutPlots takes the points of plots out of an overview.
func withoutPlots(overview json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	var hooks []map[string]json.RawMessage
	if json.Unmarshal(overview, &members) != nil || json.Unmarshal(members["hooks"], &hooks) != nil {
		return nil
	}
	for _, hook := range hooks {
		delete(hook, "points")
	}
	delete(members, "series")
	members["hooks"] = text.PlainJSON(hooks)
	return text.PlainJSON(members)
}

// showStatus shows one instance. Commands in it name the instance if they must.
func (s *session) showStatus(cmd *cobra.Command, status instanceStatus, named bool) error {
	var about api.About
	var shown overview
	if status.About != nil {
		if err := s.decode(status.About, &about); err != nil {
			return err
		}
	}
	lines := [][]terminal.Text{s.firstLine(status, &about)}
	if status.Overview != nil {
		if err := s.decode(status.Overview, &shown); err != nil {
			return err
		}
		lines = append(lines, figureLines(&shown)...)
	}
	const label, gap = len("last 24h") + 2, "   "
	width := max(label, len(status.Instance)+2)
	for _, line := range lines {
		parts := []terminal.Text{line[0].Padded(width)}
		for i, part := range line[1:] {
			if i > 0 {
				parts = append(parts, terminal.Plain(gap))
			}
			parts = append(parts, part)
		}
		s.screen.Line(parts...)
	}
	saidByItem := status.runnersAlone && slices.ContainsFunc(shown.Attention,
		func(n api.AttentionItem) bool { return n.Kind == api.RunnerUnreachable })
	if status.NotReady != "" && !saidByItem {
		s.screen.Line(terminal.Bad("! "), terminal.Plain(status.NotReady))
	}
	for _, item := range shown.Attention {
		s.showAttention(cmd, item, named)
	}
	if n := len(shown.Dismissed); n > 0 {
		s.screen.Line(terminal.Faint(terminal.Counted(n, "warning is", "warnings are") + " dismissed      " + flags.NextCommand(cmd, "warnings")))
	}
	return nil
}

func (s *session) firstLine(status instanceStatus, about *api.About) []terminal.Text {
	line := []terminal.Text{terminal.Bold(status.Instance)}
	switch {
	case status.About == nil:
		return append(line, terminal.Bad("not ready"))
	case !about.On:
		line = append(line, terminal.Warn("off"))
	default:
		line = append(line, terminal.Good("on"))
	}
	for _, url := range about.URLs {
		line = append(line, terminal.Plain(url))
	}
	if len(about.URLs) == 0 {
		line = append(line, terminal.Plain(about.Path))
	}
	var kinds []string
	for _, runner := range about.Runners {
		if !slices.Contains(kinds, runner.Kind) {
			kinds = append(kinds, runner.Kind)
		}
	}
	runner := "runner " + strings.Join(kinds, ", ")
	if kinds == nil {
		runner = "runner " + cmp.Or(about.Runner, "none")
	}
	store := "store " + about.Store
	if about.StoreBytes > 0 {
		store += " " + terminal.ByteSize(about.StoreBytes)
	}
	return append(line, terminal.Plain(runner), terminal.Plain(store))
}

// figureLines are the lines below the first one, each with its name and its parts.
func figureLines(o *overview) [][]terminal.Text {
	f := &o.Figures
	plain, line := terminal.Plain, func(parts ...terminal.Text) []terminal.Text { return parts }
	queue := line(plain("queued"), plain(terminal.WithCommas(f.Queued)))
	if f.Queued > 0 {
		queue = append(queue, plain("oldest "+terminal.Roughly(terminal.InUnits(f.OldestSeconds))))
	}
	running := "running " + terminal.WithCommas(f.Running)
	if len(o.Nodes) < 2 { // others may have other numbers of workers
		running += " of " + terminal.WithCommas(f.Workers)
	}
	queue = append(queue, plain(running))
	if f.Waiting > 0 {
		queue = append(queue, plain("waiting "+terminal.WithCommas(f.Waiting)))
	}

	failed := f.Failed + f.TimedOut + f.Expired
	notGood := plain("0 failed")
	if failed > 0 {
		notGood = terminal.Bad(terminal.WithCommas(failed) + " failed (" + terminal.ShareOf(failed,
			f.Ended) + " of " + terminal.WithCommas(f.Ended) + " ended)")
	}
	runs := line(plain("last "+o.Range), plain(terminal.WithCommas(f.Accepted)+" accepted"), notGood)
	for i, seconds := range []*float64{f.MedianSeconds, f.P95Seconds, f.P99Seconds} {
		if seconds != nil {
			runs = append(runs, plain([]string{"median ", "95 % ", "99 % "}[i]+terminal.Briefly(terminal.InUnits(*seconds))))
		}
	}
	dead := plain("0 dead")
	if f.Dead > 0 {
		dead = terminal.Bad(terminal.WithCommas(f.Dead) + " dead")
	}
	lines := [][]terminal.Text{queue, runs, line(plain("sent out"), plain(terminal.WithCommas(f.Delivered)+" delivered"),
		plain(terminal.WithCommas(f.Pending)+" pending"), dead)}
	if len(o.Nodes) > 1 {
		lines = append(lines, nodesLine(o.Nodes))
	}
	return lines
}

// mostNodes is how many nodes are named.
const mostNodes = 8

// nodesLine has the nodes with how many runs each carries out.
func nodesLine(nodes []api.Node) []terminal.Text {
	line := []terminal.Text{terminal.Plain("nodes"), terminal.Plain(terminal.WithCommas(len(nodes)))}
	for i, node := range nodes {
		name := cmp.Or(node.Host, node.Name)
		switch {
		case i == mostNodes:
			return append(line, terminal.Plain("…"))
		case node.Silent:
			line = append(line, terminal.Bad(name+" silent"))
		case node.This:
			line = append(line, terminal.Plain(name+" (this one) "+terminal.WithCommas(node.Running)))
		default:
			line = append(line, terminal.Plain(name+" "+terminal.WithCommas(node.Running)))
		}
	}
	return line
}

// showAttention prints what needs the operator, and the command that shows more.
func (s *session) showAttention(cmd *cobra.Command, n api.AttentionItem, named bool) {
	mark, text := terminal.Warn("! "), n.Text
	if n.Severity == api.SeverityBad {
		mark = terminal.Bad("! ")
	}
	if n.Detail != "" {
		text += ": " + n.Detail
	}
	line := terminal.Cells(mark, text)
	if command := attentionCommand(&n); command != nil {
		if named && !cmd.Flags().Changed("instance") {
			command = append(command, "--instance", s.instance)
		}
		line = append(line, terminal.Plain("      "), terminal.Bold(flags.NextCommand(cmd, command...)))
	}
	s.screen.Line(line...)
}

// attentionCommand are the arguments of `caddy hooks` that show more, as the link does in the dashboard, or that help. There are none for
// some.
func attentionCommand(n *api.AttentionItem) []string {
	path, rawQuery, _ := strings.Cut(n.Link, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil
	}
	var command []string
	switch {
	case n.Kind == "runner_unreachable":
		return []string{"runners"}
	case n.Kind == "questions":
		return []string{"questions"}
	case n.Kind == "paused":
		return []string{"pauses"}
	case n.Kind == "off":
		return offCommand(n.Text)
	case path == "#/deliveries":
		command = []string{"deliveries"}
	case path == "#/runs":
		command = []string{"runs"}
	case path == "#/cost":
		return []string{"cost"}
	case path == "#/runs/refused":
		command = []string{"refused"}
	case strings.HasPrefix(path, "#/settings/hooks/") && n.Kind != "not_in_force": // which is not there to be shown
		name, err := url.PathUnescape(strings.TrimPrefix(path, "#/settings/hooks/"))
		if err != nil {
			return nil
		}
		return []string{"show", name}
	default:
		return nil
	}
	for _, flag := range []string{"status", "hook", "channel", "host", "since"} {
		if value := query.Get(flag); value != "" {
			command = append(command, "--"+flag, value)
		}
	}
	return command
}

func healthVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health [--live]",
		Short: "Says whether the instances are ready, for scripts and health checks",
		Long: `
Says whether the instances are ready for webhooks, and why not. It exits with 0 if all of them are, or the one of --instance, and with 1
otherwise, also if Caddy does not run. An instance whose webhooks are off is ready, too, since it is off by intent: the line says so.

With --live it exits with 1 only if a restart of Caddy would help, and not if a store or an agent is unreachable.`,
		Example: `  caddy hooks health
  caddy hooks health --live || systemctl restart caddy`,
		RunE: runHealth,
	}
	cmd.Flags().Bool("live", false, "ask whether Caddy needs a restart, instead of whether it is ready")
	return cmd
}

// health is what the admin endpoint says about the health of all instances, those among them that wait for their store.
type health struct {
	Instances []instanceHealth `json:"instances"`

	answer []byte
}

type instanceHealth struct {
	Instance string `json:"instance"`
	Live     bool   `json:"live"`
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason"`
	Webhooks string `json:"webhooks"`

	Reasons  []api.HealthProblem `json:"reasons"`
	Degraded []api.HealthProblem `json:"degraded"`
}

// health asks for the health of all instances.
func (c *client) health(ctx context.Context) (h health, err error) {
	h.answer, err = c.Call(ctx, adminclient.Call{Path: "/hooks/health", Answer: http.StatusServiceUnavailable})
	if err == nil && json.Unmarshal(h.answer, &h) != nil {
		err = c.NoHooks()
	}
	return h, err
}

// find is the health of an instance, which is empty if it is not there.
func (h *health) find(name string) (in instanceHealth) {
	if at := slices.IndexFunc(h.Instances, func(in instanceHealth) bool { return in.Instance == name }); at >= 0 {
		in = h.Instances[at]
	}
	return in
}

// whyNotReady is why an instance is not ready, "" if it is or is not there.
func (h *health) whyNotReady(name string) string {
	if in := h.find(name); in.Instance != "" && !in.Ready {
		return cmp.Or(in.Reason, "it is not ready")
	}
	return ""
}

// lacksRunnersAlone reports whether an instance is not ready because its runners are unreachable, and for no other reason.
func (h *health) lacksRunnersAlone(name string) bool {
	reasons := h.find(name).Reasons
	return len(reasons) > 0 && !slices.ContainsFunc(reasons, func(p api.HealthProblem) bool { return p.Code != api.RunnerUnreachable })
}

// detailsOf are problems in words.
func detailsOf(problems []api.HealthProblem) (details []string) {
	for _, problem := range problems {
		details = append(details, problem.Detail)
	}
	return details
}

func (h *health) names() (names []string) {
	for _, in := range h.Instances {
		names = append(names, in.Instance)
	}
	return names
}

// askHealth asks for the health of all instances, and returns the names of those that --instance selects. The session has no instance.
func askHealth(ctx context.Context, cmd *cobra.Command) (s *session, h health, names []string, err error) {
	client, err := newClient(cmd)
	if err != nil {
		return nil, h, nil, err
	}
	if h, err = client.health(ctx); err != nil {
		return nil, h, nil, err
	}
	names = h.names()
	wanted := flags.Text(cmd, "instance")
	err = client.checkNames(names, wanted)
	if wanted != "" {
		names = []string{wanted}
	}
	return &session{ctx: ctx, client: client, screen: newScreen(cmd), json: flags.WantsJSON(cmd)}, h, names, err
}

func runHealth(cmd *cobra.Command, _ []string) error {
	s, health, names, err := askHealth(cmd.Context(), cmd)
	if err != nil {
		return err
	}
	if s.json {
		if err := s.printJSON(health.answer); err != nil {
			return err
		}
	}
	live, word := flags.IsOn(cmd, "live"), "ready"
	if live {
		word = "live"
	}
	var rows [][]terminal.Text
	var failing []string
	for _, name := range names {
		in, state := health.find(name), terminal.Good(word)
		if good := in.Ready && !live || in.Live && live; !good {
			state = terminal.Bad("not " + word)
			failing = append(failing, name)
		} else if in.Webhooks == "off" && !live {
			state = terminal.Warn(word + ", webhooks are off")
		}
		rows = append(rows, terminal.Cells(name, state, cmp.Or(in.Reason, strings.Join(detailsOf(in.Degraded), "; "))))
	}
	if !s.json {
		s.screen.Table(nil, rows)
	}
	if failing != nil {
		slices.Sort(failing)
		return fmt.Errorf("not %s: %s", word, text.List(failing))
	}
	return nil
}

package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/budget"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/refused"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

const (
	// maxAttentionItems bounds the needs of one kind.
	maxAttentionItems = 20
	// deadLookedAt bounds the deliveries that are looked at, the newest first, to tell where they went to.
	deadLookedAt = 1000
	// reasonsLookedAt bounds the runs of a failing hook that are looked at.
	reasonsLookedAt = 100
	// A hook is failing if more than one in twenty of so many runs that ended did not complete.
	fewestRuns = 10
	failingOf  = 20
	// longQueued is when a run has waited for long.
	longQueued = time.Minute
	// burstOfRefused is how many refused requests of a kind in an hour are too many.
	burstOfRefused = 20
	// maxDetail bounds the detail of a need.
	maxDetail = 256
)

// attentionQuestion is what is known already when it is asked what needs an operator.
type attentionQuestion struct {
	active    *settings.Active
	failing   error                // why the store cannot be written to, nil if it can
	diskLow   string               // that its disk is almost full, "" if it is not
	nodes     []engine.Node        // that share the store
	down      []engine.RunnerState // runners that take on no turns
	backlog   engine.Backlog
	dead      int
	questions int            // that wait for somebody
	budgets   []budget.State // of all nodes
	sum       *engine.Minute // of the range
	since     time.Time
	rangeName string
	now       time.Time
	hideTexts bool // nothing that runs were told or answered is quoted
	readOnly  bool // no secret is shown
}

// attentionItems lists what an operator should look at, the worst first.
func attentionItems(ctx context.Context, in *service.Instance, q attentionQuestion) ([]api.AttentionItem, []api.Warning, error) {
	items := []api.AttentionItem{}
	warnings, dismissed := warningItems(q.active)
	dead, err := deadItems(ctx, in, q)
	if err != nil {
		return nil, nil, err
	}
	failing, err := failingItems(ctx, in, q)
	if err != nil {
		return nil, nil, err
	}
	told, err := toldItems(ctx, in, q)
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range [][]api.AttentionItem{storeItems(q), silentItems(q), unreachableItems(in, q), questionItems(q.questions), told,
		pausedItems(q), budgetItems(q), dead, failing, notInForce(q.active), offItems(q.active), queueItems(in, q),
		refusedItems(ctx, in, q), warnings} {
		items = append(items, kind[:min(len(kind), maxAttentionItems)]...)
	}
	slices.SortStableFunc(items, func(a, b api.AttentionItem) int { return cmp.Compare(a.Severity, b.Severity) })
	return items, dismissed, nil
}

// deadTarget is where deliveries went to that were given up: the host of a callback, or a channel.
type deadTarget struct{ host, channel string }

func (t deadTarget) String() string { return t.host + t.channel }

func (t deadTarget) link() string {
	query := url.Values{"status": {"dead"}}
	if t.channel != "" {
		query.Set("channel", t.channel)
	} else {
		query.Set("host", t.host)
	}
	return "#/deliveries?" + query.Encode()
}

// deadItems tells where deliveries went to that were given up. There can be a million of them, so it looks at the newest.
func deadItems(ctx context.Context, in *service.Instance, q attentionQuestion) (found []api.AttentionItem, err error) {
	if q.dead == 0 {
		return nil, nil
	}
	dead, _, err := in.Service.Engine.ListDeliveries(ctx,
		engine.DeliveryQuery{Statuses: []engine.DeliveryStatus{engine.Dead}, Limit: deadLookedAt})
	if err != nil {
		return nil, err
	}
	counts, reasons := make(map[deadTarget]int), make(map[deadTarget]tally)
	for _, d := range dead {
		target := deadTarget{channel: d.Channel}
		if u, err := url.Parse(d.Callback); err == nil && d.Channel == "" {
			target.host = u.Host
		}
		if reasons[target] == nil {
			reasons[target] = make(tally)
		}
		counts[target]++
		reasons[target].add(d.LastError)
	}
	targets := slices.SortedFunc(maps.Keys(counts), func(a, b deadTarget) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.String(), b.String()))
	})
	for _, target := range targets {
		value := text.Count(counts[target], "delivery", "deliveries")
		if q.dead > len(dead) {
			value = "more than " + value
		}
		found = append(found, api.AttentionItem{Kind: "dead_deliveries", Severity: api.SeverityBad, Link: target.link(),
			Detail: oneline.Of(reasons[target].commonest(), maxDetail),
			Text:   fmt.Sprintf("%s to %s %s given up", value, target, text.WasOrWere(counts[target]))})
	}
	return found, nil
}

// tally counts texts.
type tally map[string]int

func (t tally) add(text string) {
	if text != "" {
		t[text]++
	}
}

// commonest is the text that was added most often, "" if there is none.
func (t tally) commonest() (text string) {
	for candidate, n := range t {
		if n > t[text] || n == t[text] && candidate < text {
			text = candidate
		}
	}
	return text
}

// failingItems tells which hooks fail too often, and why.
func failingItems(ctx context.Context, in *service.Instance, q attentionQuestion) (found []api.AttentionItem, err error) {
	for _, name := range slices.Sorted(maps.Keys(q.sum.Hooks)) {
		hook := q.sum.Hooks[name]
		if name == "" || hook.Ended < fewestRuns || hook.Failed*failingOf <= hook.Ended || len(found) == maxAttentionItems {
			continue
		}
		failing := api.AttentionItem{Kind: "failing_hook", Severity: api.SeverityBad,
			Text: fmt.Sprintf("%d of %d runs of %s did not complete", hook.Failed, hook.Ended, name),
			Link: "#/runs?" + url.Values{"hook": {name}, "status": {"failed,timed_out,expired"}, "since": {sinceParameter(q.rangeName)}}.Encode()}
		if !q.hideTexts {
			records, _, err := in.Service.Engine.List(ctx, engine.Query{Hooks: []string{name}, Statuses: api.NotCompleted, Limit: reasonsLookedAt})
			if err != nil {
				return nil, err
			}
			reasons := make(tally)
			for _, record := range records {
				if !record.FinishedAt.Before(q.since) {
					reasons.add(cmp.Or(record.Outcome.Account.Reason, record.Outcome.Message))
				}
			}
			failing.Detail = oneline.Of(reasons.commonest(), maxDetail)
		}
		found = append(found, failing)
	}
	return found, nil
}

// sinceParameter is a range as lists of runs take it: a duration has no days.
func sinceParameter(rangeName string) string {
	if rangeName == "7d" {
		return "168h"
	}
	return rangeName
}

// notInForce tells which settings are saved and left out.
func notInForce(active *settings.Active) (found []api.AttentionItem) {
	for _, name := range slices.Sorted(maps.Keys(active.Problems)) {
		found = append(found, api.AttentionItem{Kind: "not_in_force", Severity: api.SeverityBad, Link: settingsLink(name),
			Text: name + " is saved and not in force", Detail: oneline.Of(active.Problems[name], maxDetail)})
	}
	return found
}

// settingsLink leads to a setting or a hook by the name of the part.
func settingsLink(part string) string {
	if hook, ok := strings.CutPrefix(part, "hook "); ok {
		return "#/settings/hooks/" + url.PathEscape(hook)
	}
	return "#/settings"
}

func offItems(active *settings.Active) []api.AttentionItem {
	if active.On {
		return nil
	}
	return []api.AttentionItem{{Kind: "off", Severity: api.SeverityLate, Link: "#/settings", Text: "webhooks are off: " + active.OffBecause,
		Detail: "every request is answered 404"}}
}

// storeItems tells that the store can be read, and not written to.
func storeItems(q attentionQuestion) []api.AttentionItem {
	switch {
	case q.failing == nil && q.diskLow == "":
		return nil
	case q.failing == nil:
		return []api.AttentionItem{{Kind: api.StoreDiskLow, Severity: api.SeverityLate, Link: "#/overview", Text: q.diskLow}}
	}
	return []api.AttentionItem{{Kind: service.StoreProblem(q.failing), Severity: api.SeverityBad, Link: "#/runs?status=running",
		Text:   "the store cannot be written to",
		Detail: oneline.Of(q.failing.Error(), maxDetail)}}
}

// silentItems tells which nodes are gone without having said so.
func silentItems(q attentionQuestion) (found []api.AttentionItem) {
	for _, node := range q.nodes {
		if node.Silent {
			host, ago := cmp.Or(node.Host, "an unknown host"), max(0, q.now.Sub(node.SeenAt).Round(time.Second))
			found = append(found, api.AttentionItem{Kind: api.NodeSilent, Severity: api.SeverityLate, Link: "#/overview",
				Text: fmt.Sprintf("the node on %s was last seen %s ago", host, ago), Detail: "others carry out its runs"})
		}
	}
	return found
}

// unreachableItems tells which agents take on no runs.
func unreachableItems(in *service.Instance, q attentionQuestion) (found []api.AttentionItem) {
	for _, runner := range q.down {
		agent, state, severity := "the agent", "out of reach", api.SeverityBad
		if len(in.EngineConfig.Runners) > 1 {
			agent += " " + runner.Name
		}
		if runner.State == engine.RunnerBusy {
			state, severity = "busy", api.SeverityLate
		}
		found = append(found, api.AttentionItem{Kind: "runner_unreachable", Severity: severity, Link: "#/runs?status=queued",
			Detail: oneline.Of(runner.Cause, maxDetail),
			Text: fmt.Sprintf("%s has been %s for %v, and %s queued", agent, state, q.now.Sub(runner.Since).Round(time.Second),
				text.Count(q.backlog.Queued, "run is", "runs are"))})
	}
	return found
}

// budgetItems tells which budgets are used up, or nearly.
func budgetItems(q attentionQuestion) (found []api.AttentionItem) {
	then := map[budget.Else]string{budget.Hold: "runs wait", budget.Refuse: "requests are refused", budget.Ignore: "requests are ignored"}
	for i := range q.budgets {
		b := api.NewBudgetUse(&q.budgets[i], q.now, q.hideTexts)
		name := "the budget of " + b.Budget + " of all hooks"
		if b.Hook != "" {
			name = "the budget of " + b.Budget + " of hook " + b.Hook
		}
		item := api.AttentionItem{Kind: "budget", Severity: api.SeverityLate, Link: "#/cost",
			Text: fmt.Sprintf("%d %% of %s are used", b.Percent, name)}
		switch {
		case b.Percent < budget.NearlyUsed:
			continue
		case b.LeftAt != nil:
			until := b.LeftAt.Format("15:04 UTC")
			if b.LeftAt.Sub(q.now) > 12*time.Hour {
				until = b.LeftAt.Format("2006-01-02 15:04 UTC")
			}
			item.Severity, item.Text = api.SeverityBad, fmt.Sprintf("%s is used up: %s until %s", name, then[b.Else], until)
		}
		if b.Value != nil {
			item.Detail = oneline.Of(b.By+" is "+cmp.Or(*b.Value, "missing"), maxDetail)
		}
		found = append(found, item)
	}
	return found
}

// toldItems shows the secrets that senders told, which are in no log.
func toldItems(ctx context.Context, in *service.Instance, q attentionQuestion) (found []api.AttentionItem, err error) {
	told, err := in.Told(ctx, q.active, q.now)
	for _, secret := range told {
		item := api.AttentionItem{Kind: "told_secret", Severity: api.SeverityLate, Link: settingsLink("hook " + secret.Hook),
			Text:   fmt.Sprintf("%s told hook %s its secret: enter it at %s, and set it in the hook", secret.Title, secret.Hook, secret.Title),
			Detail: "it is shown to operators who may change settings"}
		if !q.readOnly {
			item.Detail = "it is " + oneline.Of(secret.Secret, maxDetail)
		}
		found = append(found, item)
	}
	return found, err
}

// queueItems tells that runs wait for long.
func queueItems(in *service.Instance, q attentionQuestion) []api.AttentionItem {
	if q.backlog.Oldest <= longQueued {
		return nil
	}
	return []api.AttentionItem{{Kind: "oldest_queued", Severity: api.SeverityLate, Link: "#/runs?status=queued",
		Text: fmt.Sprintf("the oldest queued run has waited for %v", q.backlog.Oldest.Round(time.Second)),
		Detail: fmt.Sprintf("%s queued, %d running, %s", text.Count(q.backlog.Queued, "run is", "runs are"), q.backlog.Running,
			text.Count(in.EngineConfig.Workers, "worker", "workers"))}}
}

// refusedItems tells which requests were refused again and again.
func refusedItems(ctx context.Context, in *service.Instance, q attentionQuestion) (found []api.AttentionItem) {
	for _, kind := range in.Refused.List(ctx, func(kind *refused.Requests) bool { return !kind.Last.Ignored }, refused.MaxKinds) {
		count := kind.Lately.At(q.now)
		if count < burstOfRefused {
			continue
		}
		to := cmp.Or(kind.Last.Hook, "names that no hook has")
		found = append(found, api.AttentionItem{Kind: "refused_burst", Severity: api.SeverityLate, Link: "#/runs/refused?" +
			url.Values{"hook": {kind.Last.Hook}}.Encode(),
			Text:   fmt.Sprintf("%d requests to %s were refused within an hour", count, to),
			Detail: oneline.Of(fmt.Sprintf("%d %s: %s", kind.Last.Status, http.StatusText(kind.Last.Status), kind.Last.Reason), maxDetail)})
	}
	return found
}

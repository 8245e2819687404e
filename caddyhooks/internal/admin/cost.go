package admin

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /cost", serveCost, "since", "by", "hook")
}

// costQuery says which costs are asked for.
type costQuery struct {
	within time.Duration
	by     string
	hooks  []string // nil is all
}

// What costs are asked for if the request does not say, and how far back they are known.
const (
	usualCosts  = 7 * 24 * time.Hour
	oldestCosts = 31 * 24 * time.Hour
)

func parseCostQuery(params url.Values, now time.Time) (query costQuery, err error) {
	if err := checkNotEmpty(params); err != nil {
		return query, err
	}
	query.within, query.by = usualCosts, cmp.Or(params.Get("by"), api.CostsBy[0])
	if !slices.Contains(api.CostsBy, query.by) {
		return query, api.Errorf(http.StatusBadRequest, "by must be one of %s", text.List(api.CostsBy))
	}
	if query.hooks, err = parseList(params, "hook"); err != nil {
		return query, err
	}
	since, err := parseMoment(params, "since", now)
	if err != nil {
		return query, err
	}
	if !since.IsZero() {
		query.within = now.Sub(since)
	}
	const otherClock = time.Hour // whoever asks may have another one, and costs are summed up by the hour
	if query.within > oldestCosts+otherClock || query.within < -otherClock {
		return query, api.Errorf(http.StatusBadRequest, "since must be within the last 31d")
	}
	query.within = min(max(query.within, 0), oldestCosts)
	return query, nil
}

// key is what a row of an answer is about.
func (q *costQuery) key(cost *usage.Cost) string {
	switch q.by {
	case "runner":
		return cost.Runner
	case "model":
		return cost.Model
	case "hour":
		return cost.Hour.UTC().Format(time.RFC3339)
	case "day":
		return cost.Hour.UTC().Format(time.DateOnly)
	default:
		return cost.Hook
	}
}

// serveCost sums up what runs used: what cost most first, or by the time. It also tells how far budgets are used up.
func serveCost(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	now := time.Now()
	query, err := parseCostQuery(r.URL.Query(), now)
	if err != nil {
		return err
	}
	costs, err := in.Service.Engine.Costs(r.Context(), query.within)
	if err != nil {
		return err
	}
	budgets, err := in.Service.Engine.Budgets(r.Context())
	if err != nil {
		return err
	}
	shown := query.sum(costs)
	for i := range budgets {
		if query.hooks == nil || budgets[i].Hook == "" || slices.Contains(query.hooks, budgets[i].Hook) {
			shown.Budgets = append(shown.Budgets, api.NewBudgetUse(&budgets[i], now, callerFrom(r).HideTexts))
		}
	}
	shown.Since = text.JSONTime(now.Add(-query.within).Truncate(time.Hour))
	return writeJSON(w, http.StatusOK, shown)
}

func (q *costQuery) sum(costs []usage.Cost) api.Costs {
	sums, keys := make(map[string]*usage.Entry), []string(nil)
	var total usage.Entry
	for i := range costs {
		if q.hooks != nil && !slices.Contains(q.hooks, costs[i].Hook) {
			continue
		}
		key := q.key(&costs[i])
		if sums[key] == nil {
			sums[key], keys = new(usage.Entry), append(keys, key)
		}
		spent := usage.Entry{Runs: costs[i].Runs, Use: costs[i].Use}
		sums[key].Add(&spent)
		total.Add(&spent)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if q.by == "hour" || q.by == "day" {
			return strings.Compare(a, b)
		}
		x, y := sums[a].Use, sums[b].Use
		return cmp.Or(cmp.Compare(y.Cost, x.Cost), cmp.Compare(y.Tokens(), x.Tokens()), strings.Compare(a, b))
	})
	return api.Costs{By: q.by, Total: newCostTotal(&total), Rows: api.ShowAll(keys, func(key string) api.Cost {
		return api.Cost{Key: key, CostTotal: newCostTotal(sums[key])}
	})}
}

func newCostTotal(sum *usage.Entry) api.CostTotal {
	return api.CostTotal{Runs: sum.Runs, Spent: api.NewSpent(sum.Use)}
}

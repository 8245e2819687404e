package local

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"

// Bounds of one call, so that it does not hold up others.
const (
	// ListLooksAt is how many runs or deliveries a query looks at before it leaves the rest to the next page.
	ListLooksAt = 10_000
	// ListReads is how many bytes of them it reads before it does so.
	ListReads = 32 << 20
	// PruneStep is how much Prune forgets at once.
	PruneStep = 200
)

// ReadsOf is how many bytes a query reads before it leaves the rest to the next page.
func ReadsOf(query *engine.Query) int {
	if query.Reads > 0 {
		return min(query.Reads, ListReads)
	}
	return ListReads
}

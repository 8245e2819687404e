package local

// Bounds of one call, so that it does not hold up others.
const (
	// ListLooksAt is how many runs or deliveries a query looks at before it leaves the rest to the next page.
	ListLooksAt = 10_000
	// ListReads is how many bytes of them it reads before it does so.
	ListReads = 32 << 20
	// PastMisses is how many runs that do not keep their message any more Past passes over.
	PastMisses = 100
	// PruneStep is how much Prune forgets at once.
	PruneStep = 200
)

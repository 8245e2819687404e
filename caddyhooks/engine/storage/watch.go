package storage

// Watch tells a node about changes, by whatever node they were made. Word comes soon after the change, may come without
// cause, and several changes may share one word.
type Watch interface {
	// Claimable receives word when there may be runs to claim. A node whose End leaves some to others need not hear of them
	// itself.
	Claimable() <-chan struct{}

	// Cancelled receives word when somebody wants a run of this node to be cancelled. Runs.Renew tells which.
	Cancelled() <-chan struct{}

	// Due receives word when there may be deliveries to claim now. A node need not hear of its own Settle.
	Due() <-chan struct{}

	// SettingsChanged receives word when there may be a new revision of the settings.
	SettingsChanged() <-chan struct{}

	// Ended returns a channel that is closed when a run ends after this call, and for no other cause, until stop is called.
	Ended(id string) (ended <-chan struct{}, stop func())
}

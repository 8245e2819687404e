// Package storage has what stores keep and tell besides runs, questions and deliveries: settings, documents, sessions, word of changes,
// and the terms on which runs and deliveries are handed out. It is a part of package engine, and knows nothing of runs.
package storage

import (
	"context"
	"time"
)

// Settings keeps the live settings, in whatever form their owner gives them. Each change makes a new revision; the first
// one is 1, and 0 says that nothing was saved yet.
type Settings interface {
	// Load returns the settings that were saved last, nil if none were, and their revision.
	Load(ctx context.Context) (settings []byte, revision int64, err error)

	// Revision is the revision in force, on whatever node it was saved.
	Revision(ctx context.Context) (int64, error)

	// Save stores settings that were made from a revision, if it is still the last one. ErrSettingsChanged says that it is
	// not. A description of the change, in whatever form, is stored in the same step, unless it is nil.
	Save(ctx context.Context, settings, description []byte, from int64) (revision int64, err error)

	// Changes returns the changes that were saved with a description, the newest first, and at most the last KeptChanges of
	// them. For next see Runs.List.
	Changes(ctx context.Context, limit int, cursor string) (page []SettingsChange, next string, err error)
}

// SettingsChange is a change of the live settings that was saved.
type SettingsChange struct {
	Revision    int64 // that it made
	At          time.Time
	Description []byte
}

// KeptChanges is how many changes of the settings a store keeps. The oldest go first.
const KeptChanges = 1000

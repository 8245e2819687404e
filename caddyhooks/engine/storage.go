package engine

import (
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/storage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// What callers and stores use of package storage.
type (
	Settings       = storage.Settings
	SettingsChange = storage.SettingsChange
	Documents      = storage.Documents
	Document       = storage.Document
	Sessions       = storage.Sessions
	Session        = storage.Session
	Watch          = storage.Watch

	Limits        = storage.Limits
	Batch         = storage.Batch
	Bound         = storage.Bound
	DeliveryBatch = storage.DeliveryBatch
	DeliveryWait  = storage.DeliveryWait
	Obstacle      = storage.Obstacle
	PausedHost    = storage.PausedHost
	Backlog       = storage.Backlog
	Undelivered   = storage.Undelivered

	StoreBrokenError = storage.BrokenError

	Remote        = storage.Remote
	OnDisk        = storage.OnDisk
	Shared        = storage.Shared
	Node          = storage.Node
	Refusal       = storage.Refusal
	Commits       = storage.Commits
	BackedUpStore = storage.BackedUpStore
	Backup        = storage.Backup
)

// What they use of package usage.
type (
	Use         = usage.Use
	UsageReport = usage.Report
	Ledger      = usage.Ledger
	LedgerEntry = usage.Entry
)

// Constants and errors of package storage.
const (
	KeptChanges     = storage.KeptChanges
	MaxDocument     = storage.MaxDocument
	MaxSession      = storage.MaxSession
	MaxDocumentName = storage.MaxDocumentName
	NoHistory       = storage.NoHistory
	MaxWithout      = storage.MaxWithout
	MaxCounted      = storage.MaxCounted

	NoObstacle   = storage.NoObstacle
	EarlierOne   = storage.EarlierOne
	PauseOfHost  = storage.PauseOfHost
	OthersOfHost = storage.OthersOfHost
)

var (
	ErrClaimLost       = storage.ErrClaimLost
	ErrUnreachable     = storage.ErrUnreachable
	ErrDocumentChanged = storage.ErrDocumentChanged
	ErrBackupUnderWay  = storage.ErrBackupUnderWay
)

// What is written to a store.
const (
	writeRun      = storage.WriteRun
	writeClaim    = storage.WriteClaim
	writeEnd      = storage.WriteEnd
	writeBack     = storage.WriteBack
	writeDelivery = storage.WriteDelivery
)

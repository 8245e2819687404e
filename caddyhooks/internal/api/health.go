package api

// Health tells whether this node takes on work.
type Health struct {
	Live      bool             `json:"live"`  // no instance needs a restart of Caddy
	Ready     bool             `json:"ready"` // all instances are
	Instances []InstanceHealth `json:"instances"`
}

type InstanceHealth struct {
	Instance string          `json:"instance"`
	Live     bool            `json:"live"`
	Ready    bool            `json:"ready"`
	Webhooks string          `json:"webhooks,omitempty"` // "on" or "off"
	Reason   string          `json:"reason,omitempty"`   // why it is not ready, in words
	Reasons  []HealthProblem `json:"reasons,omitempty"`
	Degraded []HealthProblem `json:"degraded,omitempty"` // what else is wrong
}

type HealthProblem struct {
	Code   string `json:"code"`   // one of the constants below
	Detail string `json:"detail"` // for operators alone
}

// What can be wrong with an instance.
const (
	IsStarting        = "starting"
	IsStopping        = "stopping"
	StoreUnreachable  = "store_unreachable"
	StoreBroken       = "store_broken"
	StoreFailing      = "store_failing" // the last write failed
	StoreReadOnly     = "store_read_only"
	StoreDiskFull     = "store_disk_full"
	NodeSilent        = "node_silent"    // another node is gone, and did not say that it stops
	StoreDiskLow      = "store_disk_low" // the disk is almost full; the instance is ready all the same
	QueueNearlyFull   = "queue_nearly_full"
	RunnerUnreachable = "runner_unreachable"
	IsPaused          = "paused" // an operator has paused something; the instance is ready all the same
	IsPaced           = "paced"  // an operator lets runs of something start at a rate, likewise
)

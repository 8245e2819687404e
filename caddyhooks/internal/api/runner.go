package api

import (
	"time"
)

// Runner is a runner as operators see it, and how it fares on this node.
type Runner struct {
	Name        string     `json:"name"`
	Module      string     `json:"module"`
	Preset      string     `json:"preset,omitempty"`
	Address     string     `json:"address,omitempty"`
	Default     bool       `json:"default,omitempty"`
	Tiers       []string   `json:"tiers,omitempty"` // that runner_for sends to it
	Gone        bool       `json:"gone,omitempty"`  // a reload took it away, and turns of before are under way
	State       string     `json:"state"`
	InFlight    int        `json:"inFlight"`
	LastError   string     `json:"lastError"`
	LastErrorAt *time.Time `json:"lastErrorAt"`
	LastOK      *time.Time `json:"lastOk"`
}

// RunnerTry is what came of a try.
type RunnerTry struct {
	OK      bool    `json:"ok"`
	Text    string  `json:"text"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error"`
}

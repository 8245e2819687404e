package engine

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/starts"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// Config is what an engine works with. It is replaced as a whole when the configuration is reloaded.
type Config struct {
	Runners       map[string]Runner
	DefaultRunner string // the name of the runner for runs that name none
	Channels      map[string]Channel
	Callbacks     Sender
	ErrorBody     func(message string) (contentType, body string) // of a callback for a run without a text; nil: plain text
	Workers       int
	Limits        Limits
	History       func() time.Duration // the History of the limits, if it changes; nil if it does not
	MaxAttempts   int                  // how often a run is started, if the process or the agent dies while it is carried out; 0 is no limit
	Lease         time.Duration        // how long a node keeps what it has claimed if it falls silent. Default: 12s.
	DrainTimeout  time.Duration
	Metrics       Metrics // nil if nobody counts
	Traces        Traces  // nil if nobody traces
	Announcer     Announcer
	Progress      ProgressTeller                  // nil if no chat is told
	Questions     Questioner                      // nil if nobody is asked
	Price         func(model string) *usage.Price // of a model, nil if it is not known; may be nil
	Log           *zap.Logger
}

// runnerOf is the name of the runner that carries out a run.
func (c *Config) runnerOf(run *Run) string {
	if run.Runner == "" {
		return c.DefaultRunner
	}
	return run.Runner
}

// hasRunner reports whether a runner of this name is configured.
func (c *Config) hasRunner(name string) bool { return c.Runners[name] != nil }

// startOf is what pauses know a run by.
func (c *Config) startOf(run *Run) starts.Started {
	return starts.Started{Hook: run.Hook, Chat: run.ChatID, Runner: c.runnerOf(run)}
}

// namesOf are the names that runs have for some runners.
func (c *Config) namesOf(runners ...string) (names []string) {
	for _, name := range runners {
		names = append(names, name)
		if name == c.DefaultRunner {
			names = append(names, "")
		}
	}
	return names
}

// pruneLimits are the limits with the History that is in force now.
func (c *Config) pruneLimits() Limits {
	limits := c.Limits
	if c.History != nil {
		limits.History = c.History()
	}
	return limits
}

// configs are the configurations that are attached to an engine. The last one is in force.
type configs struct {
	inForce atomic.Pointer[Config]

	mu       sync.Mutex
	attached []*Config
}

// config is the one in force, nil before the first one.
func (c *configs) config() *Config { return c.inForce.Load() }

// attach puts a config in force, and reports whether it is the first one.
func (c *configs) attach(config *Config) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = append(c.attached, config)
	return c.inForce.Swap(config) == nil
}

// detach brings back the config before one that was in force, and reports whether there is another one in force now. The last one stays.
func (c *configs) detach(config *Config) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = slices.DeleteFunc(c.attached, func(other *Config) bool { return other == config })
	n := len(c.attached)
	return n > 0 && c.inForce.Swap(c.attached[n-1]) == config
}

func (c *configs) log() *zap.Logger {
	if config := c.config(); config != nil {
		return config.Log
	}
	return zap.NewNop()
}

func (c *configs) metrics() Metrics {
	if config := c.config(); config != nil && config.Metrics != nil {
		return config.Metrics
	}
	return NoMetrics{}
}

// traces is nil if nobody traces.
func (c *configs) traces() Traces {
	if config := c.config(); config != nil {
		return config.Traces
	}
	return nil
}

// price is what a model costs when a turn ends, nil if it is not known.
func (c *configs) price(model string) *usage.Price {
	if config := c.config(); config != nil && config.Price != nil {
		return config.Price(model)
	}
	return nil
}

func (c *configs) lease() time.Duration {
	if config := c.config(); config != nil && config.Lease > 0 {
		return config.Lease
	}
	return defaultLease
}

// defaultLease is how long a node keeps what it has claimed if it falls silent. After that other nodes may take it.
const defaultLease = 12 * time.Second

func (c *configs) drainTimeout() time.Duration {
	if config := c.config(); config != nil {
		return config.DrainTimeout
	}
	return 0
}

// announceEnd tells of a run that has ended.
func (c *configs) announceEnd(run *Run, outcome Outcome, took time.Duration) {
	if config := c.config(); config != nil && config.Announcer != nil {
		config.Announcer.RunEnded(run, outcome, took)
	}
}

// announceSettled tells of a delivery if it was given up.
func (c *configs) announceSettled(d *Delivery) {
	if config := c.config(); config != nil && config.Announcer != nil && d.Status == Dead {
		config.Announcer.DeliveryDead(d)
	}
}

// protect keeps a panic, of a store say, from taking the process down.
func (c *configs) protect(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			c.log().Error("panic", zap.String("while", what), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
		}
	}()
	f()
}

package service

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Options are the configuration of an instance.
type Options struct {
	// The name of the instance. It is part of the path of its store and of its admin endpoints. Default: "default".
	Name string `json:"name,omitempty"`

	// The path below which hooks are served. Default: /api/hooks.
	Path string `json:"path,omitempty"`

	// Where others reach the site of the hooks, such as https://hooks.example.com: agents that answer later, and people who answer questions.
	// Default: the address of the site, if it has one.
	PublicURL string `json:"public_url,omitempty"`

	// The webhook settings. A setting that is given here is pinned: the admin API shows it and refuses to change it.
	Settings settings.Settings `json:"settings,omitzero"`

	// The longest time that a request or a hook may ask for. Default: 1h.
	MaxTimeout caddy.Duration `json:"max_timeout,omitempty"`

	// The largest body that wake and agent take, in bytes or as in "1MB". Default: 1MB.
	MaxRequest settings.Size `json:"max_request,omitempty"`

	// How much memory all requests together may take until they are stored. Each counts eight times what has arrived of its body or, if
	// they are larger, the messages that its hook makes of it, and twice the values that its hook reads. A request beyond that is answered
	// 503, one that is larger on its own 413. At least 1MB, and eight times max_request and the largest body of custom hooks. Default: 256MB.
	MaxMemory settings.Size `json:"max_memory,omitempty"`

	// The runners, which carry out turns, by the names that hooks use. Webhooks can be enabled only if there is one.
	RunnersRaw map[string]json.RawMessage `json:"runners,omitempty" caddy:"namespace=hooks.runners inline_key=runner"`

	// The name of the runner for runs that no hook and no tier sends to another one. Default: the only one, or "default".
	DefaultRunner string `json:"default_runner,omitempty"`

	// The names of the runners for some model tiers. A hook that names a runner goes before.
	RunnerFor map[string]string `json:"runner_for,omitempty"`

	// What models cost, for turns whose agent reports tokens and no cost: for each model the US dollars for a million tokens of input, of
	// output and, if they differ, of cached input. In the name of a model, * stands for any characters. At most 200.
	Prices []ModelPrice `json:"prices,omitempty"`

	// What the runs of all hooks together may spend, at most 8 budgets.
	Budgets []settings.Budget `json:"budgets,omitempty"`

	// The store of runs and live settings. Default: bolt.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=hooks.stores inline_key=store"`

	// The messaging channels that replies can be delivered to, by the name that requests and hooks use.
	ChannelsRaw map[string]json.RawMessage `json:"channels,omitempty" caddy:"namespace=hooks.channels inline_key=channel"`

	// How callbacks are sent.
	Callbacks Callbacks `json:"callbacks,omitzero"`

	// How many runs are carried out at once. Default: 16.
	Workers int `json:"workers,omitempty"`

	// How many runs may be queued. A request beyond that is answered 503. Default: 100000.
	QueueLimit int `json:"queue_limit,omitempty"`

	// How many runs of one chat may be queued, so that no chat fills the queue for all others. A request beyond that is
	// answered 503. 0 is as many as queue_limit. Default: a tenth of queue_limit, rounded up.
	ChatLimit *int `json:"chat_limit,omitempty"`

	// How often a run is started. A run interrupted by that many crashes, of Caddy or of the agent, is marked
	// failed. Default: 5.
	MaxAttempts int `json:"max_attempts,omitempty"`

	// How long finished runs are kept. Default: 168h.
	Retention caddy.Duration `json:"retention,omitempty"`

	// How long a run may wait until an agent takes it on, if neither its request nor its hook sets a shorter time. A run
	// that waited longer has expired. Default: 24h.
	QueueTime caddy.Duration `json:"queue_time,omitempty"`

	// How many bytes of messages, metadata and schemas of finished runs are kept, in bytes or as in "1GB". The oldest go
	// first. Default: 1GB.
	HistoryLimit settings.Size `json:"history_limit,omitempty"`

	// How long running turns may go on when Caddy shuts down. Default: 10s.
	DrainTimeout caddy.Duration `json:"drain_timeout,omitempty"`
}

const (
	DefaultPath       = "/api/hooks"
	DefaultMaxRequest = 1 << 20
	DefaultMaxMemory  = 256 << 20
	MinMaxMemory      = 1 << 20
	DefaultQueueTime  = caddy.Duration(24 * time.Hour)
	defaultStore      = `{"store":"bolt"}`
)

// FillIn sets defaults, and checks the options.
func (o *Options) FillIn() error {
	if o.Name == "" {
		o.Name = "default"
	}
	if !settings.HookName.MatchString(o.Name) {
		return fmt.Errorf("the instance name '%s' is refused: use up to 64 letters, digits, dots, dashes and underscores", o.Name)
	}
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if err := CheckPath(o.Path); err != nil {
		return err
	}
	if err := CheckPublicURL(o.PublicURL); err != nil {
		return err
	}
	for i := range o.Prices {
		if err := o.Prices[i].Check(o.Prices[:i]); err != nil {
			return err
		}
	}
	o.MaxTimeout = cmp.Or(o.MaxTimeout, caddy.Duration(time.Hour))
	o.MaxRequest = cmp.Or(o.MaxRequest, DefaultMaxRequest)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultMaxMemory)
	o.Workers = cmp.Or(o.Workers, 16)
	o.QueueLimit = cmp.Or(o.QueueLimit, 100_000)
	if o.ChatLimit == nil {
		tenth := o.QueueLimit/10 + min(o.QueueLimit%10, 1)
		o.ChatLimit = &tenth
	}
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 5)
	o.Retention = cmp.Or(o.Retention, DefaultRetention)
	o.HistoryLimit = cmp.Or(o.HistoryLimit, 1<<30)
	o.QueueTime = cmp.Or(o.QueueTime, DefaultQueueTime)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, caddy.Duration(10*time.Second))
	if o.StoreRaw == nil {
		o.StoreRaw = json.RawMessage(defaultStore)
	}
	return o.check()
}

// CheckPublicURL checks a public URL. "" is none.
func CheckPublicURL(address string) error {
	u, err := url.Parse(address)
	isSite := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		u.RawQuery == "" && u.Fragment == ""
	if address != "" && !isSite {
		return fmt.Errorf("public_url '%s' is refused: write the URL of the site, such as https://hooks.example.com", text.Abridge(address))
	}
	return nil
}

// check names the first option that is out of its bounds.
func (o *Options) check() error {
	const second = caddy.Duration(time.Second)
	for _, option := range []struct {
		name string
		ok   bool
		must string
	}{
		{"max_timeout", o.MaxTimeout >= second, "be at least 1s"},
		{"max_request", o.MaxRequest >= 1 && o.MaxRequest <= settings.MaxPayloadLimit, "be from 1 byte to 64MB"},
		{"max_memory", o.MaxMemory >= max(MinMaxMemory, settings.MemoryPerByte*o.MaxRequest), "be at least 1MB, and eight times max_request"},
		{"workers", o.Workers >= 1, "be at least 1"},
		{"queue_limit", o.QueueLimit >= 1, "be at least 1"},
		{"chat_limit", *o.ChatLimit >= 0, "not be negative"},
		{"max_attempts", o.MaxAttempts >= 1, "be at least 1"},
		{"retention", o.Retention >= second, "be at least 1s"},
		{"queue_time", o.QueueTime >= second, "be at least 1s"},
		{"history_limit", o.HistoryLimit >= 1 && o.HistoryLimit <= MaxHistoryLimit, "be from 1 byte to 1024GB"},
		{"drain_timeout", o.DrainTimeout >= 0, "not be negative"},
		{"timeout of callbacks", o.Callbacks.Timeout >= 0, "not be negative"},
	} {
		if !option.ok {
			return fmt.Errorf("%s must %s", option.name, option.must)
		}
	}
	return nil
}

const (
	DefaultRetention = caddy.Duration(7 * 24 * time.Hour)
	MaxHistoryLimit  = 1 << 40
)

func CheckPath(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "{}*?#") {
		return fmt.Errorf("the path '%s' is refused: it must begin with a slash, not end with one, and hold no placeholder or wildcard", path)
	}
	return nil
}

// RunnerChoice checks the names of the runners.
func (o *Options) RunnerChoice() (settings.RunnerChoice, error) {
	choice := settings.RunnerChoice{Names: slices.Sorted(maps.Keys(o.RunnersRaw)), ByTier: o.RunnerFor, Fallback: o.DefaultRunner}
	for _, name := range choice.Names {
		if err := settings.CheckRunnerName(name); err != nil {
			return choice, err
		}
	}
	if choice.Fallback == "" {
		choice.Fallback = settings.UnnamedRunner
		if len(choice.Names) == 1 {
			choice.Fallback = choice.Names[0]
		}
	}
	if !slices.Contains(choice.Names, choice.Fallback) && (len(choice.Names) > 0 || o.DefaultRunner != "") {
		if o.DefaultRunner == "" {
			return choice, errors.New("with several runners, one must be called default, or default_runner must name one")
		}
		return choice, fmt.Errorf("default_runner names no runner that is configured here; there %s", settings.AreListed(choice.Names))
	}
	for _, tier := range slices.Sorted(maps.Keys(o.RunnerFor)) {
		if !slices.Contains(settings.Tiers, tier) {
			return choice, fmt.Errorf("runner_for names an unknown tier; the tiers are %s", text.List(settings.Tiers))
		}
		if !slices.Contains(choice.Names, o.RunnerFor[tier]) {
			return choice, fmt.Errorf("runner_for %s names no runner that is configured here; there %s", tier, settings.AreListed(choice.Names))
		}
	}
	return choice, nil
}

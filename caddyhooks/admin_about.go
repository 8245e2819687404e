package caddyhooks

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /about", (*instance).serveAbout)
}

// aboutJSON is what a page has to know about an instance, and what no setting tells.
type aboutJSON struct {
	Instance          string       `json:"instance"`
	Path              string       `json:"path"`
	URLs              []string     `json:"urls"` // as far as they are known
	On                bool         `json:"on"`
	OffBecause        string       `json:"offBecause"`
	Channels          []guestJSON  `json:"channels"`
	Runner            string       `json:"runner"` // the kind of the default one
	Runners           []guestJSON  `json:"runners"`
	Store             string       `json:"store"`
	StoreBytes        int64        `json:"storeBytes,omitempty"` // if it is known
	Tiers             []string     `json:"tiers"`
	MemoryPresets     []string     `json:"memoryPresets"`
	MaxTimeoutSeconds int          `json:"maxTimeoutSeconds"`
	QueueTimeSeconds  int          `json:"queueTimeSeconds"`
	RetentionSeconds  int          `json:"retentionSeconds"`
	Workers           int          `json:"workers"`
	Schemes           []schemeJSON `json:"schemes"`
	Now               *time.Time   `json:"now"`
}

// schemeJSON is a way to authenticate that a custom hook can choose.
type schemeJSON struct {
	Name             string   `json:"name"`  // the value of authMode
	Title            string   `json:"title"` // a sender's name begins with a capital letter
	Fields           []string `json:"fields"`
	Theirs           bool     `json:"theirs"` // the sender makes the secret
	Signs            bool     `json:"signs"`  // a payload can be signed for a try-out
	ToleranceSeconds int      `json:"toleranceSeconds"`
	SuccessStatus    int      `json:"successStatus,omitempty"` // of every answer, if the sender takes no other one for success
}

// showSchemes lists all schemes.
func showSchemes() []schemeJSON {
	return showAll(schemes, func(s *scheme) schemeJSON {
		return schemeJSON{s.name, cmp.Or(s.title, s.name), append([]string{}, s.fields...), s.secretTheirs, s.signs(), int(s.tolerance / time.Second),
			authentication{scheme: s}.successStatus(nil, 0)}
	})
}

// signs reports whether a payload can be signed by an operator, with the secret of a hook.
func (s *scheme) signs() bool {
	m := Mapping{AuthMode: s.name, HMACHeader: "X-Signature", HMACSecret: Secrets{exampleSecret}, AuthSecret: Secrets{exampleSecret}}
	verifier, err := s.compile(&m, hookSecrets{resolve: func(secret string) (string, error) { return secret, nil }})
	_, ok := verifier.(auth.Signer)
	return err == nil && ok
}

// exampleSecret is one that every scheme takes.
const exampleSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" //nolint:gosec // nobody has it

// guestJSON is a channel or a runner.
type guestJSON struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

func (in *instance) serveAbout(w http.ResponseWriter, _ *http.Request) error {
	active := in.active.Load()
	about := aboutJSON{
		Instance: in.name, Path: in.path, URLs: in.urls, On: active.on, OffBecause: active.offBecause, Runners: []guestJSON{}, Channels: []guestJSON{},
		Runner: kindOf(in.engineConfig.Runners[in.engineConfig.DefaultRunner]), Store: kindOf(in.opener),
		Tiers: tiers, MemoryPresets: memoryPresets,
		MaxTimeoutSeconds: in.rules.maxSeconds(), QueueTimeSeconds: in.rules.maxQueueSeconds(), RetentionSeconds: in.rules.retentionSeconds(),
		Workers: in.engineConfig.Workers, Schemes: showSchemes(), Now: text.JSONTime(time.Now()),
	}
	if told, err := in.service.figures.ask(in.service.engine); err == nil {
		about.StoreBytes = max(told.bytes, 0)
	}
	for _, name := range in.rules.runners.names {
		about.Runners = append(about.Runners, guestJSON{name, kindOf(in.engineConfig.Runners[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(in.rules.channels)) {
		about.Channels = append(about.Channels, guestJSON{name, kindOf(in.rules.channels[name])})
	}
	return writeAdminJSON(w, http.StatusOK, about)
}

// kindOf is the name of a module in its namespace, as the configuration has it.
func kindOf(module any) string {
	if m, ok := module.(caddy.Module); ok {
		return m.CaddyModule().ID.Name()
	}
	return ""
}

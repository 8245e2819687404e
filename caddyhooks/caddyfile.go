package caddyhooks

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

func init() {
	httpcaddyfile.RegisterDirective("hooks", parseCaddyfile)
	// Only requests below the path of the hooks end here, and they are not for the rest of the site: try_files would
	// rewrite them, basic_auth wants the header that carries their token, templates would evaluate the replies of an agent,
	// and a catch-all handle would take them.
	httpcaddyfile.RegisterDirectiveOrder("hooks", httpcaddyfile.Before, "rewrite")
}

// parseCaddyfile makes a route of the block, and another one if it has health.
func parseCaddyfile(helper httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	helper.Next()
	place := *helper.Dispenser
	matcher, err := helper.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	h := new(Handler)
	health, err := h.unmarshal(helper)
	if err != nil {
		return nil, err
	}
	if err := h.checkMatcher(matcher); err != nil {
		return nil, place.WrapErr(err)
	}
	routes := helper.NewRoute(matcher, h)
	if health != nil {
		routes = append(health.route(helper), routes...)
	}
	return routes, nil
}

// UnmarshalCaddyfile does what parseCaddyfile does, without the site that the block stands in.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	health, err := h.unmarshal(httpcaddyfile.Helper{Dispenser: d})
	if health != nil {
		return d.Err("health needs a site")
	}
	return err
}

// unmarshal parses:
//
//	hooks [<matcher>] [<name>] {
//		enabled
//		token           <secret>...
//		default_timeout <duration>
//		max_payload     <size>
//		memory_preset   <id>
//		history         <duration>|off
//		keep_refused    <duration>|off
//		wake_fold       <window> [<max>]
//		path            <path>
//		public_url      <url>
//		health          <path> { … }
//		max_timeout     <duration>
//		max_request     <size>
//		max_memory      <size>
//		runner          [<name>] <module> [<arg>...] { … }
//		runner_for      <tier>... <name>
//		prices
//		budget          $<amount>/<duration>|<n> tokens/<duration> [else hold|refuse|ignore]
//		store           <module> [<arg>...] { … }
//		workers         <n>
//		queue_limit     <n>
//		chat_limit      <n>
//		max_attempts    <n>
//		retention       <duration>
//		history_limit   <size>
//		queue_time      <duration>
//		drain_timeout   <duration>
//		channel         <name> <module> [<arg>...] { … }
//		callbacks
//		hook            <name> { … }
//	}
func (h *Handler) unmarshal(helper httpcaddyfile.Helper) (health *Health, err error) {
	d := helper.Dispenser
	d.Next()
	if d.NextArg() {
		h.Name = d.Val()
		if !settings.HookName.MatchString(h.Name) {
			return nil, d.Errf("the instance name '%s' is refused: use up to 64 letters, digits, dots, dashes and underscores%s", h.Name,
				ifEmpty(h.Name))
		}
	}
	if d.NextArg() {
		return nil, d.ArgErr()
	}
	places := make(settings.SettingPlaces)
	var directives []caddyconf.Directive
	for _, e := range settings.AllSettings {
		directives = append(directives, places.Note(e.CaddyfileDirective(&h.Settings), e.JSONName()))
	}
	var hooks []*settings.HookBlock
	runners := runnerLines{handler: h, helper: helper}
	directives = append(directives,
		caddyconf.Set("path", &h.Path, caddyconf.Checked(caddyconf.Text, service.CheckPath)),
		caddyconf.Set("public_url", &h.PublicURL, caddyconf.Checked(caddyconf.Text, service.CheckPublicURL)),
		places.Note(caddyconf.Directive{Word: "health", Read: func(d *caddyfile.Dispenser) error {
			health, err = unmarshalHealth(d)
			return err
		}}, "health"),
		caddyconf.Set("max_timeout", &h.MaxTimeout, caddyconf.Duration(time.Second)),
		caddyconf.Set("max_request", &h.MaxRequest, caddyconf.Bytes(settings.MaxPayloadLimit>>20)),
		places.Note(caddyconf.Set("max_memory", &h.MaxMemory, caddyconf.BytesFrom(service.MinMaxMemory>>20)), "max_memory"),
		caddyconf.Directive{Word: "runner", Read: runners.unmarshalRunner, Repeatable: true},
		caddyconf.Directive{Word: "runner_for", Read: runners.unmarshalTiers, Repeatable: true},
		caddyconf.Directive{Word: "prices", Read: h.unmarshalPrices},
		caddyconf.Directive{Word: "budget", Repeatable: true, Read: h.unmarshalBudget},
		caddyconf.Set("store", &h.StoreRaw, caddyconf.Module("hooks.stores", "store")),
		caddyconf.Set("workers", &h.Workers, caddyconf.Number(1)),
		caddyconf.Set("queue_limit", &h.QueueLimit, caddyconf.Number(1)),
		caddyconf.Set("chat_limit", &h.ChatLimit, caddyconf.Pointer(caddyconf.Number(0))),
		caddyconf.Set("max_attempts", &h.MaxAttempts, caddyconf.Number(1)),
		caddyconf.Set("retention", &h.Retention, caddyconf.Duration(time.Second)),
		caddyconf.Set("history_limit", &h.HistoryLimit, caddyconf.Bytes(service.MaxHistoryLimit>>20)),
		caddyconf.Set("queue_time", &h.QueueTime, caddyconf.Duration(time.Second)),
		caddyconf.Set("drain_timeout", &h.DrainTimeout, caddyconf.Duration(time.Millisecond)),
		caddyconf.Directive{Word: "channel", Read: h.unmarshalChannel, Repeatable: true},
		caddyconf.Directive{Word: "callbacks", Read: func(d *caddyfile.Dispenser) error { return unmarshalCallbacks(&h.Callbacks, d) }},
		caddyconf.Directive{Word: "hook", Repeatable: true, Read: func(d *caddyfile.Dispenser) error {
			hook, err := settings.UnmarshalHook(d)
			hooks = append(hooks, hook)
			return err
		}},
	)
	if err := caddyconf.ReadBlock(d, "hooks", withThoseOfHooks(directives)...); err != nil {
		return nil, err
	}
	if err := runners.check(); err != nil {
		return nil, err
	}
	if health != nil {
		health.Name = h.Name
		place := places["health"]
		if err := health.checkPaths(cmp.Or(h.Path, service.DefaultPath)); err != nil {
			return nil, place.WrapErr(err)
		}
	}
	return health, h.checkBlock(d, places, hooks)
}

// ifEmpty explains why a text may be empty.
func ifEmpty(text string) string {
	if text == "" {
		return caddyconf.Unset
	}
	return ""
}

// checkBlock checks settings and hooks, which depend on other lines of the block.
func (h *Handler) checkBlock(d *caddyfile.Dispenser, places settings.SettingPlaces, hooks []*settings.HookBlock) error {
	guard, err := h.Callbacks.Guard()
	if err != nil {
		return d.WrapErr(err)
	}
	r := &settings.Rules{
		MaxTimeout:  time.Duration(cmp.Or(h.MaxTimeout, caddy.Duration(time.Hour))),
		QueueTime:   time.Duration(cmp.Or(h.QueueTime, service.DefaultQueueTime)),
		MaxMemory:   cmp.Or(h.MaxMemory, service.DefaultMaxMemory),
		Retention:   time.Duration(cmp.Or(h.Retention, service.DefaultRetention)),
		History:     h.Settings.HistorySeconds,
		Guard:       guard,
		CheckSchema: settings.CheckSchema,
		Channels:    make(map[string]engine.Channel),
	}
	if r.Runners, err = h.RunnerChoice(); err != nil {
		return d.WrapErr(err)
	}
	for name := range h.ChannelsRaw {
		r.Channels[name] = nil
	}
	if r.MaxMemory < settings.MemoryPerByte*cmp.Or(h.MaxRequest, service.DefaultMaxRequest) {
		return places.ErrAt(d, settings.FieldErrorf("max_memory", "must be at least eight times max_request"))
	}
	if err := h.Settings.Check(r); err != nil {
		return places.ErrAt(d, err)
	}
	taken := make(map[string]bool, len(hooks))
	for i, hook := range hooks {
		if i == settings.MaxHooks {
			return hook.Places.ErrAt(d, settings.FieldErrorf("name", "%s is one too many: there can be %d", hook.Name, settings.MaxHooks))
		}
		if taken[hook.Name] {
			place := hook.Places["name"]
			return place.Errf("duplicate hook %q", hook.Name)
		}
		taken[hook.Name] = true
		// Whether a secret is there is a matter of the machine that the configuration is loaded on.
		unresolved := settings.HookSecrets{Resolve: func(secret string) (string, error) { return secret, nil }}
		if _, err := hook.Compile(r, unresolved); err != nil {
			return hook.Places.ErrAt(d, err)
		}
		h.Settings.Mappings = append(h.Settings.Mappings, hook.Mapping)
	}
	return nil
}

// unmarshalPrices parses:
//
//	prices {
//		<model> <input> <output> [<cached>]
//	}
func (h *Handler) unmarshalPrices(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Err("prices takes a block, and no arguments")
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		price, err := service.ReadPrice(append([]string{d.Val()}, d.RemainingArgs()...))
		if err == nil {
			err = price.Check(h.Prices)
		}
		if err != nil {
			return d.WrapErr(err)
		}
		h.Prices = append(h.Prices, price)
	}
	return nil
}

func (h *Handler) unmarshalBudget(d *caddyfile.Dispenser) (err error) {
	h.Budgets, err = settings.ReadBudget(d, "", h.Budgets)
	return err
}

// unmarshalChannel parses:
//
//	channel <name> <module> [<arg>...] { … }
func (h *Handler) unmarshalChannel(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Err("channel takes a name and a module, and there are none" + caddyconf.Unset)
	}
	name := d.Val()
	if name == "" {
		return d.Err("a channel must have a name" + caddyconf.Unset)
	}
	if _, ok := h.ChannelsRaw[name]; ok {
		return d.Errf("channel %s is set already", name)
	}
	raw, err := caddyconf.Module("hooks.channels", "channel")(d)
	if err != nil {
		return err
	}
	if h.ChannelsRaw == nil {
		h.ChannelsRaw = make(map[string]json.RawMessage)
	}
	h.ChannelsRaw[name] = raw
	return nil
}

// withThoseOfHooks adds the directives of the block of a hook, which do not belong among these.
func withThoseOfHooks(directives []caddyconf.Directive) []caddyconf.Directive {
	all := slices.Clone(directives)
	for _, ofHook := range new(settings.HookBlock).Directives() {
		if !slices.ContainsFunc(directives, func(d caddyconf.Directive) bool { return d.Word == ofHook.Word }) {
			all = append(all, caddyconf.Directive{Word: ofHook.Word, Elsewhere: "a block 'hook <name> { … }'"})
		}
	}
	return all
}

// unmarshalCallbacks parses:
//
//	callbacks {
//		secret  <whsec>...
//		allow   <cidr>...
//		ports   <n>...|*
//		timeout <duration>
//	}
func unmarshalCallbacks(c *service.Callbacks, d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Err("callbacks takes a block, and no arguments") // the argument may be a secret
	}
	return caddyconf.ReadBlock(d, "callbacks",
		caddyconf.Set("secret", (*[]string)(&c.Secret), caddyconf.Checked(caddyconf.Secrets, outbound.CheckSecrets)),
		caddyconf.Set("allow", &c.Allow, caddyconf.Checked(caddyconf.List, service.CheckAllowed)),
		caddyconf.Directive{Word: "ports", Read: func(d *caddyfile.Dispenser) error { return unmarshalCallbackPorts(c, d) }},
		caddyconf.Set("timeout", &c.Timeout, caddyconf.Duration(time.Millisecond)),
	)
}

func unmarshalCallbackPorts(c *service.Callbacks, d *caddyfile.Dispenser) error {
	args, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	if len(args) == 1 && args[0] == "*" {
		c.AnyPort = true
		return nil
	}
	for _, arg := range args {
		port, err := strconv.ParseUint(arg, 10, 16)
		if err != nil || port == 0 {
			return d.Errf("bad port '%s': ports takes numbers from 1 to 65535, or a single *", arg)
		}
		c.Ports = append(c.Ports, uint16(port))
	}
	return nil
}

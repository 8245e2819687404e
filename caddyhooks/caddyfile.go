package caddyhooks

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
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
//		path            <path>
//		health          <path> { … }
//		max_timeout     <duration>
//		max_request     <size>
//		max_memory      <size>
//		runner          [<name>] <module> [<args...>] { … }
//		runner_for      <tier>... <name>
//		store           <module> [<args...>] { … }
//		workers         <n>
//		queue_limit     <n>
//		chat_limit      <n>
//		max_attempts    <n>
//		retention       <duration>
//		history_limit   <size>
//		queue_time      <duration>
//		drain_timeout   <duration>
//		channel         <name> <module> [<args...>] { … }
//		callbacks       { … }
//		hook            <name> { … }
//	}
func (h *Handler) unmarshal(helper httpcaddyfile.Helper) (health *Health, err error) {
	d := helper.Dispenser
	d.Next()
	if d.NextArg() {
		h.Name = d.Val()
		if !hookName.MatchString(h.Name) {
			return nil, d.Errf("the instance name '%s' is refused: use up to 64 letters, digits, dots, dashes and underscores%s", h.Name, ifEmpty(h.Name))
		}
	}
	if d.NextArg() {
		return nil, d.ArgErr()
	}
	places := make(settingPlaces)
	var directives []caddyconf.Directive
	for _, e := range allSettings {
		directives = append(directives, places.note(e.caddyfileDirective(&h.Settings), e.jsonName()))
	}
	var hooks []*hookBlock
	runners := runnerLines{handler: h, helper: helper}
	directives = append(directives,
		caddyconf.Set("path", &h.Path, caddyconf.Checked(caddyconf.Text, checkPath)),
		places.note(caddyconf.Directive{Word: "health", Read: func(d *caddyfile.Dispenser) error {
			health, err = unmarshalHealth(d)
			return err
		}}, "health"),
		caddyconf.Set("max_timeout", &h.MaxTimeout, caddyconf.Duration(time.Second)),
		caddyconf.Set("max_request", &h.MaxRequest, caddyconf.Bytes(maxPayloadLimit>>20)),
		places.note(caddyconf.Set("max_memory", &h.MaxMemory, caddyconf.BytesFrom(minMaxMemory>>20)), "max_memory"),
		caddyconf.Directive{Word: "runner", Read: runners.unmarshalRunner, Repeatable: true},
		caddyconf.Directive{Word: "runner_for", Read: runners.unmarshalTiers, Repeatable: true},
		caddyconf.Set("store", &h.StoreRaw, caddyconf.Module("hooks.stores", "store")),
		caddyconf.Set("workers", &h.Workers, caddyconf.Number(1)),
		caddyconf.Set("queue_limit", &h.QueueLimit, caddyconf.Number(1)),
		caddyconf.Set("chat_limit", &h.ChatLimit, caddyconf.Pointer(caddyconf.Number(0))),
		caddyconf.Set("max_attempts", &h.MaxAttempts, caddyconf.Number(1)),
		caddyconf.Set("retention", &h.Retention, caddyconf.Duration(time.Second)),
		caddyconf.Set("history_limit", &h.HistoryLimit, caddyconf.Bytes(maxHistoryLimit>>20)),
		caddyconf.Set("queue_time", &h.QueueTime, caddyconf.Duration(time.Second)),
		caddyconf.Set("drain_timeout", &h.DrainTimeout, caddyconf.Duration(time.Millisecond)),
		caddyconf.Directive{Word: "channel", Read: h.unmarshalChannel, Repeatable: true},
		caddyconf.Directive{Word: "callbacks", Read: func(d *caddyfile.Dispenser) error { return unmarshalCallbacks(&h.Callbacks, d) }},
		caddyconf.Directive{Word: "hook", Repeatable: true, Read: func(d *caddyfile.Dispenser) error {
			hook, err := unmarshalHook(d)
			hooks = append(hooks, hook)
			return err
		}},
	)
	if err := caddyconf.ReadBlock(d, "hooks", directives...); err != nil {
		return nil, err
	}
	if err := runners.check(); err != nil {
		return nil, err
	}
	if health != nil {
		health.Name = h.Name
		place := places["health"]
		if err := health.checkPaths(cmp.Or(h.Path, defaultPath)); err != nil {
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

// settingPlaces are the places in a Caddyfile that set something, by its name in JSON. Errors that are found when the whole
// block is known are reported there.
type settingPlaces map[string]caddyfile.Dispenser

// note returns the directive, which then notes its place as that of the named settings.
func (p settingPlaces) note(directive caddyconf.Directive, settings ...string) caddyconf.Directive {
	read := directive.Read
	directive.Read = func(d *caddyfile.Dispenser) error {
		for _, name := range settings {
			p[name] = *d
		}
		return read(d)
	}
	return directive
}

// errAt reports an error at the place of the setting that it is about.
func (p settingPlaces) errAt(d *caddyfile.Dispenser, err error) error {
	var field *fieldError
	if errors.As(err, &field) {
		if place, ok := p[field.field]; ok {
			return place.Errf("%s %s", place.Val(), field.problem.in(caddyfileWords))
		}
		return d.Err(field.in(caddyfileWords))
	}
	return d.WrapErr(err)
}

// checkBlock checks settings and hooks, which depend on other lines of the block.
func (h *Handler) checkBlock(d *caddyfile.Dispenser, places settingPlaces, hooks []*hookBlock) error {
	guard, err := h.Callbacks.guard()
	if err != nil {
		return d.WrapErr(err)
	}
	r := &rules{
		maxTimeout:  time.Duration(cmp.Or(h.MaxTimeout, caddy.Duration(time.Hour))),
		queueTime:   time.Duration(cmp.Or(h.QueueTime, defaultQueueTime)),
		maxMemory:   cmp.Or(h.MaxMemory, defaultMaxMemory),
		retention:   time.Duration(cmp.Or(h.Retention, defaultRetention)),
		history:     h.Settings.HistorySeconds,
		guard:       guard,
		checkSchema: checkSchema,
		channels:    make(map[string]engine.Channel),
	}
	if r.runners, err = h.runnerChoice(); err != nil {
		return d.WrapErr(err)
	}
	for name := range h.ChannelsRaw {
		r.channels[name] = nil
	}
	if r.maxMemory < cmp.Or(h.MaxRequest, defaultMaxRequest) {
		return places.errAt(d, fieldErrorf("max_memory", "must be at least max_request"))
	}
	if err := h.Settings.check(r); err != nil {
		return places.errAt(d, err)
	}
	taken := make(map[string]bool, len(hooks))
	for i, hook := range hooks {
		if i == maxHooks {
			return hook.places.errAt(d, fieldErrorf("name", "%s is one too many: there can be %d", hook.Name, maxHooks))
		}
		if taken[hook.Name] {
			return hook.places.errAt(d, fieldErrorf("name", "%s is used by another hook", hook.Name))
		}
		taken[hook.Name] = true
		// Whether a secret is there is a matter of the machine that the configuration is loaded on.
		unresolved := hookSecrets{resolve: func(secret string) (string, error) { return secret, nil }}
		if _, err := hook.compile(r, unresolved); err != nil {
			return hook.places.errAt(d, err)
		}
		h.Settings.Mappings = append(h.Settings.Mappings, hook.Mapping)
	}
	return nil
}

// unmarshalChannel parses:
//
//	channel <name> <module> [<args...>] { … }
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

// unmarshalCallbacks parses:
//
//	callbacks {
//		secret  <whsec>...
//		allow   <cidr...>
//		ports   <n...>|*
//		timeout <duration>
//	}
func unmarshalCallbacks(c *Callbacks, d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Err("callbacks takes a block, and no arguments") // the argument may be a secret
	}
	return caddyconf.ReadBlock(d, "callbacks",
		caddyconf.Set("secret", (*[]string)(&c.Secret), caddyconf.Checked(caddyconf.Secrets, outbound.CheckSecrets)),
		caddyconf.Set("allow", &c.Allow, caddyconf.Checked(caddyconf.List, checkAllowed)),
		caddyconf.Directive{Word: "ports", Read: func(d *caddyfile.Dispenser) error { return unmarshalCallbackPorts(c, d) }},
		caddyconf.Set("timeout", &c.Timeout, caddyconf.Duration(time.Millisecond)),
	)
}

func unmarshalCallbackPorts(c *Callbacks, d *caddyfile.Dispenser) error {
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

// hookBlock is a mapping with the places of its settings.
type hookBlock struct {
	Mapping
	metadata map[string]string
	places   settingPlaces
}

// unmarshalHook parses:
//
//	hook <name> {
//		action               wake|agent
//		auth                 <scheme> [<args...>]
//		template             <text>
//		template_file        <path>
//		chat_id              <text>
//		model                <tier>
//		memory_preset        <id>
//		sync
//		response_schema      <json>
//		response_schema_file <path>
//		validation_tier      <tier>
//		callback_url         <url>
//		deliver              <channel> <to>
//		timeout              <duration>
//		queue_time           <duration>
//		metadata             <key> <value>
//		idempotency_header   <name>
//		runner               <name>
//		untrusted            pass|wrap
//		history              <duration>|off
//		from                 <cidr...>
//		body                 json|form|auto
//		only                 <condition>
//		skip                 <condition>
//		each                 <jsonpath>
//		fold                 <window> [<max>]
//		rate                 <n>/<duration>
//		respond              <status> [<body>]
//		workers              <n>
//		max_payload          <size>
//	}
func unmarshalHook(d *caddyfile.Dispenser) (*hookBlock, error) {
	h := &hookBlock{places: make(settingPlaces), metadata: make(map[string]string)}
	h.places["name"] = *d
	var err error
	if h.Name, err = caddyconf.Text(d); err != nil {
		return nil, err
	}
	var directives []caddyconf.Directive
	for _, directive := range h.directives() {
		directives = append(directives, h.places.note(directive.Directive, directive.fields...))
	}
	err = caddyconf.ReadBlock(d, "a hook", directives...)
	if err == nil && len(h.metadata) > 0 {
		h.Metadata, err = json.Marshal(h.metadata)
	}
	return h, err
}

// hookDirective is a directive of a hook with the fields of a mapping that it sets, by their names in JSON.
type hookDirective struct {
	caddyconf.Directive
	fields []string
}

// directives are those of a hook.
func (h *hookBlock) directives() []hookDirective {
	templateFile := caddyconf.Set("template_file", &h.MessageTemplate, readTemplateFile)
	templateFile.InsteadOf = "template"
	schemaFile := caddyconf.Set("response_schema_file", &h.ResponseJSONSchema, schemaFrom(caddyconf.File))
	schemaFile.InsteadOf = "response_schema"
	field := func(jsonName string) []string { return []string{jsonName} }
	return append([]hookDirective{
		{caddyconf.Set("action", (*string)(&h.Action), caddyconf.Word), field("action")},
		{caddyconf.Directive{Word: "auth", Read: func(d *caddyfile.Dispenser) error { return h.unmarshalAuth(d, h.places) }}, authFields()},
		{caddyconf.Set("template", &h.MessageTemplate, caddyconf.Prose(caddyconf.Template)), field("messageTemplate")},
		{templateFile, field("messageTemplate")},
		{caddyconf.Set("chat_id", &h.ChatID, caddyconf.Template), field("chatId")},
		{caddyconf.Set("model", &h.Model, caddyconf.Word), field("model")},
		{caddyconf.Set("memory_preset", &h.MemoryPreset, caddyconf.Word), field("memoryPreset")},
		{caddyconf.Set("sync", &h.SyncResponse, caddyconf.Present), field("syncResponse")},
		{caddyconf.Set("response_schema", &h.ResponseJSONSchema, schemaFrom(caddyconf.Text)), field("responseJsonSchema")},
		{schemaFile, field("responseJsonSchema")},
		{caddyconf.Set("validation_tier", &h.ResponseValidationModelTier, caddyconf.Word), field("responseValidationModelTier")},
		{caddyconf.Set("callback_url", &h.CallbackURL, caddyconf.Word), field("callbackUrl")},
		{caddyconf.Directive{Word: "deliver", Read: h.unmarshalDeliver}, []string{"deliver", "channel", "to"}},
		{caddyconf.Set("timeout", &h.TimeoutSeconds, caddyconf.Seconds), field("timeoutSeconds")},
		{caddyconf.Set("queue_time", &h.QueueTimeSeconds, caddyconf.Seconds), field("queueTimeSeconds")},
		{caddyconf.Directive{Word: "metadata", Repeatable: true, Read: h.unmarshalMetadata}, field("metadata")},
		{caddyconf.Set("idempotency_header", &h.IdempotencyHeader, caddyconf.Word), field("idempotencyHeader")},
		{caddyconf.Set("runner", &h.Runner, readRunnerName), field("runner")},
		{caddyconf.Set("untrusted", &h.Untrusted, caddyconf.Word), field("untrusted")},
		{caddyconf.Set("history", &h.HistorySeconds, caddyconf.Pointer(readHistory)), field("historySeconds")},
	}, h.senderDirectives()...)
}

// readTemplateFile reads a file without the line break at its end.
func readTemplateFile(d *caddyfile.Dispenser) (string, error) {
	text, err := caddyconf.File(d)
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), err
}

// schemaFrom returns a reader of schemas, whose text read gets.
func schemaFrom(read caddyconf.Reader[string]) caddyconf.Reader[json.RawMessage] {
	return func(d *caddyfile.Dispenser) (json.RawMessage, error) {
		start := *d // the text may have many lines
		text, err := read(d)
		schema := json.RawMessage(text)
		switch {
		case err != nil:
		case !json.Valid(schema):
			err = start.Errf("%s is not valid JSON", start.Val())
		case !isJSONObject(schema):
			err = start.Errf("%s is refused: the schema must be a JSON object", start.Val())
		}
		return schema, err
	}
}

func (h *hookBlock) unmarshalDeliver(d *caddyfile.Dispenser) error {
	args, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		return d.Err(`deliver takes the name of a channel and a chat on it; a # begins a comment, so write "#general" in quotes` + caddyconf.Unset)
	}
	if len(args) != 2 {
		return d.Err("deliver takes the name of a channel and a chat on it" + caddyconf.Unset)
	}
	h.Deliver, h.Channel, h.To = true, args[0], args[1]
	return nil
}

func (h *hookBlock) unmarshalMetadata(d *caddyfile.Dispenser) error {
	var key, value string // which may be empty
	if !d.AllArgs(&key, &value) {
		return d.Err("metadata takes a key and a value" + caddyconf.Unset)
	}
	if key == "" {
		return d.Err("the key of metadata is empty" + caddyconf.Unset)
	}
	if _, ok := h.metadata[key]; ok {
		return d.Errf("metadata %s is set already", key)
	}
	h.metadata[key] = shorthand.Undo(value)
	return nil
}

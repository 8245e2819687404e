package caddyhooks

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/outbound"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("hooks", parseCaddyfile)
	// Only requests below the path of the hooks end here, and they are not for the rest of the site: try_files would
	// rewrite them, basic_auth wants the header that carries their token, templates would evaluate what an agent says,
	// and a catch-all handle would take them.
	httpcaddyfile.RegisterDirectiveOrder("hooks", httpcaddyfile.Before, "rewrite")
}

func parseCaddyfile(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h := new(Handler)
	return h, h.UnmarshalCaddyfile(helper.Dispenser)
}

// UnmarshalCaddyfile parses:
//
//	hooks [<matcher>] [<name>] {
//		enabled
//		token           <secret>...
//		path            <path>
//		default_timeout <duration>
//		max_timeout     <duration>
//		max_payload     <size>
//		max_request     <size>
//		memory_preset   <id>
//		runner          <module> [<args...>] { … }
//		store           <module> [<args...>] { … }
//		workers         <n>
//		queue_limit     <n>
//		chat_limit      <n>
//		max_attempts    <n>
//		retention       <duration>
//		drain_timeout   <duration>
//		channel         <name> <module> [<args...>] { … }
//		callbacks       { … }
//		hook            <name> { … }
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		h.Name = d.Val()
		if !hookName.MatchString(h.Name) {
			return d.Errf("the instance name '%s' is refused: use up to 64 letters, digits, dots, dashes and underscores", h.Name)
		}
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	b := &block{Dispenser: d, seen: make(map[string]bool)}
	places := make(map[string]caddyfile.Dispenser) // of settings, by their name in JSON
	var hooks []hookBlock
	for d.NextBlock(0) {
		word := d.Val()
		if word != "hook" && word != "channel" {
			if err := b.once(word); err != nil {
				return err
			}
		}
		var err error
		switch word {
		case "enabled":
			h.Settings.Enabled = new(true)
			err = b.noArgs()
		case "token":
			places["token"] = *d
			h.Settings.Token, err = b.secrets()
		case "path":
			if h.Path, err = b.text(); err == nil {
				err = b.refuse(checkPath(h.Path))
			}
		case "default_timeout":
			places["defaultTimeoutSeconds"] = *d
			h.Settings.DefaultTimeoutSeconds = new(0)
			*h.Settings.DefaultTimeoutSeconds, err = b.seconds()
		case "max_timeout":
			h.MaxTimeout, err = b.duration(time.Second)
		case "max_payload":
			places["maxPayloadSize"] = *d
			h.Settings.MaxPayloadSize = new(Size(0))
			*h.Settings.MaxPayloadSize, err = b.size()
		case "max_request":
			h.MaxRequest, err = b.size()
		case "memory_preset":
			places["memoryPreset"] = *d
			h.Settings.MemoryPreset = new("")
			*h.Settings.MemoryPreset, err = b.word()
		case "runner":
			h.RunnerRaw, err = b.guest("hooks.runners", "runner")
		case "store":
			h.StoreRaw, err = b.guest("hooks.stores", "store")
		case "workers":
			h.Workers, err = b.number(1)
		case "queue_limit":
			h.QueueLimit, err = b.number(1)
		case "chat_limit":
			h.ChatLimit, err = b.number(0)
		case "max_attempts":
			h.MaxAttempts, err = b.number(1)
		case "retention":
			h.Retention, err = b.duration(time.Second)
		case "drain_timeout":
			h.DrainTimeout, err = b.duration(time.Millisecond)
		case "channel":
			err = h.unmarshalChannel(b)
		case "callbacks":
			err = h.Callbacks.unmarshal(b)
		case "hook":
			var hook hookBlock
			hook, err = unmarshalHook(b)
			hooks = append(hooks, hook)
		default:
			err = d.Errf("unrecognized subdirective '%s'; hooks takes enabled, token, path, default_timeout, max_timeout, max_payload, max_request, memory_preset, runner, store, workers, queue_limit, chat_limit, max_attempts, retention, drain_timeout, channel, callbacks and hook", word)
		}
		if err != nil {
			return err
		}
	}
	return h.checkBlock(d, places, hooks)
}

// checkBlock checks what can only be judged when the whole block is known, and reports it at the line it stands on.
func (h *Handler) checkBlock(d *caddyfile.Dispenser, places map[string]caddyfile.Dispenser, hooks []hookBlock) error {
	guard, err := h.Callbacks.guard()
	if err != nil {
		return d.WrapErr(err)
	}
	r := &rules{
		maxTimeout:  time.Duration(orDefault(h.MaxTimeout, caddy.Duration(time.Hour))),
		guard:       guard,
		checkSchema: checkSchema,
		channels:    make(map[string]engine.Channel),
	}
	for name := range h.ChannelsRaw {
		r.channels[name] = nil
	}
	if err := h.Settings.check(r); err != nil {
		return errAt(d, places, err)
	}
	for _, hook := range hooks {
		if indexMapping(h.Settings.Mappings, hook.Name) >= 0 {
			return errAt(d, hook.places, fieldErrorf("name", "%s is used by another hook", hook.Name))
		}
		// Whether a secret is there is a matter of the machine that the configuration is loaded on.
		unresolved := func(secret string) (string, error) { return secret, nil }
		if _, err := hook.compile(r, unresolved); err != nil {
			return errAt(d, hook.places, err)
		}
		h.Settings.Mappings = append(h.Settings.Mappings, hook.Mapping)
	}
	return nil
}

// errAt reports an error at the place of the field that it is about.
func errAt(d *caddyfile.Dispenser, places map[string]caddyfile.Dispenser, err error) error {
	var field *fieldError
	if errors.As(err, &field) {
		if at, ok := places[field.field]; ok {
			return at.Errf("%s %s", at.Val(), field.problem)
		}
	}
	return d.WrapErr(err)
}

// unmarshalChannel parses:
//
//	channel <name> <module> [<args...>] { … }
func (h *Handler) unmarshalChannel(b *block) error {
	if !b.NextArg() {
		return b.ArgErr()
	}
	name := b.Val()
	if name == "" {
		return b.Err("a channel must have a name")
	}
	if _, ok := h.ChannelsRaw[name]; ok {
		return b.Errf("channel %s is set already", name)
	}
	raw, err := b.guest("hooks.channels", "channel")
	if err != nil {
		return err
	}
	if h.ChannelsRaw == nil {
		h.ChannelsRaw = make(map[string]json.RawMessage)
	}
	h.ChannelsRaw[name] = raw
	return nil
}

// unmarshal parses:
//
//	callbacks {
//		secret  <whsec>...
//		allow   <cidr...>
//		ports   <n...>|*
//		timeout <duration>
//	}
func (c *Callbacks) unmarshal(outer *block) error {
	if outer.NextArg() {
		return outer.Err("callbacks takes a block, and no arguments") // it may be a secret
	}
	b := &block{Dispenser: outer.Dispenser, seen: make(map[string]bool)}
	for nesting := b.Nesting(); b.NextBlock(nesting); {
		word := b.Val()
		if err := b.once(word); err != nil {
			return err
		}
		var err error
		switch word {
		case "secret":
			if c.Secret, err = b.secrets(); err == nil {
				err = b.refuse(outbound.CheckSecrets(c.Secret))
			}
		case "allow":
			if c.Allow = b.RemainingArgs(); len(c.Allow) == 0 {
				err = b.ArgErr()
			} else {
				_, guardErr := c.guard()
				err = b.refuse(guardErr)
			}
		case "ports":
			err = c.unmarshalPorts(b)
		case "timeout":
			c.Timeout, err = b.duration(time.Millisecond)
		default:
			err = b.Errf("unrecognized subdirective '%s'; callbacks takes secret, allow, ports and timeout", word)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Callbacks) unmarshalPorts(b *block) error {
	args := b.RemainingArgs()
	if len(args) == 0 {
		return b.ArgErr()
	}
	if len(args) == 1 && args[0] == "*" {
		c.AnyPort = true
		return nil
	}
	for _, arg := range args {
		port, err := strconv.ParseUint(arg, 10, 16)
		if err != nil || port == 0 {
			return b.Errf("bad port '%s': ports takes numbers from 1 to 65535, or a single *", arg)
		}
		c.Ports = append(c.Ports, uint16(port))
	}
	return nil
}

// hookBlock is a mapping with the places of its fields, by their name in JSON.
type hookBlock struct {
	Mapping
	places map[string]caddyfile.Dispenser
}

// hookFields are the names in JSON of what the subdirectives of a hook set, as far as there can be something wrong with it.
var hookFields = map[string][]string{
	"action":               {"action"},
	"auth":                 {"authMode", "hmacHeader", "hmacSecret"},
	"template":             {"messageTemplate"},
	"template_file":        {"messageTemplate"},
	"chat_id":              {"chatId"},
	"model":                {"model"},
	"memory_preset":        {"memoryPreset"},
	"response_schema":      {"responseJsonSchema"},
	"response_schema_file": {"responseJsonSchema"},
	"validation_tier":      {"responseValidationModelTier"},
	"callback_url":         {"callbackUrl"},
	"deliver":              {"channel", "to"},
	"timeout":              {"timeoutSeconds"},
	"idempotency_header":   {"idempotencyHeader"},
	"untrusted":            {"untrusted"},
}

// unmarshalHook parses:
//
//	hook <name> {
//		action               wake|agent
//		auth                 bearer
//		auth                 hmac <header> <secret> [<prefix>]
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
//		metadata             <key> <value>
//		idempotency_header   <name>
//		untrusted            pass|wrap
//	}
func unmarshalHook(outer *block) (hookBlock, error) {
	h := hookBlock{places: make(map[string]caddyfile.Dispenser)}
	h.places["name"] = *outer.Dispenser
	var err error
	if h.Name, err = outer.text(); err != nil {
		return h, err
	}
	b := &block{Dispenser: outer.Dispenser, seen: make(map[string]bool)}
	metadata := make(map[string]string)
	for nesting := b.Nesting(); b.NextBlock(nesting); {
		word := b.Val()
		here := *b.Dispenser
		for _, field := range hookFields[word] {
			h.places[field] = here
		}
		if word != "metadata" {
			if err := b.once(strings.TrimSuffix(word, "_file")); err != nil {
				return h, err
			}
		}
		switch word {
		case "action":
			var action string
			action, err = b.word()
			h.Action = engine.Action(action)
		case "auth":
			err = h.unmarshalAuth(b)
		case "template":
			h.MessageTemplate, err = b.text()
		case "template_file":
			h.MessageTemplate, err = b.file()
			h.MessageTemplate = strings.TrimSuffix(strings.TrimSuffix(h.MessageTemplate, "\n"), "\r")
		case "chat_id":
			h.ChatID, err = b.text()
		case "model":
			h.Model, err = b.word()
		case "memory_preset":
			h.MemoryPreset, err = b.word()
		case "sync":
			h.SyncResponse = true
			err = b.noArgs()
		case "response_schema", "response_schema_file":
			read := b.text
			if word == "response_schema_file" {
				read = b.file
			}
			var schema string
			schema, err = read()
			h.ResponseJSONSchema = json.RawMessage(schema)
			if err == nil && !json.Valid(h.ResponseJSONSchema) {
				err = here.Errf("%s is not valid JSON", word)
			} else if err == nil && !isJSONObject(h.ResponseJSONSchema) {
				err = here.Errf("%s is refused: the schema must be a JSON object", word)
			}
		case "validation_tier":
			h.ResponseValidationModelTier, err = b.word()
		case "callback_url":
			h.CallbackURL, err = b.word()
		case "deliver":
			h.Deliver = true
			if !b.AllArgs(&h.Channel, &h.To) {
				err = b.ArgErr()
			}
			h.To = shorthand.Undo(h.To)
		case "timeout":
			h.TimeoutSeconds, err = b.seconds()
		case "metadata":
			var key, value string
			if !b.AllArgs(&key, &value) {
				err = b.ArgErr()
			} else if _, dup := metadata[key]; dup {
				err = b.Errf("metadata %s is set already", key)
			}
			metadata[key] = shorthand.Undo(value)
		case "idempotency_header":
			h.IdempotencyHeader, err = b.word()
		case "untrusted":
			h.Untrusted, err = b.word()
		default:
			err = b.Errf("unrecognized subdirective '%s'; a hook takes action, auth, template, template_file, chat_id, model, memory_preset, sync, response_schema, response_schema_file, validation_tier, callback_url, deliver, timeout, metadata, idempotency_header and untrusted", word)
		}
		if err != nil {
			return h, err
		}
	}
	if len(metadata) > 0 {
		h.Metadata, err = json.Marshal(metadata)
	}
	return h, err
}

func (h *hookBlock) unmarshalAuth(b *block) error {
	args := b.RemainingArgs()
	switch {
	case len(args) == 1 && args[0] == "bearer":
		h.AuthMode = "bearer"
	case (len(args) == 3 || len(args) == 4) && args[0] == "hmac":
		h.AuthMode, h.HMACHeader, h.HMACSecret = "hmac", args[1], shorthand.Undo(args[2])
		if h.HMACSecret == "" {
			return b.Err("the secret of auth hmac must not be empty")
		}
		if len(args) == 4 {
			h.HMACPrefix = args[3]
		}
	default:
		return b.Err("auth takes 'bearer' or 'hmac <header> <secret> [<prefix>]'")
	}
	return nil
}

// block reads the subdirectives of one block.
type block struct {
	*caddyfile.Dispenser
	seen map[string]bool
}

func (b *block) once(word string) error {
	if b.seen[word] {
		return b.Errf("%s is set already", word)
	}
	b.seen[word] = true
	return nil
}

func (b *block) refuse(err error) error {
	if err != nil {
		return b.WrapErr(err)
	}
	return nil
}

func (b *block) noArgs() error {
	if b.NextArg() {
		return b.ArgErr()
	}
	return nil
}

// text reads one argument. What looks like one of Caddy's placeholders in it is none, so its shorthands are put back.
func (b *block) text() (text string, err error) {
	if !b.AllArgs(&text) {
		return "", b.ArgErr()
	}
	return shorthand.Undo(text), nil
}

// word is text that must not be empty.
func (b *block) word() (string, error) {
	word := b.Val()
	text, err := b.text()
	if err == nil && strings.TrimSpace(text) == "" {
		err = b.Errf("%s must not be empty", word)
	}
	return text, err
}

func (b *block) secrets() (Secrets, error) {
	args := b.RemainingArgs()
	if len(args) == 0 {
		return nil, b.ArgErr()
	}
	for i, arg := range args {
		if args[i] = shorthand.Undo(arg); strings.TrimSpace(args[i]) == "" {
			return nil, b.Err("a secret must not be blank")
		}
	}
	return args, nil
}

func (b *block) number(least int) (int, error) {
	text, err := b.text()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		return 0, b.Errf("'%s' is not a whole number of at least %d", text, least)
	}
	return n, nil
}

func (b *block) size() (Size, error) {
	text, err := b.text()
	if err != nil {
		return 0, err
	}
	size, err := parseSize(text)
	if err != nil || size < 1 || size > maxMaxPayload {
		return 0, b.Errf("'%s' is not a size from 1 byte to 64MB, such as 64KB", text)
	}
	return size, nil
}

func (b *block) duration(least time.Duration) (caddy.Duration, error) {
	text, err := b.text()
	if err != nil {
		return 0, err
	}
	d, err := caddy.ParseDuration(text)
	if err != nil || d < least {
		return 0, b.Errf("'%s' is not a duration of at least %s", text, least)
	}
	return caddy.Duration(d), nil
}

func (b *block) seconds() (int, error) {
	d, err := b.duration(time.Second)
	if err == nil && time.Duration(d)%time.Second != 0 {
		err = b.Errf("'%s' is not a whole number of seconds", time.Duration(d))
	}
	return int(time.Duration(d) / time.Second), err
}

// maxFile bounds the files that a Caddyfile refers to.
const maxFile = 1 << 20

// file reads the file that the argument names, relative to the Caddyfile.
func (b *block) file() (string, error) {
	path, err := b.text()
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(b.File()), path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", b.Errf("reading a file: %v", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", b.Errf("reading a file: %v", err)
	}
	if len(data) > maxFile {
		return "", b.Errf("%s is larger than %d bytes", path, maxFile)
	}
	return string(data), nil
}

// guest reads `<module> [<args...>] { … }`.
func (b *block) guest(namespace, inlineKey string) (json.RawMessage, error) {
	if !b.NextArg() {
		return nil, b.ArgErr()
	}
	name := b.Val()
	if _, err := caddy.GetModule(namespace + "." + name); err != nil {
		var known []string
		for _, module := range caddy.GetModules(namespace) {
			known = append(known, module.ID.Name())
		}
		// What stands there is not quoted: where a word was left out it is a token.
		return nil, b.Errf("there is no such %s; there are %s", inlineKey, strings.Join(known, ", "))
	}
	unm, err := caddyfile.UnmarshalModule(b.Dispenser, namespace+"."+name)
	if err != nil {
		return nil, err
	}
	return caddyconfig.JSONModuleObject(unm, inlineKey, name, nil), nil
}

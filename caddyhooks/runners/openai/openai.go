// Package openai has the runner that asks a model or a gateway by OpenAI's Chat Completions, or in the background by its Responses API.
// It imports engine, caddyconf and the packages below runners/internal, and no other runner.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/models"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

func init() {
	caddy.RegisterModule(OpenAI{})
}

// OpenAI is a runner that asks a model, or an agent behind a gateway, by OpenAI's Chat Completions: Ollama, vLLM, LiteLLM,
// OpenRouter, OpenClaw and others. In a Caddyfile, a preset fills in what is usual for one of them.
type OpenAI struct {
	// The base URL, which ends before /chat/completions. Placeholders such as {env.X} are replaced.
	URL string `json:"url,omitempty"`

	// A key to send as `Authorization: Bearer`. Placeholders such as {env.X} and {file.X} are replaced. Default: none is sent.
	Key string `json:"key,omitempty"`

	// The model for turns whose tier has no model of its own. Placeholders are replaced.
	Model string `json:"model,omitempty"`

	// Models by tier.
	Tiers map[string]string `json:"tiers,omitempty"`

	// A text for the system message. It stands before the instructions about schemas and outside text.
	System string `json:"system,omitempty"`

	// A file with that text. It is read again when it changes; if it cannot be read then, the text of before stays.
	SystemFile string `json:"system_file,omitempty"`

	// The most turns of the chat that are sent along, whatever the memory preset. 0: none. Default: as many as the preset
	// says.
	History *int `json:"history,omitempty"`

	// The most bytes of text in those turns. Default: 64KB.
	HistoryBytes caddyconf.Size `json:"history_bytes,omitempty"`

	// By memory preset, changes to the requests of its turns. A turn without memory gets none of them.
	Memory map[string]Memory `json:"memory,omitempty"`

	// The name of a header that tells the server the session. The server then keeps the chat, and no history is sent.
	SessionHeader string `json:"session_header,omitempty"`

	// A text that stands before the chat id in that header.
	SessionPrefix string `json:"session_prefix,omitempty"`

	// The name of a response header in which the server names the session. It is kept for the chat, and sent back in
	// session_header, or in a header of the same name. No history is sent.
	SessionFrom string `json:"session_from,omitempty"`

	// The name of a header for the model of a tier or memory preset. The body then always has the model of model.
	ModelHeader string `json:"model_header,omitempty"`

	// How a schema is passed on to the server: json_schema, json_object or off. It is a hint only: answers are checked here in any
	// case. A server that refuses it is asked again without it. Default: json_schema.
	ResponseFormat string `json:"response_format,omitempty"`

	// Whether the answer is asked for piece by piece. Default: true.
	Stream *bool `json:"stream,omitempty"`

	// More members of the request, such as {"temperature": 0.2}. It must not have model, messages and stream; with background, neither
	// input, background, store and response_format.
	Body json.RawMessage `json:"body,omitempty"`

	// How long a response may take in the background. Turns are then sent by OpenAI's Responses API, with background and store, and the
	// server is asked again until it has the answer. Default: Chat Completions are used, and the answer comes at once.
	Background caddy.Duration `json:"background,omitempty"`

	// How long the server may be silent before the turn fails. Default: 2m; without streaming, as long as the turn may take.
	IdleTimeout caddy.Duration `json:"idle_timeout,omitempty"`

	// More headers of the request. Placeholders such as {env.X} and {file.X} are replaced.
	Headers map[string]string `json:"headers,omitempty"`

	httpcall.Client

	log        *zap.Logger
	endpoint   string
	responses  *url.URL      // in the background
	firstPause time.Duration // before the server is asked again
	key        string
	model      string
	tiers      map[string]string
	memory     map[string]Memory
	headers    map[string]string
	more       requestMembers
	systemFile *watchedText
	idle       time.Duration
	formats    *refusals // of response_format
	usages     *refusals // of stream_options
}

// Memory is how the requests of turns under one memory preset differ from others.
type Memory struct {
	// The number of turns of the chat that are sent along. Default: as many as are usual for the preset.
	History *int `json:"history,omitempty"`

	// The model for turns whose tier has no model of its own. Default: the runner's.
	Model string `json:"model,omitempty"`

	// More headers. They go before the runner's. Placeholders such as {env.X} and {file.X} are replaced.
	Headers map[string]string `json:"headers,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (OpenAI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "hooks.runners.openai",
		New: func() caddy.Module { return new(OpenAI) },
	}
}

// Usage describes the runner in a list of choices.
func (OpenAI) Usage() (arguments, agent string) {
	return "<preset or url>", "a model or a gateway; presets: " + strings.Join(presetNames(), ", ")
}

const (
	defaultHistoryBytes = 64 << 10
)

// Uses says that tiers choose models, and that memory presets choose how much of the chat is sent, unless the server keeps the chat.
func (o *OpenAI) Uses() (tiers, memoryPresets []string) {
	tiers = slices.Collect(maps.Keys(o.Tiers))
	if o.serverKeepsChat() {
		return tiers, append(slices.Collect(maps.Keys(o.Memory)), engine.MemoryPlain)
	}
	return tiers, engine.MemoryPresets
}

// Provision sets up the runner.
func (o *OpenAI) Provision(ctx caddy.Context) (err error) {
	o.log, o.firstPause = ctx.Logger(), turns.FirstPause
	o.formats, o.usages = newRefusals(), newRefusals()
	known := func(text string) string { return caddy.NewReplacer().ReplaceKnown(text, "") }
	if o.Key != "" {
		if o.key, err = caddyconf.ResolveToken(o.Key); err != nil {
			return fmt.Errorf("runner openai: the key %w", err)
		}
	}
	base := known(o.URL)
	if err := checkBaseURL(base); err != nil {
		return err
	}
	o.endpoint, o.responses = endpointsOf(base)
	o.model = known(o.Model)
	o.tiers = make(map[string]string)
	for tier, model := range o.Tiers {
		o.tiers[tier] = known(model)
	}
	if o.headers, err = httpcall.ResolveHeaders(o.Headers, o.checkHeader); err != nil {
		return fmt.Errorf("runner openai: %w", err)
	}
	secrets := httpcall.HeaderSecrets(o.headers)
	o.memory = make(map[string]Memory)
	for preset, memory := range o.Memory {
		memory.Model = known(memory.Model)
		if memory.Headers, err = httpcall.ResolveHeaders(memory.Headers, o.checkHeader); err != nil {
			return fmt.Errorf("runner openai: memory %s: %w", preset, err)
		}
		secrets = append(secrets, httpcall.HeaderSecrets(memory.Headers)...)
		o.memory[preset] = memory
	}
	if o.more, err = parseMembers(o.Body, o.reserved()); err != nil {
		return fmt.Errorf("runner openai: %w", err)
	}
	if o.SystemFile != "" {
		if o.systemFile, err = watchText(known(o.SystemFile), ctx.Logger()); err != nil {
			return fmt.Errorf("runner openai: the system_file %w", err)
		}
	}
	o.idle = time.Duration(o.IdleTimeout)
	if o.idle == 0 && (o.streams() || o.Background > 0) {
		o.idle = httpcall.DefaultIdle
	}
	o.Redactor = answers.NewRedactor(o.key, base, secrets...)
	return o.Connect(new(httpcall.ServerTLS), func(t *http.Transport) http.RoundTripper {
		t.Proxy = http.ProxyFromEnvironment // models are often far away, behind the proxy of a company
		t.DisableCompression = true         // what is compressed arrives in lumps
		return t
	})
}

// Validate checks the configuration.
func (o *OpenAI) Validate() error {
	if err := o.check(); err != nil {
		return fmt.Errorf("runner openai: %w", err)
	}
	return nil
}

// check finds mistakes that do not depend on the machine.
func (o *OpenAI) check() error {
	switch {
	case o.Model == "":
		return errors.New("a model is missing, as in: model llama3.2")
	case o.System != "" && o.SystemFile != "":
		return errors.New("system and system_file cannot both be set")
	case o.History != nil && *o.History < 0, o.HistoryBytes < 0:
		return errors.New("history must not be negative")
	case o.IdleTimeout < 0:
		return errors.New("idle_timeout must not be negative")
	case o.SessionPrefix != "" && o.SessionHeader == "":
		return errors.New("session_prefix needs session_header")
	case o.SessionPrefix != "" && !sendable(o.SessionPrefix):
		return errors.New("the prefix of session_header has characters in it that cannot be sent")
	}
	if o.ResponseFormat != "" {
		if err := checkResponseFormat(o.ResponseFormat); err != nil {
			return err
		}
	}
	for _, name := range []string{o.SessionHeader, o.SessionFrom, o.ModelHeader} {
		if name != "" {
			if err := checkOptionHeader(name); err != nil {
				return err
			}
		}
	}
	for name := range o.Headers {
		if err := o.checkHeader(http.CanonicalHeaderKey(name)); err != nil {
			return err
		}
	}
	if err := models.CheckTiers(o.Tiers); err != nil {
		return err
	}
	if o.serverKeepsChat() && o.History != nil && *o.History > 0 {
		return errors.New("no history is sent with session_header or session_from, as the server keeps the chat: leave history out")
	}
	for _, preset := range slices.Sorted(maps.Keys(o.Memory)) {
		if err := checkMemoryPreset(preset); err != nil {
			return err
		}
		memory := o.Memory[preset]
		for name := range memory.Headers {
			if err := o.checkHeader(http.CanonicalHeaderKey(name)); err != nil {
				return err
			}
		}
		switch {
		case memory.History == nil:
		case *memory.History < 0:
			return fmt.Errorf("the history of memory %s must not be negative", preset)
		case *memory.History > 0 && o.serverKeepsChat():
			return fmt.Errorf("no history is sent with session_header or session_from, as the server keeps the chat: "+
				"leave the history of memory %s out", preset)
		case o.History != nil && *memory.History > *o.History:
			return fmt.Errorf("the history of memory %s is more than history allows, which is %d", preset, *o.History)
		}
	}
	if _, err := parseMembers(o.Body, o.reserved()); err != nil {
		return err
	}
	return o.checkBackground()
}

// checkHeader checks the name of a header with a fixed value.
func (o *OpenAI) checkHeader(name string) error {
	if err := httpcall.CheckHeader(name); err != nil {
		return err
	}
	if o.Key != "" && name == "Authorization" {
		return errors.New("key and header Authorization are the same header; use one of them")
	}
	for _, option := range []string{o.SessionHeader, o.SessionFrom, o.ModelHeader} {
		if strings.EqualFold(name, option) {
			return fmt.Errorf("header %s has another value in each chat or tier", name)
		}
	}
	return nil
}

// checkOptionHeader checks the name of a header that has an option of its own.
func checkOptionHeader(name string) error { return httpcall.CheckHeader(http.CanonicalHeaderKey(name)) }

// The turns of history by memory preset. A turn of another preset is carried out too.
var (
	presetHistory = map[string]int{
		"coding_fast": 10, "general_chat": 10, "ops_support": 10,
		"coding_balanced": 20, "research_analyst": 20,
		"coding_deep": 50,
	}
	responseFormats = []string{"json_schema", "json_object", "off"}
)

// otherHistory is the number of turns for a memory preset that is not among presetHistory.
const otherHistory = 20

func checkMemoryPreset(preset string) error {
	if preset == engine.MemoryDisabled {
		return errors.New("memory disabled never sends a history or a session, and takes no options")
	}
	if _, ok := presetHistory[preset]; !ok {
		return fmt.Errorf("'%s' is not a memory preset; there are %s", preset, strings.Join(slices.Sorted(maps.Keys(presetHistory)), ", "))
	}
	return nil
}

func checkResponseFormat(format string) error {
	if !slices.Contains(responseFormats, format) {
		return errors.New("response_format must be json_schema, json_object or off")
	}
	return nil
}

// checkBaseURL quotes nothing of the URL, which may hold a secret.
func checkBaseURL(raw string) error {
	u := httpcall.ParseURL(raw)
	if u == nil {
		return errors.New("runner openai needs a URL that starts with http:// or https:// and names a host")
	}
	if strings.HasSuffix(strings.TrimRight(u.Path, "/"), chatCompletions) {
		return errors.New("the URL of runner openai must end before " + chatCompletions)
	}
	return nil
}

const chatCompletions = "/chat/completions"

// endpointsOf adds the paths to the base URL. A query stays: some servers need one.
func endpointsOf(base string) (chat string, responses *url.URL) {
	u, err := url.Parse(base)
	if err != nil {
		return "", new(url.URL)
	}
	return u.JoinPath(chatCompletions).String(), u.JoinPath("/responses")
}

// sendable reports whether a text consists of characters that every header can hold.
func sendable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Address is the scheme and the host of the URL, for logs. The rest of it may be secret.
func (o *OpenAI) Address() string { return httpcall.Address(o.endpoint) }

func (o *OpenAI) streams() bool { return o.Background == 0 && (o.Stream == nil || *o.Stream) }

// serverKeepsChat reports whether the server remembers what was said in a chat.
func (o *OpenAI) serverKeepsChat() bool { return o.SessionHeader != "" || o.SessionFrom != "" }

// Run asks the server and reads the answer.
func (o *OpenAI) Run(ctx context.Context, turn engine.Turn) (engine.Reply, error) {
	if o.Background > 0 || turn.TakenOn != "" {
		reply, err := o.askInBackground(ctx, &turn)
		return reply, o.Clean(err)
	}
	reply, err := o.ask(ctx, turn)
	return reply, o.Clean(err)
}

// Interface guards
var (
	_ engine.Runner         = (*OpenAI)(nil)
	_ engine.Redactor       = (*OpenAI)(nil)
	_ engine.Abandoner      = (*OpenAI)(nil)
	_ engine.Postponer      = (*OpenAI)(nil)
	_ caddy.Provisioner     = (*OpenAI)(nil)
	_ caddy.Validator       = (*OpenAI)(nil)
	_ caddy.CleanerUpper    = (*OpenAI)(nil)
	_ caddyfile.Unmarshaler = (*OpenAI)(nil)
)

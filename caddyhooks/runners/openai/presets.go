package openai

import (
	"maps"
	"slices"
)

// serverPreset is what is usual for one program: values for options that a Caddyfile does not set. It is filled in while the
// Caddyfile is parsed, so that `caddy adapt` shows it.
type serverPreset struct {
	url, key, model              string
	sessionHeader, sessionPrefix string
	sessionFrom                  string
	modelHeader                  string
	noHistory, noStream          bool
	background                   bool // it may have the Responses API, and keep responses
	dollars                      bool // the cost that it reports is in US dollars
}

// serverPresets are the presets by name. hermes and openhands follow the documentation of those programs, and were not run
// against them.
var serverPresets = map[string]serverPreset{
	"ollama":     {url: "http://127.0.0.1:11434/v1", model: "llama3.2"},
	"litellm":    {url: "http://127.0.0.1:4000/v1", background: true},
	"openai":     {url: "https://api.openai.com/v1", key: "{env.OPENAI_API_KEY}", background: true},
	"openrouter": {url: "https://openrouter.ai/api/v1", key: "{env.OPENROUTER_API_KEY}", model: "openrouter/auto", dollars: true},
	// OpenClaw refuses some words at the beginning of a session key, which the prefix keeps apart from chat ids.
	"openclaw": {
		url: "http://127.0.0.1:18789/v1", model: "openclaw", sessionHeader: "x-openclaw-session-key", sessionPrefix: "hooks:",
		modelHeader: "x-openclaw-model", noHistory: true,
	},
	"hermes": {url: "http://127.0.0.1:8642/v1", model: "hermes-agent", sessionHeader: "X-Hermes-Session-Id", noHistory: true},
	// The models of OpenHands are profiles, whose names nobody can guess.
	"openhands": {url: "http://127.0.0.1:8000/v1", sessionFrom: "X-OpenHands-ServerConversation-ID", noStream: true, noHistory: true},
}

func presetNames() []string { return slices.Sorted(maps.Keys(serverPresets)) }

// PresetName is the preset of the program at the URL, "" if there is none.
func (o *OpenAI) PresetName() string {
	for name, preset := range serverPresets {
		if preset.url == o.URL {
			return name
		}
	}
	return ""
}

// fill sets what is not set yet.
func (p serverPreset) fill(o *OpenAI) {
	or := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	or(&o.URL, p.url)
	if _, ok := o.Headers["Authorization"]; !ok {
		or(&o.Key, p.key)
	}
	or(&o.Model, p.model)
	if o.SessionHeader == "" { // a prefix belongs to its header
		o.SessionHeader, o.SessionPrefix = p.sessionHeader, p.sessionPrefix
	}
	or(&o.SessionFrom, p.sessionFrom)
	or(&o.ModelHeader, p.modelHeader)
	if o.History == nil && p.noHistory {
		o.History = new(0)
	}
	if o.Stream == nil && p.noStream {
		o.Stream = new(false)
	}
}

package caddyhooks

import (
	"encoding/json"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// AgentFields are the fields that a mapping and a request for a full run share. On a wake mapping all but the chat id
// and metadata are kept and not used.
type AgentFields struct {
	// The session that the run belongs to. In a mapping it may hold placeholders. Default: webhook:default for wake,
	// a fresh hook:<uuid> for agent.
	ChatID string `json:"chatId,omitempty"`

	// The tier of the model. Default: the runner's own.
	Model string `json:"model,omitempty"`

	// The memory preset. Default: the one of the settings.
	MemoryPreset string `json:"memoryPreset,omitempty"`

	// Hold the request open and answer it with the agent's reply.
	SyncResponse bool `json:"syncResponse,omitempty"`

	// A Draft 2020-12 JSON Schema that the reply has to match. Needs syncResponse.
	ResponseJSONSchema json.RawMessage `json:"responseJsonSchema,omitempty"`

	// The tier for a run with a schema and its repair calls.
	ResponseValidationModelTier string `json:"responseValidationModelTier,omitempty"`

	// A URL that the agent's reply is posted to.
	CallbackURL string `json:"callbackUrl,omitempty"`

	// Push the reply to a messaging channel.
	Deliver bool `json:"deliver,omitempty"`

	// The channel, by the name it has in the configuration.
	Channel string `json:"channel,omitempty"`

	// The chat on that channel.
	To string `json:"to,omitempty"`

	// How long the run may take. Default: the time of the settings.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`

	// An object that is passed on with the message.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

var (
	tiers = []string{"balanced", "smart", "coding", "deep",
		"special1", "special2", "special3", "special4", "special5"}
	memoryPresets = []string{engine.MemoryDisabled,
		"coding_balanced", "coding_fast", "coding_deep", "general_chat", "research_analyst", "ops_support"}
)

// check looks at the fields as they are when a run is asked for. What it says names the field first.
func (f *AgentFields) check(r *rules) error {
	if err := checkChatID(f.ChatID); err != nil {
		return err
	}
	if err := oneOf("model", f.Model, tiers); err != nil {
		return err
	}
	if err := oneOf("memoryPreset", f.MemoryPreset, memoryPresets); err != nil {
		return err
	}
	if f.ResponseJSONSchema != nil {
		if !f.SyncResponse {
			return fieldErrorf("responseJsonSchema", "needs syncResponse to be true")
		}
		if err := r.checkSchema(f.ResponseJSONSchema); err != nil {
			return fieldErrorf("responseJsonSchema", "is refused: %v", err)
		}
		if err := oneOf("responseValidationModelTier", f.ResponseValidationModelTier, tiers); err != nil {
			return err
		}
	}
	if f.CallbackURL != "" {
		if err := r.guard.CheckURL(f.CallbackURL); err != nil {
			return fieldErrorf("callbackUrl", "is refused: %v", err)
		}
	}
	if f.Deliver {
		if err := f.checkDelivery(r.channels); err != nil {
			return err
		}
	}
	if f.TimeoutSeconds < 0 || f.TimeoutSeconds > r.maxSeconds() {
		return fieldErrorf("timeoutSeconds", "must be from 1 to %d", r.maxSeconds())
	}
	return nil
}

func (f *AgentFields) checkDelivery(channels map[string]engine.Channel) error {
	if f.Channel == "" {
		return fieldErrorf("channel", "must name a channel when deliver is true")
	}
	if f.To == "" {
		return fieldErrorf("to", "must name a chat on the channel when deliver is true")
	}
	channel, ok := channels[f.Channel]
	if !ok {
		return fieldErrorf("channel", "names no channel that is configured here")
	}
	if channel != nil {
		if err := channel.ValidTo(f.To); err != nil {
			return fieldErrorf("to", "is refused: %v", err)
		}
	}
	return nil
}

const maxChatID = 256

func checkChatID(id string) error {
	if len(id) > maxChatID {
		return fieldErrorf("chatId", "must not be longer than %d bytes", maxChatID)
	}
	if strings.ContainsFunc(id, isControl) {
		return fieldErrorf("chatId", "must not hold control characters")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f }

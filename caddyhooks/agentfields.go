package caddyhooks

import (
	"encoding/json"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// AgentFields are the fields that mappings and agent requests share. A wake mapping uses the chat id, the metadata and the
// queue time, and ignores the others.
type AgentFields struct {
	// The chat of the run. In a mapping it may have placeholders. Default: webhook:default for wake, a new hook:<uuid> for
	// agent.
	ChatID string `json:"chatId,omitempty"`

	// The model tier. Default: the runner's own.
	Model string `json:"model,omitempty"`

	// The memory preset. Default: memoryPreset of the settings.
	MemoryPreset string `json:"memoryPreset,omitempty"`

	// Wait for the run, and answer the request with the agent's reply.
	SyncResponse bool `json:"syncResponse,omitempty"`

	// A JSON Schema (Draft 2020-12) for the reply. Needs syncResponse.
	ResponseJSONSchema json.RawMessage `json:"responseJsonSchema,omitempty"`

	// The model tier of a run with a schema and of its repair calls.
	ResponseValidationModelTier string `json:"responseValidationModelTier,omitempty"`

	// The URL to which the agent's reply is posted.
	CallbackURL string `json:"callbackUrl,omitempty"`

	// Whether the reply is sent to a messaging channel.
	Deliver bool `json:"deliver,omitempty"`

	// The name of the channel in the configuration.
	Channel string `json:"channel,omitempty"`

	// The chat or address on the channel.
	To string `json:"to,omitempty"`

	// How long the run may take. Default: defaultTimeoutSeconds of the settings.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`

	// How long the run may wait until an agent takes it on. Default: queue_time of the instance, which is also the longest.
	QueueTimeSeconds int `json:"queueTimeSeconds,omitempty"`

	// An object that the runner gets with the message.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

var (
	tiers         = engine.Tiers
	memoryPresets = []string{engine.MemoryDisabled,
		"coding_balanced", "coding_fast", "coding_deep", "general_chat", "research_analyst", "ops_support"}
)

// check returns a fieldError for the first field of a request that is refused.
func (f *AgentFields) check(r *rules) error {
	if err := f.checkInHook(r); err != nil {
		return err
	}
	return f.checkAllowed(r)
}

// checkInHook is check for the fields of a mapping.
func (f *AgentFields) checkInHook(r *rules) error {
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
			return fieldErrorf("responseJsonSchema", "needs %v", byWords{"syncResponse to be true", "sync"})
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
		return fieldErrorf("timeoutSeconds", "must be from %v to %v", seconds(1), seconds(r.maxSeconds()))
	}
	if f.QueueTimeSeconds < 0 || f.QueueTimeSeconds > r.maxQueueSeconds() {
		return fieldErrorf("queueTimeSeconds", "must be from %v to %v", seconds(1), seconds(r.maxQueueSeconds()))
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
			if hint := notReplaced(f.To); hint != "" {
				return fieldErrorf("to", "is refused: %v. It has %s", err, hint)
			}
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
	if strings.ContainsFunc(id, text.IsControl) {
		return fieldErrorf("chatId", "must not hold control characters")
	}
	return nil
}

package settings

import (
	"encoding/json"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// AgentFields are the fields that mappings and agent requests share. A wake mapping uses the chat id, the metadata and the
// queue time, and ignores the others.
type AgentFields struct {
	// The chat of the run. In a hook it may have placeholders. Default: webhook:default for wake, a new hook:<uuid> for
	// agent.
	ChatID string `json:"chatId,omitempty"`

	// The model tier. Default: the runner's own.
	Model string `json:"model,omitempty"`

	// The memory preset. Default: memoryPreset of the settings.
	MemoryPreset string `json:"memoryPreset,omitempty"`

	// Wait for the run, and answer the request with the agent's reply.
	SyncResponse bool `json:"syncResponse,omitempty"`

	// A JSON Schema (Draft 2020-12) for the reply. Needs syncResponse (sync in a Caddyfile).
	ResponseJSONSchema json.RawMessage `json:"responseJsonSchema,omitempty"`

	// The model tier of a run with a schema and of its repair calls.
	ResponseValidationModelTier string `json:"responseValidationModelTier,omitempty"`

	// The URL to which the agent's reply is posted.
	CallbackURL string `json:"callbackUrl,omitempty"`

	// Send the reply to a messaging channel.
	Deliver bool `json:"deliver,omitempty"`

	// The name of the channel in the configuration.
	Channel string `json:"channel,omitempty"`

	// The chat or address on the channel. In a hook it may have placeholders, if the channel has allow_to.
	To string `json:"to,omitempty"`

	// How long the run may take. Default: defaultTimeoutSeconds of the settings.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`

	// How long the run may wait until an agent takes it on. Default: queue_time of the instance, which is also the longest.
	QueueTimeSeconds int `json:"queueTimeSeconds,omitempty"`

	// An object that the runner gets with the message.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

var (
	Tiers         = engine.Tiers
	MemoryPresets = engine.MemoryPresets
)

// Check returns a fieldError for the first field of a request that is refused.
func (f *AgentFields) Check(r *Rules) error {
	if err := f.checkInHook(r); err != nil {
		return err
	}
	if f.Deliver {
		if err := f.checkTo(r.Channels[f.Channel]); err != nil {
			return err
		}
	}
	return f.checkAllowed(r)
}

// checkInHook checks what is the same for the fields of a mapping: all but the form of the chat.
func (f *AgentFields) checkInHook(r *Rules) error {
	if err := CheckChatID(f.ChatID); err != nil {
		return err
	}
	if err := oneOf("model", f.Model, Tiers); err != nil {
		return err
	}
	if err := oneOf("memoryPreset", f.MemoryPreset, MemoryPresets); err != nil {
		return err
	}
	if f.ResponseJSONSchema != nil {
		if !f.SyncResponse {
			return FieldErrorf("responseJsonSchema", "needs %s to be true", bothNames("syncResponse"))
		}
		if err := r.CheckSchema(f.ResponseJSONSchema); err != nil {
			return FieldErrorf("responseJsonSchema", "is refused: %v", err)
		}
		if err := oneOf("responseValidationModelTier", f.ResponseValidationModelTier, Tiers); err != nil {
			return err
		}
	}
	if f.CallbackURL != "" {
		if err := r.Guard.CheckURL(f.CallbackURL); err != nil {
			return FieldErrorf("callbackUrl", "is refused: %v", err)
		}
	}
	if f.Deliver {
		if err := f.checkDelivery(r.Channels); err != nil {
			return err
		}
	}
	if f.TimeoutSeconds < 0 || f.TimeoutSeconds > r.MaxSeconds() {
		return FieldErrorf("timeoutSeconds", "must be from 1 to %s", inSeconds(r.MaxSeconds()))
	}
	if f.QueueTimeSeconds < 0 || f.QueueTimeSeconds > r.MaxQueueSeconds() {
		return FieldErrorf("queueTimeSeconds", "must be from 1 to %s", inSeconds(r.MaxQueueSeconds()))
	}
	return nil
}

func (f *AgentFields) checkDelivery(channels map[string]engine.Channel) error {
	if f.Channel == "" {
		return FieldErrorf("channel", "must name a channel when deliver is true")
	}
	if f.To == "" {
		return FieldErrorf("to", "must name a chat on the channel when deliver is true")
	}
	if _, ok := channels[f.Channel]; !ok {
		return FieldErrorf("channel", "names no channel that is configured here")
	}
	return nil
}

// checkTo checks the form of the chat. channel is nil if it is not loaded yet.
func (f *AgentFields) checkTo(channel engine.Channel) error {
	if channel == nil {
		return nil
	}
	if err := channel.ValidTo(f.To); err != nil {
		return FieldErrorf("to", "is refused: %v", err)
	}
	return nil
}

const MaxChatID = 256

func CheckChatID(id string) error {
	if len(id) > MaxChatID {
		return FieldErrorf("chatId", "must not be longer than %d bytes", MaxChatID)
	}
	if strings.ContainsFunc(id, text.IsControl) {
		return FieldErrorf("chatId", "must not hold control characters")
	}
	return nil
}

// checkAllowed checks the chat that a request or a live hook names. The error tells nobody which chats there are.
func (f *AgentFields) checkAllowed(r *Rules) error {
	if f.Deliver && !AllowsTo(r.Channels[f.Channel], f.To) {
		return FieldErrorf("to", "is refused: it is not among the chats that may be named on the channel %s", f.Channel)
	}
	return nil
}

package acpclient

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/coder/acp-go-sdk"
)

// Only what is used here is read from the agent's messages: agents differ in the rest, and add to it.

// Abilities are what an agent offers.
type Abilities struct {
	Load   bool // session/load, which repeats the conversation
	Resume bool // session/resume, which does not
	Close  bool // session/close
}

// Update is something that happened in a session.
type Update struct {
	Kind      string          `json:"sessionUpdate"`
	MessageID string          `json:"messageId"`
	Content   json.RawMessage `json:"content"` // of a message: see Text
	Meta      json.RawMessage `json:"_meta"`
	Cost      json.RawMessage `json:"cost"` // of all turns of the session: see Dollars

	ToolUse // of a tool call
}

// ToolUse is what an agent tells about the use of a tool. It may tell a part of it at a time.
type ToolUse struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title"`
	Kind      string          `json:"kind"`
	Input     json.RawMessage `json:"rawInput"`
	Locations json.RawMessage `json:"locations"`
}

// Command is the command that the tool is to run, "" if its input has none.
func (u *ToolUse) Command() string {
	var input struct {
		Command json.RawMessage `json:"command"`
	}
	if json.Unmarshal(u.Input, &input) != nil || input.Command == nil {
		return ""
	}
	var line string
	if json.Unmarshal(input.Command, &line) == nil {
		return line
	}
	var words []string
	if json.Unmarshal(input.Command, &words) != nil {
		return ""
	}
	return strings.Join(words, " ")
}

// Paths are the files that the tool is to work with.
func (u *ToolUse) Paths() (paths []string) {
	var locations []struct {
		Path string `json:"path"`
	}
	if json.Unmarshal(u.Locations, &locations) != nil {
		return nil
	}
	for _, location := range locations {
		if location.Path != "" {
			paths = append(paths, location.Path)
		}
	}
	return paths
}

// The kinds of updates that are of interest.
const (
	MessageChunk   = "agent_message_chunk"
	Thought        = "agent_thought_chunk"
	ToolCall       = "tool_call"
	ToolCallUpdate = "tool_call_update"
	SessionInfo    = "session_info_update"
	UsageUpdate    = "usage_update"
)

// Text is the text of a message, "" if it is an image or something else.
func (u *Update) Text() string {
	var content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(u.Content, &content) != nil || content.Type != "text" {
		return ""
	}
	return content.Text
}

// Dollars is the cost as JSON, nil if there is none in US dollars.
func (u *Update) Dollars() json.RawMessage {
	var cost struct {
		Amount   json.RawMessage `json:"amount"`
		Currency string          `json:"currency"`
	}
	if json.Unmarshal(u.Cost, &cost) != nil || cost.Currency != "USD" {
		return nil
	}
	return cost.Amount
}

// PermissionRequest is the request of an agent to use a tool.
type PermissionRequest struct {
	SessionID string  `json:"sessionId"`
	ToolCall  ToolUse `json:"toolCall"`
	Options   []struct {
		ID   string `json:"optionId"`
		Kind string `json:"kind"`
	} `json:"options"`
}

// Option is the id of the option of a kind, "" if there is none.
func (r *PermissionRequest) Option(kind acp.PermissionOptionKind) string {
	for _, option := range r.Options {
		if option.Kind == string(kind) {
			return option.ID
		}
	}
	return ""
}

// Initialize begins the protocol. The agent is offered neither files nor terminals: it works with its own.
func (c *Client) Initialize(ctx context.Context, version string) (Abilities, error) {
	title := "Caddy hooks"
	type anything = *json.RawMessage
	result, err := call[struct {
		AgentCapabilities struct {
			LoadSession         bool `json:"loadSession"`
			SessionCapabilities struct {
				Resume anything `json:"resume"`
				Close  anything `json:"close"`
			} `json:"sessionCapabilities"`
		} `json:"agentCapabilities"`
	}](ctx, c, acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber,
		ClientInfo:      &acp.Implementation{Name: "caddyhooks", Title: &title, Version: version},
	})
	if err == nil {
		c.in.trust()
	}
	can := result.AgentCapabilities
	return Abilities{Load: can.LoadSession, Resume: can.SessionCapabilities.Resume != nil, Close: can.SessionCapabilities.Close != nil}, err
}

// Session is an open session, and what can be set in it.
type Session struct {
	ID    string `json:"sessionId"`
	Modes struct {
		Current   string `json:"currentModeId"`
		Available []struct {
			ID string `json:"id"`
		} `json:"availableModes"`
	} `json:"modes"`
	Options []struct {
		ID       string          `json:"id"`
		Category string          `json:"category"`
		Current  json.RawMessage `json:"currentValue"`
	} `json:"configOptions"`
	Models *struct {
		Current string `json:"currentModelId"`
	} `json:"models"`
}

// ModelOption is the id of the option for the model, "" if there is none, and its value.
func (s *Session) ModelOption() (id, current string) {
	for _, option := range s.Options {
		if (option.Category == "model" || option.ID == "model") && json.Unmarshal(option.Current, &current) == nil {
			return option.ID, current
		}
	}
	return "", ""
}

// sessionRequest is that of session/new, session/resume and session/load.
type sessionRequest struct {
	SessionID  string         `json:"sessionId,omitempty"`
	Dir        string         `json:"cwd"`
	MCPServers []string       `json:"mcpServers"`
	Meta       map[string]any `json:"_meta,omitempty"`
}

// NewSession makes a session.
func (c *Client) NewSession(ctx context.Context, dir string, meta map[string]any) (Session, error) {
	return call[Session](ctx, c, acp.AgentMethodSessionNew, sessionRequest{Dir: dir, MCPServers: []string{}, Meta: meta})
}

// ResumeSession opens a session that was made before.
func (c *Client) ResumeSession(ctx context.Context, id, dir string, meta map[string]any) (Session, error) {
	return c.reopen(ctx, acp.AgentMethodSessionResume, id, dir, meta)
}

// LoadSession opens a session that was made before. The agent repeats what was said in it, before LoadSession returns.
func (c *Client) LoadSession(ctx context.Context, id, dir string, meta map[string]any) (Session, error) {
	return c.reopen(ctx, acp.AgentMethodSessionLoad, id, dir, meta)
}

func (c *Client) reopen(ctx context.Context, method, id, dir string, meta map[string]any) (Session, error) {
	session, err := call[Session](ctx, c, method, sessionRequest{SessionID: id, Dir: dir, MCPServers: []string{}, Meta: meta})
	session.ID = id
	return session, err
}

// CloseSession has the agent free a session.
func (c *Client) CloseSession(ctx context.Context, id string) error {
	_, err := call[json.RawMessage](ctx, c, acp.AgentMethodSessionClose, acp.CloseSessionRequest{SessionId: acp.SessionId(id)})
	return err
}

// SetMode sets the mode of a session.
func (c *Client) SetMode(ctx context.Context, id, mode string) error {
	request := acp.SetSessionModeRequest{SessionId: acp.SessionId(id), ModeId: acp.SessionModeId(mode)}
	_, err := call[json.RawMessage](ctx, c, acp.AgentMethodSessionSetMode, request)
	return err
}

// SetOption sets an option of a session.
func (c *Client) SetOption(ctx context.Context, id, option, value string) error {
	request := map[string]any{"sessionId": id, "configId": option, "value": value}
	_, err := call[json.RawMessage](ctx, c, acp.AgentMethodSessionSetConfigOption, request)
	return err
}

// SetModel sets the model of a session by the way from before there were options.
func (c *Client) SetModel(ctx context.Context, id, model string) error {
	_, err := call[json.RawMessage](ctx, c, acp.AgentMethodSessionSetModel, map[string]any{"sessionId": id, "modelId": model})
	return err
}

// TurnEnd is how a turn ended.
type TurnEnd struct {
	StopReason string          `json:"stopReason"`
	Usage      json.RawMessage `json:"usage"` // of tokens
	Meta       json.RawMessage `json:"_meta"`
}

// Prompt sends a message and waits for the end of the turn. The agent gets the trace parent unless that is "".
func (c *Client) Prompt(ctx context.Context, id, message, traceParent string) (TurnEnd, error) {
	request := acp.PromptRequest{SessionId: acp.SessionId(id), Prompt: []acp.ContentBlock{acp.TextBlock(message)}}
	if traceParent != "" {
		request.Meta = map[string]any{"traceparent": traceParent} // a name that the protocol reserves for this
	}
	return call[TurnEnd](ctx, c, acp.AgentMethodSessionPrompt, request)
}

// Cancel asks the agent to end the turn of a session. Prompt returns when it has.
func (c *Client) Cancel(id string) error {
	return c.conn.SendNotification(context.Background(), acp.AgentMethodSessionCancel, acp.CancelNotification{SessionId: acp.SessionId(id)})
}

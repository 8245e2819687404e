package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// claudePreset is Claude Code, as of version 2.1.
var claudePreset = &programPreset{
	program:   "claude",
	call:      claudeCall,
	newReader: func(p *presetTurn) presetReader { return &claudeReader{p: p} },
}

// ClaudeEnvironment keeps Claude Code from doing more than the turn. The last but one keeps it from putting the file of an @/path in
// a message into the prompt, for which it asks nobody.
var ClaudeEnvironment = map[string]string{
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
	"DISABLE_AUTOUPDATER":                      "1",
	"CLAUDE_CODE_DISABLE_ATTACHMENTS":          "1",
	"CLAUDE_CODE_MAX_RETRIES":                  "2",
}

// maxArgument is less than the longest argument that Linux lets a program have.
const maxArgument = 120 << 10

func claudeCall(c *Command, p *presetTurn) (programCall, error) {
	turn := p.turn
	call := programCall{args: slices.Clone(c.args), env: maps.Clone(ClaudeEnvironment)}
	if turn.Isolated() {
		call.args = slices.Concat(call.args[:1], withoutOptions(call.args[1:], claudeToolOptions))
	}
	add := func(args ...string) { call.args = append(call.args, args...) }
	add("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages")
	message := turn.Message
	switch {
	case p.system == "":
	case hasOption(c.args, "--append-system-prompt") || hasOption(c.args, "--append-system-prompt-file"):
		message = turns.WithSystem(turn, message) // it takes one of them
	default:
		add("--append-system-prompt-file", p.system)
	}
	if p.model != "" {
		add("--model", p.model)
	}
	if p.passesSchema() {
		add("--json-schema", string(turn.ResponseSchema))
	}
	switch {
	case !turn.Memory():
		add("--no-session-persistence")
		call.env["CLAUDE_CODE_DISABLE_AUTO_MEMORY"] = "1"
	case p.session != "":
		add("--resume", p.session)
	default:
		add("--session-id", uuid.NewString())
	}
	if turn.Isolated() {
		add("--tools", "", "--strict-mcp-config", "--setting-sources", "", "--disable-slash-commands")
		call.env["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] = "1"
		if c.Variables()["ANTHROPIC_API_KEY"] != "" { // without which --bare finds no login
			add("--bare")
		}
	}
	call.stdin = turns.Neutralise("claude", message)
	return call, nil
}

// claudeToolOptions are options that give Claude Code tools, or a conversation.
var claudeToolOptions = []string{
	"--tools", "--allowedTools", "--allowed-tools", "--mcp-config", "--add-dir", "--plugin-dir", "--plugin-url", "--agent", "--agents",
	"--continue", "-c", "--resume", "-r", "--session-id", "--ide", "--chrome", "--dangerously-skip-permissions",
	"--allow-dangerously-skip-permissions", "--permission-mode", "--permission-prompt-tool",
}

func hasOption(args []string, name string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return arg == name || strings.HasPrefix(arg, name+"=") })
}

// withoutOptions leaves options out, with the words after each up to the next option.
func withoutOptions(args, names []string) (kept []string) {
	dropping := false
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			name, _, _ := strings.Cut(arg, "=")
			dropping = slices.Contains(names, name)
		}
		if !dropping {
			kept = append(kept, arg)
		}
	}
	return kept
}

// passesSchema reports whether Claude Code gets the schema. If not, it follows the instructions about it, as other agents do.
// Models take no other schema than that of an object for their tools, which is how Claude Code asks for an answer.
func (p *presetTurn) passesSchema() bool {
	return !p.noSchema && p.turn.ResponseSchema != nil && len(p.turn.ResponseSchema) <= maxArgument && isObjectSchema(p.turn.ResponseSchema)
}

// isObjectSchema reports whether a schema says at its top that the answer is an object, and nothing more complicated.
func isObjectSchema(schema json.RawMessage) bool {
	var top map[string]json.RawMessage
	if json.Unmarshal(schema, &top) != nil || string(bytes.TrimSpace(top["type"])) != `"object"` {
		return false
	}
	for _, word := range []string{"oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "$ref"} {
		if _, ok := top[word]; ok {
			return false
		}
	}
	return true
}

// claudeReader reads the output of Claude Code.
type claudeReader struct {
	p       *presetTurn
	session string
	spoke   bool // the model has answered something
	texts   int  // of the messages so far
	inText  bool
	emitted int
	trouble string        // the last call of the model that failed, and is made again
	result  *claudeResult // the last one
	used    []usage.Report
	calls   []usage.Report // of the model, since the last result
}

type claudeLine struct {
	Type      string `json:"type"`
	SessionID string `json:"session_id"`

	// Of an agent below the one that answers, if it is not nil.
	ParentToolUseID *string `json:"parent_tool_use_id"`

	Event struct {
		Type  string `json:"type"`
		Delta struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"delta"`
	} `json:"event"`
}

type claudeResult struct {
	Subtype          string          `json:"subtype"`
	IsError          *bool           `json:"is_error"`
	Result           string          `json:"result"`
	StructuredOutput json.RawMessage `json:"structured_output"`
	APIErrorStatus   *int            `json:"api_error_status"`
	Errors           []string        `json:"errors"`
	Denials          []claudeDenial  `json:"permission_denials"`
}

// claudeRetry tells that a call of the model failed, and is made again.
type claudeRetry struct {
	Subtype string `json:"subtype"`
	Attempt int    `json:"attempt"`
	Status  int    `json:"error_status"`
	Error   string `json:"error"`
}

type claudeDenial struct {
	Tool  string `json:"tool_name"`
	Input struct {
		Command string `json:"command"`
		File    string `json:"file_path"`
		URL     string `json:"url"`
	} `json:"tool_input"`
}

func (r *claudeReader) line(data []byte) error {
	var line claudeLine
	if !decodeLine(data, &line) {
		return nil
	}
	if line.SessionID != "" {
		r.session = line.SessionID
	}
	switch line.Type {
	case "system":
		var retry claudeRetry
		if decodeLine(data, &retry) && retry.Subtype == "api_retry" {
			r.trouble = fmt.Sprintf("the model failed (%s, status %d), and is asked again (attempt %d)",
				retry.Error, retry.Status, retry.Attempt)
		}
	case "stream_event":
		r.trouble = ""
		r.spoke = true
		r.noteCall(data)
		if line.ParentToolUseID == nil {
			r.event(&line)
		}
	case "result":
		result := new(claudeResult)
		if !decodeLine(data, result) {
			result = nil // one that cannot be read is no success
		}
		r.result = result
		r.noteUsage(data)
	}
	return nil
}

// claudeTokens are the tokens of Anthropic's models. Input has none that were read from a cache, or written to one.
type claudeTokens struct {
	Input   usage.Number `json:"input_tokens"`
	Read    usage.Number `json:"cache_read_input_tokens"`
	Written usage.Number `json:"cache_creation_input_tokens"`
	Output  usage.Number `json:"output_tokens"`
	Details struct {
		Thinking usage.Number `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func (t *claudeTokens) report(model string) usage.Report {
	return usage.Report{
		Model: model, Input: usage.Plus(t.Input, t.Read, t.Written), Cached: t.Read, Output: t.Output, Reasoning: t.Details.Thinking,
	}
}

// claudeModelUse is what was used of one model.
type claudeModelUse struct {
	Input    usage.Number `json:"inputTokens"`
	Read     usage.Number `json:"cacheReadInputTokens"`
	Written  usage.Number `json:"cacheCreationInputTokens"`
	Output   usage.Number `json:"outputTokens"`
	Thinking usage.Number `json:"thinkingTokens"`
	Cost     usage.Number `json:"costUSD"`
}

func (u claudeModelUse) report() usage.Report {
	return usage.Report{
		Input: usage.Plus(u.Input, u.Read, u.Written), Cached: u.Read, Output: u.Output, Reasoning: u.Thinking, Cost: u.Cost,
	}
}

// noteUsage notes what a result tells. The cost and modelUsage are those of the whole conversation, also of what was said in it before.
// So older versions, which do not tell what was used since the last result, do not tell the cost of a turn that goes on.
func (r *claudeReader) noteUsage(result []byte) {
	var told struct {
		Usage  claudeTokens              `json:"usage"`
		Since  map[string]claudeModelUse `json:"model_usage_since_last_result"`
		Models map[string]claudeModelUse `json:"modelUsage"`
	}
	_ = json.Unmarshal(result, &told) // of a value of another kind nothing is known
	r.calls = nil
	switch {
	case told.Since != nil:
		r.addUsed(reportEach(told.Since, claudeModelUse.report)...)
	case r.p.session == "" && told.Models != nil:
		r.used = reportEach(told.Models, claudeModelUse.report)
	default:
		r.addUsed(told.Usage.report(r.p.model))
	}
}

func (r *claudeReader) addUsed(reports ...usage.Report) {
	for _, report := range reports {
		if !report.IsEmpty() && len(r.used) < maxReports {
			r.used = append(r.used, report)
		}
	}
}

// maxReports bounds the reports of a turn. It has several results if agents work in the background.
const maxReports = 1000

// noteCall notes what a call of the model used, for a turn that ends without a result.
func (r *claudeReader) noteCall(line []byte) {
	var told struct {
		Event struct {
			Type    string       `json:"type"`
			Usage   claudeTokens `json:"usage"`
			Message struct {
				Model string       `json:"model"`
				Usage claudeTokens `json:"usage"`
			} `json:"message"`
		} `json:"event"`
	}
	_ = json.Unmarshal(line, &told)
	switch last := len(r.calls) - 1; {
	case told.Event.Type == "message_start" && last+1 < maxReports:
		if report := told.Event.Message.Usage.report(told.Event.Message.Model); !report.IsEmpty() {
			r.calls = append(r.calls, report)
		}
	case told.Event.Type == "message_delta" && last >= 0 && told.Event.Usage.Output != nil:
		r.calls[last].Output = told.Event.Usage.Output
	}
}

// event tells what Claude Code says while it works. Between two of its messages stands a blank line.
func (r *claudeReader) event(line *claudeLine) {
	delta := line.Event.Delta
	switch line.Event.Type {
	case "message_start":
		r.inText = false
	case "content_block_delta":
		if delta.Type != "text_delta" || delta.Text == "" || r.p.turn.Emit == nil {
			return
		}
		text := delta.Text
		if !r.inText && r.texts > 0 {
			text = "\n\n" + text
		}
		if !r.inText {
			r.texts++
		}
		r.inText = true
		if r.emitted += len(text); r.emitted <= answers.MaxReply {
			r.p.turn.Emit(engine.Progress{Text: text})
		}
	}
}

func (r *claudeReader) end(exit programExit) presetEnd {
	end := presetEnd{said: r.trouble}
	end.reply.Usage = append(r.used, r.calls...)
	result := r.result
	if result != nil {
		end.reply.Permissions = claudePermissions(result.Denials)
	}
	if r.spoke { // before that there is no conversation to go on with
		end.reply.Session = r.session
	}
	if result == nil || result.IsError == nil || *result.IsError || result.Subtype != "success" || exit.how.Code != 0 {
		r.fail(&end, exit)
		return end
	}
	end.reply.Session = r.session
	text := result.Result
	if output := result.StructuredOutput; r.p.passesSchema() && len(output) > 0 && string(output) != "null" {
		text = string(output)
	}
	if end.reply.Text, end.err = checkAnswer(text); end.err != nil {
		end.err = fmt.Errorf("the answer of Claude Code: %w", end.err)
	}
	return end
}

// fail says why there is no answer.
func (r *claudeReader) fail(end *presetEnd, exit programExit) {
	failure := &answers.Error{Problem: "Claude Code " + programs.ExitText(exit.how), Text: exit.stderr}
	end.err = failure
	if r.result == nil {
		failure.Problem += " and without a result"
		end.refusedSchema = r.p.passesSchema() && !r.spoke && strings.Contains(exit.stderr, "--json-schema")
		end.lostSession = !r.spoke && strings.Contains(exit.stderr, noConversation)
		return
	}
	result := r.result
	if result.Subtype != "" && result.Subtype != "success" {
		failure.Problem += " (" + oneline.Of(result.Subtype, answers.MaxLine) + ")"
	}
	switch reasons := strings.Join(result.Errors, "\n"); {
	case result.Result != "":
		failure.Text = answers.Beginning([]byte(result.Result))
	case reasons != "":
		failure.Text = answers.Beginning([]byte(reasons))
		end.lostSession = !r.spoke && strings.Contains(reasons, noConversation)
	}
	if status := result.APIErrorStatus; status != nil {
		failure.Problem = fmt.Sprintf("the model of Claude Code answered %d", *status)
	}
	switch {
	case r.spoke: // tools may have been used
	case result.APIErrorStatus != nil:
		end.err = answers.ModelRefusal(*result.APIErrorStatus, 0, failure)
	default:
		end.err = answers.ReportedRefusal(result.Result, failure)
	}
}

const noConversation = "No conversation found"

// claudePermissions are the tools that Claude Code was not allowed to use.
func claudePermissions(denials []claudeDenial) (permissions []engine.Permission) {
	const most, longest = 100, 200
	for _, denial := range denials[:min(len(denials), most)] {
		title := denial.Tool
		for _, detail := range []string{denial.Input.Command, denial.Input.File, denial.Input.URL} {
			if detail != "" {
				title += ": " + detail
				break
			}
		}
		kind := claudeTools[denial.Tool]
		if kind == "" {
			kind = "other"
		}
		permissions = append(permissions, engine.Permission{Kind: kind, Title: oneline.Of(title, longest), Answer: "rejected"})
	}
	return permissions
}

// claudeTools are the kinds of tools, in the words of the Agent Client Protocol.
var claudeTools = map[string]string{
	"Bash": "execute", "PowerShell": "execute", "Monitor": "execute",
	"Read": "read", "Glob": "search", "Grep": "search", "LS": "search",
	"Edit": "edit", "Write": "edit", "MultiEdit": "edit", "NotebookEdit": "edit",
	"WebFetch": "fetch", "WebSearch": "fetch",
}

package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// codexPreset is Codex, as of version 0.166.
var codexPreset = &programPreset{
	program:   "codex",
	call:      codexCall,
	newReader: func(p *presetTurn) presetReader { return &codexReader{p: p} },
}

func codexCall(c *Command, p *presetTurn) (programCall, error) {
	turn := p.turn
	call := programCall{args: slices.Clone(c.args), stdin: turns.Neutralise("codex", turns.WithSystem(turn, turn.Message))}
	add := func(args ...string) { call.args = append(call.args, args...) }
	add("exec", "--json", "--skip-git-repo-check")
	if turn.Isolated() || !slices.ContainsFunc(codexSandboxOptions, func(name string) bool { return hasOption(c.args, name) }) {
		add("-s", "read-only")
	}
	if p.model != "" {
		add("-m", p.model)
	}
	if !turn.Memory() {
		add("--ephemeral")
	}
	if turn.Isolated() {
		for _, setting := range codexWithoutTools {
			add("-c", setting)
		}
		servers, err := p.codexServers()
		if err != nil {
			return call, fmt.Errorf("reading the settings of Codex: %w", err)
		}
		for _, name := range servers {
			add("-c", "mcp_servers."+name+".enabled=false")
		}
	}
	if p.passesSchema() {
		add("--output-schema", p.schema)
	}
	if turn.Memory() && p.session != "" {
		add("resume", p.session)
	}
	add("-") // the message is read from the standard input
	return call, nil
}

// codexSandboxOptions are options by which an operator chooses what the tools of Codex may do. Without them, they may read.
var codexSandboxOptions = []string{
	"-s", "--sandbox", "--full-auto", "--approve-for-me", "--dangerously-bypass-approvals-and-sandbox", "--yolo", "-p", "--profile",
}

// codexWithoutTools are settings that leave Codex one tool only, by which it would ask a user who is not there.
var codexWithoutTools = []string{
	"features.shell_tool=false", "features.view_image=false", "features.multi_agent=false", "features.goals=false",
	"features.image_generation=false", "features.apps=false", "features.plugins=false", "features.hooks=false",
	"features.tool_suggest=false", "features.skill_search=false", `web_search="disabled"`,
	"skills.include_instructions=false", "project_doc_max_bytes=0",
}

// codexServers are the MCP servers in the settings of Codex, whose tools can be turned off only one by one.
func (p *presetTurn) codexServers() ([]string, error) {
	folder := p.runner.Variables()["CODEX_HOME"]
	if folder == "" {
		folder = filepath.Join(p.home, ".codex")
	}
	as, err := p.runner.Owner()
	if err != nil {
		return nil, err
	}
	data, err := programs.ReadConfig(folder, "config.toml", as)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var settings struct {
		Servers map[string]any `toml:"mcp_servers"`
	}
	if err := toml.Unmarshal(data, &settings); err != nil {
		return nil, errors.New("config.toml is not TOML") // more could show a secret
	}
	return slices.Sorted(maps.Keys(settings.Servers)), nil
}

// codexReader reads the output of Codex.
type codexReader struct {
	p         *presetTurn
	session   string
	said      int  // the messages so far
	acted     bool // something was done, or said
	answer    string
	completed bool
	failed    bool
	failure   string
	emitted   int
	total     *usage.Report // of the conversation
}

type codexLine struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id"`
	Message  string `json:"message"`
	Item     struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"item"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (r *codexReader) line(data []byte) error {
	var line codexLine
	if !decodeLine(data, &line) {
		return nil
	}
	if line.Item.Type != "" && line.Item.Type != "error" { // started or completed
		r.acted = true
	}
	switch line.Type {
	case "thread.started":
		if uuid.Validate(line.ThreadID) == nil {
			r.session = line.ThreadID
		}
	case "item.completed":
		if line.Item.Type == "agent_message" && line.Item.Text != "" {
			r.say(line.Item.Text)
		}
	case "turn.completed":
		r.completed = true
		r.total = codexUsage(data)
	case "turn.failed":
		r.failed, r.failure = true, line.Error.Message
	case "error": // a try that failed; more may follow
		r.failure = line.Message
		if !r.acted && answers.ReportsUnreachable(r.failure) { // it would wait for its network as long as it may
			return answers.ModelUnreachable(&answers.Error{Problem: "Codex cannot reach its model", Text: answers.Beginning(r.failure)})
		}
	}
	return nil
}

// say notes a message, of which the last one is the answer. Between two stands a blank line for those who listen.
func (r *codexReader) say(text string) {
	r.answer = text
	if r.said++; r.said > 1 {
		text = "\n\n" + text
	}
	if r.emitted += len(text); r.emitted <= answers.MaxReply && r.p.turn.Emit != nil {
		r.p.turn.Emit(engine.Progress{Text: text})
	}
}

func (r *codexReader) end(exit programExit) presetEnd {
	end := presetEnd{said: r.failure}
	end.reply.Session, end.reply.Usage = r.used()
	if exit.how.Code == 0 && r.completed && !r.failed {
		if end.reply.Text, end.err = checkAnswer(r.answer); end.err != nil {
			end.err = fmt.Errorf("the answer of Codex: %w", end.err)
		}
		return end
	}
	failure := &answers.Error{Problem: "Codex " + programs.ExitText(exit.how), Text: exit.stderr}
	if r.failure != "" {
		failure.Problem, failure.Text = "Codex failed", answers.Beginning(r.failure)
	}
	end.err = failure
	if r.failed && !r.acted {
		end.err = answers.ReportedRefusal(r.failure, failure)
	}
	end.lostSession = r.session == "" && strings.Contains(exit.stderr, "no rollout found")
	end.refusedSchema = r.failed && r.said == 0 && r.p.passesSchema() && refusesSchema(r.failure)
	return end
}

// codexUsage is what a line tells of the tokens of a conversation.
func codexUsage(line []byte) *usage.Report {
	var told struct {
		Usage struct {
			Input     usage.Number `json:"input_tokens"`
			Cached    usage.Number `json:"cached_input_tokens"`
			Output    usage.Number `json:"output_tokens"`
			Reasoning usage.Number `json:"reasoning_output_tokens"`
		} `json:"usage"`
	}
	_ = json.Unmarshal(line, &told) // of a value of another kind nothing is known
	u := told.Usage
	return &usage.Report{Input: u.Input, Output: u.Output, Cached: u.Cached, Reasoning: u.Reasoning}
}

// used is the session with what was used in all of it, and what was used in this turn. Codex tells the former alone, and only at the end of
// a turn that went well. So a turn also counts what failed before it.
func (r *codexReader) used() (session string, reports []usage.Report) {
	before := new(usage.Report)
	if r.p.session != "" && json.Unmarshal([]byte(r.p.before), before) != nil {
		before = nil // nothing was noted, and it is not known what this turn used
	}
	total := r.total
	if total == nil {
		total = before
	} else if before != nil {
		report := usage.Report{
			Model: r.p.model, Input: usage.Rest(total.Input, before.Input), Output: usage.Rest(total.Output, before.Output),
			Cached: usage.Rest(total.Cached, before.Cached), Reasoning: usage.Rest(total.Reasoning, before.Reasoning),
		}
		if !report.IsEmpty() {
			reports = []usage.Report{report}
		}
	}
	if noted, err := json.Marshal(total); r.session != "" && total != nil && err == nil {
		return r.session + " " + string(noted), reports
	}
	return r.session, reports
}

// refusesSchema reports whether an error of OpenAI's models is about the schema. They take some schemas only, and look at them before
// anything else.
func refusesSchema(failure string) bool {
	return strings.Contains(failure, "invalid_json_schema") || strings.Contains(failure, "Invalid schema for response_format")
}

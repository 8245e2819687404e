package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
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

// geminiPreset is Gemini CLI, as of version 0.61.
var geminiPreset = &programPreset{
	program:   "gemini",
	config:    GeminiConfig,
	call:      geminiCall,
	newReader: func(p *presetTurn) presetReader { return &geminiReader{p: p} },
}

func geminiCall(c *Command, p *presetTurn) (programCall, error) {
	turn := p.turn
	message := turns.WithSystem(turn, turn.Message)
	if c.Dir != "" { // its own folder is empty, and it reads no others
		message = strings.ReplaceAll(message, "@", `\@`)
	}
	call := programCall{args: slices.Clone(c.args), stdin: turns.Neutralise("gemini", message), env: make(map[string]string)}
	add := func(args ...string) { call.args = append(call.args, args...) }
	add("--output-format", "stream-json", "--skip-trust")
	if p.model != "" {
		add("-m", p.model)
	}
	switch {
	case !turn.Memory():
		return call, p.homeForOnce(&call)
	case p.session != "":
		add("-r", p.session)
	default:
		add("--session-id", uuid.NewString())
	}
	if c.Home == "" {
		return call, p.settle()
	}
	return call, nil
}

const GeminiSettingsFile = ".gemini/settings.json"

// GeminiSettings are settings for a home without any: the key of the environment, and nothing sent but the turn.
const GeminiSettings = `{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false},
 "telemetry": {"enabled": false}, "general": {"enableAutoUpdate": false}}
`

// settle writes settings into the runner's own home, unless there are some.
func (p *presetTurn) settle() error {
	_, err := os.Lstat(filepath.Join(p.home, GeminiSettingsFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	as, err := p.runner.Owner()
	if err != nil {
		return err
	}
	home := programs.LastingHome(p.home, ".gemini", as)
	return errors.Join(home.Write(GeminiSettingsFile, []byte(GeminiSettings)), home.HandOver())
}

// homeForOnce has a turn without memory use a home of its own, since Gemini CLI keeps every conversation below its home. A repair has
// no tools.
func (p *presetTurn) homeForOnce(call *programCall) error {
	once := p.once
	settings, err := once.Read(GeminiSettingsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		settings = []byte(GeminiSettings)
	case err != nil:
		return err
	}
	if p.turn.Isolated() {
		settings = withoutTools(settings)
	}
	call.env["HOME"], call.env["TMPDIR"] = once.Home, once.Temp
	return errors.Join(once.Write(GeminiSettingsFile, settings), once.HandOver())
}

// withoutTools are settings without tools. Settings that cannot be read here, since they have comments say, count for nothing.
func withoutTools(settings []byte) []byte {
	var all map[string]any
	if json.Unmarshal(settings, &all) != nil || all == nil {
		_ = json.Unmarshal([]byte(GeminiSettings), &all)
	}
	delete(all, "mcpServers")
	all["tools"] = map[string]any{"core": []string{}}
	data, err := turns.EncodeJSON(all)
	if err != nil {
		return []byte(GeminiSettings)
	}
	return data
}

// geminiReader reads the output of Gemini CLI.
type geminiReader struct {
	p       *presetTurn
	session string
	spoke   bool
	acted   bool            // it used a tool
	answer  strings.Builder // since the last tool
	emitted int
	status  string // of the result
	failure string
	used    []usage.Report
}

type geminiLine struct {
	Type      string `json:"type"`
	SessionID string `json:"session_id"`
	Role      string `json:"role"`
	Content   string `json:"content"`
	Status    string `json:"status"`
	Message   string `json:"message"`
	Severity  string `json:"severity"`
	Error     struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (r *geminiReader) line(data []byte) error {
	var line geminiLine
	if !decodeLine(data, &line) {
		return nil
	}
	switch line.Type {
	case "init":
		if uuid.Validate(line.SessionID) == nil {
			r.session = line.SessionID
		}
	case "message":
		if line.Role == "assistant" && line.Content != "" {
			return r.say(line.Content)
		}
	case "tool_use":
		r.acted = true
		r.answer.Reset()
	case "error":
		if line.Severity != "warning" {
			r.failure = line.Message
		}
	case "result":
		r.status = line.Status
		r.used = geminiUsage(data)
		if line.Error.Message != "" {
			r.failure = line.Error.Message
		}
	}
	return nil
}

// say adds to the answer, which begins anew after a tool. Those who listen hear all, with a blank line between.
func (r *geminiReader) say(text string) error {
	if r.answer.Len()+len(text) > answers.MaxReply {
		return answers.ErrTooLarge
	}
	added := text
	if r.answer.Len() == 0 && r.spoke {
		added = "\n\n" + added
	}
	r.spoke = true
	r.answer.WriteString(text)
	if r.emitted += len(added); r.emitted <= answers.MaxReply && r.p.turn.Emit != nil {
		r.p.turn.Emit(engine.Progress{Text: added})
	}
	return nil
}

// geminiUsage is what the result tells of the tokens of each model. What a model thinks is in the total alone.
func geminiUsage(line []byte) []usage.Report {
	type modelStats struct {
		Total  usage.Number `json:"total_tokens"`
		Input  usage.Number `json:"input_tokens"`
		Output usage.Number `json:"output_tokens"`
		Cached usage.Number `json:"cached"`
	}
	var told struct {
		Stats struct {
			Models map[string]modelStats `json:"models"`
		} `json:"stats"`
	}
	_ = json.Unmarshal(line, &told) // of a value of another kind nothing is known
	return reportEach(told.Stats.Models, func(m modelStats) usage.Report {
		thoughts := usage.Rest(m.Total, m.Input, m.Output)
		return usage.Report{Input: m.Input, Output: usage.Plus(m.Output, thoughts), Cached: m.Cached, Reasoning: thoughts}
	})
}

// geminiInput is the exit code for an input that Gemini CLI does not take, such as a session that it does not know.
const geminiInput = 42

// geminiStatuses are statuses of its model that Gemini CLI ends with, modulo 256.
var geminiStatuses = []int{
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
	http.StatusGatewayTimeout,
}

func (r *geminiReader) end(exit programExit) presetEnd {
	end := presetEnd{said: r.failure}
	end.reply.Usage = r.used
	if r.spoke { // before that there is no conversation to go on with
		end.reply.Session = r.session
	}
	if exit.how.Code == 0 && r.status == "success" {
		if end.reply.Text, end.err = checkAnswer(r.answer.String()); end.err != nil {
			end.err = fmt.Errorf("the answer of Gemini CLI: %w", end.err)
		}
		return end
	}
	failure := &answers.Error{Problem: "Gemini CLI " + programs.ExitText(exit.how), Text: exit.stderr}
	if r.failure != "" {
		failure.Problem, failure.Text = "Gemini CLI failed", answers.Beginning(oneline.Of(r.failure, answers.MaxBeginning))
	}
	end.err = failure
	for _, status := range geminiStatuses {
		if !r.spoke && !r.acted && exit.how.Code == status%256 {
			end.err = answers.ModelRefusal(status, 0, failure)
		}
	}
	end.lostSession = r.p.session != "" && r.session == "" && exit.how.Code == geminiInput
	return end
}

// GeminiConfig are the settings and credentials of Gemini CLI.
var GeminiConfig = []string{
	".gemini/settings.json", ".gemini/.env", ".gemini/oauth_creds.json", ".gemini/google_accounts.json", ".gemini/installation_id",
	".gemini/trustedFolders.json", ".config/gcloud/application_default_credentials.json",
}

package acp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/command"
)

// agentPreset is what is special about an agent. The zero value is an agent of which nothing is known.
type agentPreset struct {
	command []string
	env     map[string]string // goes behind what the operator sets

	// switches are arguments, behind those of the operator, and variables, behind the operator's, that keep the agent from using
	// tools without asking.
	switches func(processKind) (args []string, env map[string]string, err error)

	// unasked is a kind of tools of which the agent uses some without asking once it has them: nobody can be asked about them.
	unasked string

	// mode is set in each session, so that the agent asks before it does more than read.
	mode string

	// meta are the agent's own options of a session.
	meta func(sessionKind) map[string]any

	// ownModel is what the agent calls the model that it uses by itself. It also tells that meta sets the model: to set it in a
	// session that is open would leave notes of that in the conversation.
	ownModel string

	// forgets tells that meta can keep a session from being written down. Turns without memory then need no process of their
	// own.
	forgets bool

	// oneShot tells that the runner command has a preset of the same name, which takes turns without memory.
	oneShot bool

	// answers reports whether a message is the model's. Default: all are.
	answers func(*acpclient.Update) bool

	// holds reports whether a message may be an error, which is known only at the end of the turn.
	holds func(*acpclient.Update) bool

	// lost reports whether an answer to a message says that there is no such session. Default: by the code for it.
	lost func(*acpclient.Rejected) bool

	// failed reports whether an update says that the turn has failed.
	failed func(*acpclient.Update) bool

	// trouble is what an update says about a call of the model that will be made again, "" if it is not about that.
	trouble func(*acpclient.Update) string

	// readyAt is when a session can be opened again. Default: at once.
	readyAt func(home, id string, now time.Time) time.Time

	// opened is called when a session has been opened again.
	opened func(home, id string) error

	// config are the files below HOME that the agent cannot do without: settings and credentials, but no memory. A turn without
	// memory gets copies of them.
	config []string

	// settings are files for a home that does not have them.
	settings map[string]string

	// shared are variables with folders below the lasting HOME that a turn without memory uses too, such as caches of packages.
	shared map[string]string
}

// processKind is what a process is for.
type processKind struct {
	permit   []string // without those that people are asked about
	isolated bool     // it must not use any tool
	folder   string   // for files that the agent reads
}

func (k *processKind) permits(kind string) bool {
	return slices.Contains(k.permit, kind) && !k.isolated
}

// sessionKind is what a session is for.
type sessionKind struct {
	permit   []string
	ask      []string
	model    string // "" for the agent's own
	memory   bool
	isolated bool
	chat     string // whose it is
	system   string // for a session of one turn
	mark     string // to be in the environment of all processes of the session
}

var agentPresets = map[string]agentPreset{
	"claude": {
		command: []string{"claude-agent-acp"},
		env:     command.ClaudeEnvironment,
		meta:    claudeMeta, forgets: true, ownModel: "default",
		holds: func(u *acpclient.Update) bool { return uuid.Validate(u.MessageID) == nil }, // the names of answers come from the model's side
	},
	"codex": {
		command: []string{"codex-acp"},
		mode:    "read-only",
		answers: func(u *acpclient.Update) bool { return u.MessageID != "" }, // warnings and errors have none
		failed:  codexFailed,
		trouble: codexTrouble,
		lost:    func(r *acpclient.Rejected) bool { return strings.Contains(r.Message, "thread not found") },
		oneShot: true,
	},
	"gemini": {
		command:  []string{"gemini", "--acp", "--skip-trust"},
		switches: geminiSwitches,
		unasked:  "execute",
		readyAt:  geminiReadyAt,
		opened:   geminiOpened,
		settings: map[string]string{command.GeminiSettingsFile: command.GeminiSettings},
		config:   command.GeminiConfig,
	},
	"opencode": {
		command:  []string{"opencode", "acp"},
		env:      map[string]string{"OPENCODE_DISABLE_AUTOUPDATE": "1"},
		switches: opencodeSwitches,
		config: []string{".config/opencode/opencode.json", ".config/opencode/opencode.jsonc", ".config/opencode/config.json",
			".local/share/opencode/auth.json"},
		shared: map[string]string{"XDG_CACHE_HOME": ".cache"},
	},
	"qwen": {
		command:  []string{"qwen", "--acp"},
		switches: qwenSwitches,
		unasked:  "read",
		config:   []string{".qwen/settings.json", ".qwen/.env", ".qwen/oauth_creds.json", ".qwen/installation_id"},
	},
	"copilot": {
		command:  []string{"copilot", "--acp"},
		switches: copilotSwitches,
		unasked:  "read",
		answers:  func(u *acpclient.Update) bool { return !copilotNotes(u, "Info: ") && !copilotNotes(u, "Error: ") },
		failed:   func(u *acpclient.Update) bool { return copilotNotes(u, "Error: ") },
		config:   []string{".copilot/config.json", ".copilot/settings.json", ".config/gh/hosts.yml"},
	},
}

// lostSession reports whether the answer to a message says that the agent does not have the session.
func (p *agentPreset) lostSession(rejected *acpclient.Rejected) bool {
	const resourceNotFound = -32002
	return rejected.Code == resourceNotFound || p.lost != nil && p.lost(rejected)
}

func presetNames() []string { return slices.Sorted(maps.Keys(agentPresets)) }

// claudeMeta has Claude Code ask about every command, also those that it takes for harmless, and keeps it from reading files
// unless that is permitted, or asked about. Tools that start turns of their own later are off: a turn is over when it ends.
func claudeMeta(kind sessionKind) map[string]any {
	options := map[string]any{"env": map[string]string{"HOOKS_TURN": kind.mark}}
	ask, deny := []string{"Bash", "Edit", "Write", "NotebookEdit", "WebFetch", "WebSearch"}, []string{}
	reads := []string{"Read", "Glob", "Grep", "LS", "NotebookRead"}
	switch {
	case slices.Contains(kind.ask, "read"):
		ask = append(ask, reads...)
	case !slices.Contains(kind.permit, "read"):
		deny = reads
	case slices.Contains(kind.ask, "search"):
		ask = append(ask, "Glob", "Grep")
	}
	options["settings"] = map[string]any{"permissions": map[string]any{"ask": ask, "deny": deny}}
	options["disallowedTools"] = []string{"ScheduleWakeup", "CronCreate", "Workflow"}
	options["promptSuggestions"] = false
	if kind.model != "" {
		options["model"] = kind.model
	}
	if !kind.memory {
		options["persistSession"], options["settingSources"] = false, []string{}
	}
	if kind.isolated {
		options["tools"] = []string{}
	}
	meta := map[string]any{"claudeCode": map[string]any{"options": options}}
	if kind.system != "" {
		meta["systemPrompt"] = map[string]any{"append": kind.system}
	}
	return meta
}

// codexFailed tells an error of the model, which Codex gives as an answer, from a real one.
func codexFailed(update *acpclient.Update) bool {
	return codexNotesOf(update).ThreadStatus.Type == "systemError"
}

// codexTrouble is the last error of Codex in a turn that goes on.
func codexTrouble(update *acpclient.Update) string {
	problem := codexNotesOf(update).Error
	return strings.TrimSpace(problem.Message + " " + problem.Details)
}

// codexNotes are notes of Codex on a session.
type codexNotes struct {
	ThreadStatus struct {
		Type string `json:"type"`
	} `json:"threadStatus"`
	Error struct {
		Message string `json:"message"`
		Details string `json:"additionalDetails"`
	} `json:"error"`
}

func codexNotesOf(update *acpclient.Update) codexNotes {
	var meta struct {
		Codex codexNotes `json:"codex"`
	}
	if update.Kind != acpclient.SessionInfo || update.Meta == nil || json.Unmarshal(update.Meta, &meta) != nil {
		return codexNotes{}
	}
	return meta.Codex
}

// geminiSwitches has Gemini CLI ask about every tool. It runs commands that it takes for harmless without asking, whatever its
// policy, so that it has none unless they are permitted.
func geminiSwitches(kind processKind) ([]string, map[string]string, error) {
	rule := func(tool, decision string, priority int) string {
		return fmt.Sprintf("[[rule]]\ntoolName = %q\ndecision = %q\npriority = %d\n\n", tool, decision, priority)
	}
	const low, high = 900, 910
	name, policy := "gemini-ask.toml", rule("*", "ask_user", low)
	switch {
	case kind.isolated:
		name, policy = "gemini-no-tools.toml", rule("*", "deny", low)
	case !kind.permits("execute"):
		policy += rule("run_shell_command", "deny", high)
	}
	path := filepath.Join(kind.folder, name)
	if err := writeWhole(path, policy); err != nil {
		return nil, nil, fmt.Errorf("writing the policy of the agent: %w", err)
	}
	return []string{"--policy", path}, nil, nil
}

// writeWhole writes a file of which no reader sees a part.
func writeWhole(path, text string) error {
	const readable = 0o644
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Chmod(readable), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}

// opencodeSwitches has opencode ask about every tool: by itself it asks about none.
func opencodeSwitches(kind processKind) ([]string, map[string]string, error) {
	decision := "ask"
	if kind.isolated {
		decision = "deny"
	}
	return nil, map[string]string{"OPENCODE_PERMISSION": `{"*": "` + decision + `"}`}, nil
}

// qwenSwitches has Qwen Code ask, where otherwise its model decides. Commands that read files are refused with the tool that reads
// files.
func qwenSwitches(kind processKind) ([]string, map[string]string, error) {
	args := []string{"--approval-mode", "default"}
	switch {
	case kind.isolated:
		args = append(args, "--core-tools", "none", "--exclude-tools", strings.Join([]string{ // those that are not core tools to it
			"agent", "ask_user_question", "enter_plan_mode", "enter_worktree", "exit_plan_mode", "exit_worktree", "get_goal", "list_agents",
			"record_artifact", "report_findings", "send_message", "skill", "task_stop", "tool_call", "tool_search", "update_goal",
		}, ","))
	case !kind.permits("read"):
		args = append(args, "--exclude-tools", "read_file,grep_search,glob,list_directory")
	}
	return args, nil, nil
}

// copilotSwitches takes away the tools that Copilot uses without asking.
func copilotSwitches(kind processKind) ([]string, map[string]string, error) {
	switch {
	case kind.isolated:
		return []string{"--available-tools", "none"}, nil, nil
	case !kind.permits("read"):
		return []string{"--excluded-tools", "view", "grep", "glob"}, nil, nil
	}
	return nil, nil, nil
}

// copilotNotes reports whether a message is from Copilot itself: it puts errors and news among the answers of the model, as a piece
// of their own that begins with such a word. Models answer in smaller pieces.
func copilotNotes(update *acpclient.Update, word string) bool {
	if update.Kind != acpclient.MessageChunk {
		return false
	}
	text := update.Text()
	return strings.HasPrefix(text, word) && len(text) > len(word)
}

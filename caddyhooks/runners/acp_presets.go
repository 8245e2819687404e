package runners

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/acpclient"
)

// acpPreset is what is special about an agent. The zero value is an agent of which nothing is known.
type acpPreset struct {
	command []string
	env     map[string]string // goes behind what the operator sets

	// mode is set in each session, so that the agent asks before it does more than read.
	mode string

	// meta are the agent's own options of a session.
	meta func(acpSessionKind) map[string]any

	// forgets tells that meta can keep a session from being written down. Turns without memory then need no process of their
	// own.
	forgets bool

	// oneShot tells that the runner command has a preset of the same name, which takes turns without memory.
	oneShot bool

	// answers reports whether a message is the model's. Default: all are.
	answers func(*acpclient.Update) bool

	// failed reports whether an update says that the turn has failed.
	failed func(*acpclient.Update) bool

	// config are the files below HOME that the agent cannot do without: settings and credentials, but no memory. A turn without
	// memory gets copies of them.
	config []string

	// shared are variables with folders below the lasting HOME that a turn without memory uses too, such as caches of packages.
	shared map[string]string
}

// acpSessionKind is what a session is for.
type acpSessionKind struct {
	permit   []string
	memory   bool
	isolated bool
	system   string // for a session of one turn
	mark     string // to be in the environment of all processes of the session
}

var acpPresets = map[string]acpPreset{
	"claude": {
		command: []string{"claude-agent-acp"},
		env: map[string]string{
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
			"CLAUDE_CODE_DISABLE_ATTACHMENTS": "1", // @/path in a message would bring in that file
			"CLAUDE_CODE_MAX_RETRIES":         "2",
		},
		meta: claudeMeta, forgets: true,
	},
	"codex": {
		command: []string{"codex-acp"},
		mode:    "read-only",
		answers: func(u *acpclient.Update) bool { return u.MessageID != "" }, // warnings and errors have none
		failed:  codexFailed,
		oneShot: true,
	},
	"gemini": {
		command: []string{"gemini", "--acp"},
		config: []string{".gemini/settings.json", ".gemini/.env", ".gemini/oauth_creds.json", ".gemini/google_accounts.json",
			".gemini/installation_id", ".gemini/trustedFolders.json", ".config/gcloud/application_default_credentials.json"},
	},
	"opencode": {
		command: []string{"opencode", "acp"},
		env:     map[string]string{"OPENCODE_DISABLE_AUTOUPDATE": "1"},
		config: []string{".config/opencode/opencode.json", ".config/opencode/opencode.jsonc", ".config/opencode/config.json",
			".local/share/opencode/auth.json"},
		shared: map[string]string{"XDG_CACHE_HOME": ".cache"},
	},
	"qwen": {
		command: []string{"qwen", "--acp"},
		config:  []string{".qwen/settings.json", ".qwen/.env", ".qwen/oauth_creds.json", ".qwen/installation_id"},
	},
	"copilot": {
		command: []string{"copilot", "--acp"},
		config:  []string{".copilot/config.json", ".copilot/settings.json", ".config/gh/hosts.yml"},
	},
}

func acpPresetNames() []string { return slices.Sorted(maps.Keys(acpPresets)) }

// claudeMeta has Claude Code ask about every command, also those that it takes for harmless, and keeps it from reading files
// unless that is permitted. Tools that start turns of their own later are off: a turn is over when it ends.
func claudeMeta(kind acpSessionKind) map[string]any {
	options := map[string]any{"env": map[string]string{"HOOKS_TURN": kind.mark}}
	deny := []string{}
	if !slices.Contains(kind.permit, "read") {
		deny = []string{"Read", "Glob", "Grep", "LS", "NotebookRead"}
	}
	options["settings"] = map[string]any{"permissions": map[string]any{
		"ask":  []string{"Bash", "Edit", "Write", "NotebookEdit", "WebFetch", "WebSearch"},
		"deny": deny,
	}}
	options["disallowedTools"] = []string{"ScheduleWakeup", "CronCreate", "Workflow"}
	options["promptSuggestions"] = false
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
	if update.Kind != acpclient.SessionInfo || update.Meta == nil {
		return false
	}
	var meta struct {
		Codex struct {
			ThreadStatus struct {
				Type string `json:"type"`
			} `json:"threadStatus"`
		} `json:"codex"`
	}
	return json.Unmarshal(update.Meta, &meta) == nil && meta.Codex.ThreadStatus.Type == "systemError"
}

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	verbs = append(verbs, setVerb)
}

func setVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set SETTING {VALUE | --default}",
		Short: "Changes a live setting",
		Long: `
Changes a setting while Caddy runs. A value is written as in a Caddyfile, and enabled is on or off. A setting that the Caddyfile sets can only be
changed there. Hooks are changed by caddy hooks hook put, and a token is best made by caddy hooks token generate.

The settings are ` + text.List(settingWords()) + `; their names in JSON, such as maxPayloadSize, are known, too.

  caddy hooks set enabled on
  caddy hooks set max_payload 256KB
  caddy hooks set history off
  caddy hooks set wake_fold 30s 50
  caddy hooks set default_timeout --default
  caddy hooks set token --secret-file token`,
		Args: checkSetArgs,
		RunE: errandVerb(runSet),
	}
	cmd.ValidArgsFunction = completeSettings
	cmd.Flags().Bool("default", false, "take the setting back, so that its default is in force")
	newTokenInput.addFlags(cmd)
	addYesFlag(cmd)
	return cmd
}

// newTokenInput is a token to be set.
var newTokenInput = secretInput{"secret", "secret-file", "HOOKS_TOKEN", "token"}

// settingWords are the names of the settings in a Caddyfile.
func settingWords() []string {
	words := make([]string, len(settings.AllSettings))
	for i, e := range settings.AllSettings {
		words[i] = settingWord(e)
	}
	return words
}

// settingWord is the name of a setting in a Caddyfile.
func settingWord(e settings.Setting) string { return e.CaddyfileDirective(new(settings.Settings)).Word }

// completeSettings offers settings, and values of those that have few.
func completeSettings(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	words := settingWords()
	if len(args) > 0 {
		words = nil
	}
	if len(args) == 1 {
		words = map[string][]string{"enabled": {"on", "off"}, "memory_preset": settings.MemoryPresets}[args[0]]
	}
	return completeWords(words...)(cmd, args, typed)
}

// namedSetting finds a setting by its name in a Caddyfile or in JSON, nil if there is none.
func namedSetting(name string) settings.Setting {
	for _, e := range settings.AllSettings {
		if settingWord(e) == name || e.JSONName() == name {
			return e
		}
	}
	return nil
}

// isSecret reports whether a setting holds secrets.
func isSecret(e settings.Setting) bool {
	_, secret := e.(settings.SettingOf[settings.Secrets])
	return secret
}

// checkSetArgs checks what can be known without a running Caddy. Errors do not quote values.
func checkSetArgs(cmd *cobra.Command, args []string) error {
	if err := newTokenInput.check(cmd); err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("the setting is missing; the settings are " + text.List(settingWords()))
	}
	e := namedSetting(args[0])
	byDefault, byFile := flagIsOn(cmd, "default"), flagText(cmd, newTokenInput.file) != ""
	switch {
	case args[0] == "mappings" || args[0] == "hook":
		return errors.New("a hook is changed by: caddy hooks hook put NAME -f FILE")
	case slices.Contains(onlyInCaddyfile, args[0]):
		return fmt.Errorf("%s is set in the Caddyfile alone: change it there, and reload Caddy", args[0])
	case e == nil:
		hint := ""
		if meant := text.Nearest(args[0], settingWords()); meant != "" {
			hint = fmt.Sprintf("did you mean %s? ", meant)
		}
		return fmt.Errorf("there is no setting %q; %sthe settings are %s", text.Abridge(args[0]), hint, text.List(settingWords()))
	case byDefault && (len(args) > 1 || byFile):
		return errors.New("--default goes without a value")
	case isSecret(e) && len(args) > 1:
		return newTokenInput.refused()
	case byFile && !isSecret(e):
		return errors.New("--secret-file is for the token")
	case !byDefault && !isSecret(e):
		_, err := readSetting(e, args[1:])
		return err
	}
	return nil
}

// onlyInCaddyfile are the words below hooks in a Caddyfile that are no live settings. Hooks have verbs of their own.
var onlyInCaddyfile = []string{
	"path", "health", "max_timeout", "max_request", "max_memory", "runner", "runner_for", "store", "workers", "queue_limit", "chat_limit",
	"max_attempts", "retention", "history_limit", "queue_time", "drain_timeout", "channel", "callbacks",
}

// readSetting reads a value as a Caddyfile has it, and returns it as JSON.
func readSetting(e settings.Setting, words []string) (json.RawMessage, error) {
	if _, isFlag := e.(settings.SettingOf[*bool]); isFlag {
		switch strings.Join(words, " ") {
		case "on", "true":
			return json.RawMessage("true"), nil
		case "off", "false":
			return json.RawMessage("false"), nil
		}
		return nil, fmt.Errorf("%s is on or off", settingWord(e))
	}
	var s settings.Settings
	directive := e.CaddyfileDirective(&s)
	tokens := []caddyfile.Token{{Text: directive.Word}}
	for _, word := range words {
		tokens = append(tokens, caddyfile.Token{Text: word})
	}
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	if err := directive.Read(d); err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without the line of a Caddyfile
		}
		return nil, errors.New(strings.TrimSuffix(err.Error(), caddyconf.Unset))
	}
	return json.Marshal(e.ShownIn(&s))
}

func runSet(e *errand, cmd *cobra.Command, args []string) error {
	s := namedSetting(args[0])
	value := json.RawMessage("null")
	var err error
	switch {
	case flagIsOn(cmd, "default"):
	case isSecret(s):
		token, err := newTokenInput.read(cmd, e.screen)
		if err != nil {
			return err
		}
		value = text.JSONString(token)
	default:
		if value, err = readSetting(s, args[1:]); err != nil {
			return err
		}
	}
	before, err := e.settings()
	if err != nil {
		return err
	}
	if isSecret(s) {
		if err := e.confirmTokens(cmd, before); err != nil {
			return err
		}
	}
	after, err := e.patchSettings(before.etag, map[string]json.RawMessage{s.JSONName(): value})
	var refused *refusedError
	if errors.As(err, &refused) { // with the name that the operator used
		if rest, ok := strings.CutPrefix(refused.sentence, s.JSONName()+" "); ok {
			refused.sentence = args[0] + " " + withUnit(s, rest)
		}
	}
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(after.answer)
	}
	e.printChange(s.JSONName(), before.members[s.JSONName()], after.members[s.JSONName()])
	if isSecret(s) || s.JSONName() == "enabled" {
		e.noteWhyOff()
	}
	return nil
}

// withUnit adds the unit of a setting to a sentence that ends with a number. In JSON the name tells it, in a Caddyfile the value.
func withUnit(s settings.Setting, sentence string) string {
	if sentence == "" || !unicode.IsDigit(rune(sentence[len(sentence)-1])) {
		return sentence
	}
	switch {
	case strings.HasSuffix(s.JSONName(), "Seconds"):
		return sentence + " seconds"
	case strings.HasSuffix(s.JSONName(), "Size"):
		return sentence + " bytes"
	default:
		return sentence
	}
}

func (e *errand) printChange(name string, before, after json.RawMessage) {
	shown := func(raw json.RawMessage) string { return cmp.Or(string(raw), "none") }
	line := []terminal.Text{terminal.Bold(name), terminal.Plain("  " + shown(before))}
	switch {
	case name == "token":
		done := "set"
		switch {
		case bytes.Equal(after, []byte("null")):
			done = "taken out"
		case !bytes.Equal(before, []byte("null")):
			done = "replaced"
		}
		line = []terminal.Text{terminal.Bold(name), terminal.Plain("  " + done)}
	case bytes.Equal(before, after):
		line = append(line, terminal.Plain(", as before"))
	default:
		line = append(line, terminal.Plain(" → "), terminal.Bold(shown(after)))
	}
	e.screen.Line(line...)
}

// shownSettings are the settings of an instance, with secrets masked.
type shownSettings struct {
	answer  []byte
	etag    string
	members map[string]json.RawMessage
	Token   settings.Secrets `json:"token"`
	Pinned  []string         `json:"pinned"`
}

func (e *errand) settings() (*shownSettings, error) {
	return e.callSettings(apiCall{path: "settings"})
}

// patchSettings changes settings, unless somebody else did since they had the ETag.
func (e *errand) patchSettings(etag string, values map[string]json.RawMessage) (*shownSettings, error) {
	body, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	return e.callSettings(apiCall{method: http.MethodPatch, path: "settings", body: body, header: http.Header{"If-Match": {etag}}})
}

func (e *errand) callSettings(call apiCall) (*shownSettings, error) {
	s := new(shownSettings)
	var err error
	if s.answer, s.etag, err = e.callTagged(call); err != nil {
		return nil, err
	}
	return s, errors.Join(e.decode(s.answer, s), e.decode(s.answer, &s.members))
}

// noteWhyOff says why webhooks are off, if they are.
func (e *errand) noteWhyOff() {
	var about api.About
	if _, err := e.get("about", nil, &about); err == nil && about.OffBecause != "" {
		e.screen.Note("Webhooks are off: %s", about.OffBecause)
	}
}

// callTagged is call for something with an ETag.
func (e *errand) callTagged(call apiCall) (answer []byte, etag string, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, callPatience)
	defer cancel()
	call.path = e.path(call.path)
	resp, err := e.client.open(ctx, call)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	answer, err = e.client.readAnswer(resp)
	return answer, resp.Header.Get("ETag"), err
}

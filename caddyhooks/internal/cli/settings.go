package cli

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func setVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set SETTING {VALUE | --default}",
		Short: "Changes a live setting",
		Long: `
Changes a setting while Caddy runs. A value is written as in a Caddyfile, and enabled is on or off. A setting that the Caddyfile sets can
only be changed there. Hooks are changed by caddy hooks hook put, and a token is best made by caddy hooks token generate.

The settings are ` + text.List(settingWords()) + `; their names in JSON, such as maxPayloadSize, are known, too.

  caddy hooks set enabled on
  caddy hooks set max_payload 256KB
  caddy hooks set history off
  caddy hooks set wake_fold 30s 50
  caddy hooks set default_timeout --default
  caddy hooks set token --secret-file token`,
		Args: checkSetArgs,
		RunE: withSession(runSet),
	}
	cmd.ValidArgsFunction = completeSettings
	cmd.Flags().Bool("default", false, "take the setting back, so that its default is in force")
	newTokenInput.AddFlags(cmd)
	flags.AddYes(cmd)
	return cmd
}

// newTokenInput is a token to be set.
var newTokenInput = flags.SecretInput{Flag: "secret", File: "secret-file", Variable: "HOOKS_TOKEN", Noun: "token"}

// settingWords are the names of the settings in a Caddyfile.
func settingWords() []string {
	words := make([]string, len(settings.AllSettings))
	for i, setting := range settings.AllSettings {
		words[i] = settingWord(setting)
	}
	return words
}

// settingWord is the name of a setting in a Caddyfile.
func settingWord(setting settings.Setting) string {
	return setting.CaddyfileDirective(new(settings.Settings)).Word
}

// completeSettings offers settings, and values of those that have few.
func completeSettings(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	words := settingWords()
	if len(args) > 0 {
		words = nil
	}
	if len(args) == 1 {
		words = map[string][]string{"enabled": {"on", "off"}, "memory_preset": settings.MemoryPresets}[args[0]]
	}
	return flags.CompleteWords(words...)(cmd, args, typed)
}

// namedSetting finds a setting by its name in a Caddyfile or in JSON, nil if there is none.
func namedSetting(name string) settings.Setting {
	for _, setting := range settings.AllSettings {
		if settingWord(setting) == name || setting.JSONName() == name {
			return setting
		}
	}
	return nil
}

// isSecret reports whether a setting holds secrets.
func isSecret(setting settings.Setting) bool {
	_, secret := setting.(settings.SettingOf[settings.Secrets])
	return secret
}

// checkSetArgs checks what can be known without a running Caddy. Errors do not quote values.
func checkSetArgs(cmd *cobra.Command, args []string) error {
	if err := newTokenInput.Check(cmd); err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("the setting is missing; the settings are " + text.List(settingWords()))
	}
	setting := namedSetting(args[0])
	byDefault, byFile := flags.IsOn(cmd, "default"), flags.Text(cmd, newTokenInput.File) != ""
	switch {
	case args[0] == "mappings" || args[0] == "hook":
		return errors.New("a hook is changed by: caddy hooks hook put NAME -f FILE")
	case slices.Contains(onlyInCaddyfile, args[0]):
		return fmt.Errorf("%s is set in the Caddyfile alone: change it there, and reload Caddy", args[0])
	case setting == nil:
		hint := ""
		if meant := text.Nearest(args[0], settingWords()); meant != "" {
			hint = fmt.Sprintf("did you mean %s? ", meant)
		}
		return fmt.Errorf("there is no setting %q; %sthe settings are %s", text.Abridge(args[0]), hint, text.List(settingWords()))
	case byDefault && (len(args) > 1 || byFile):
		return errors.New("--default goes without a value")
	case isSecret(setting) && len(args) > 1:
		return newTokenInput.Refused()
	case byFile && !isSecret(setting):
		return errors.New("--secret-file is for the token")
	case !byDefault && !isSecret(setting):
		_, err := readSetting(setting, args[1:])
		return err
	}
	return nil
}

// onlyInCaddyfile are the words below hooks in a Caddyfile that are no live settings. Hooks have verbs of their own.
var onlyInCaddyfile = []string{
	"path", "public_url", "health", "max_timeout", "max_request", "max_memory", "runner", "runner_for", "prices", "budget", "store", "workers",
	"queue_limit", "chat_limit", "max_attempts", "retention", "history_limit", "queue_time", "drain_timeout", "channel", "callbacks",
}

// readSetting reads a value as a Caddyfile has it, and returns it as JSON.
func readSetting(setting settings.Setting, words []string) (json.RawMessage, error) {
	if _, isFlag := setting.(settings.SettingOf[*bool]); isFlag {
		switch strings.Join(words, " ") {
		case "on", "true":
			return json.RawMessage("true"), nil
		case "off", "false":
			return json.RawMessage("false"), nil
		}
		return nil, fmt.Errorf("%s is on or off", settingWord(setting))
	}
	var s settings.Settings
	directive := setting.CaddyfileDirective(&s)
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
	return json.Marshal(setting.ShownIn(&s))
}

func runSet(s *session, cmd *cobra.Command, args []string) error {
	setting := namedSetting(args[0])
	value, err := json.RawMessage("null"), error(nil)
	switch {
	case flags.IsOn(cmd, "default"):
	case isSecret(setting):
		token, err := newTokenInput.Read(cmd, s.screen.Screen)
		if err != nil {
			return err
		}
		value = text.JSONString(token)
	default:
		if value, err = readSetting(setting, args[1:]); err != nil {
			return err
		}
	}
	before, err := s.settings()
	if err != nil {
		return err
	}
	if isSecret(setting) {
		if err := s.confirmTokens(cmd, before); err != nil {
			return err
		}
	}
	after, err := s.patchSettings(before.etag, map[string]json.RawMessage{setting.JSONName(): value})
	var refused *adminclient.RefusedError
	if errors.As(err, &refused) { // with the name that the operator used
		if rest, ok := strings.CutPrefix(refused.Sentence, setting.JSONName()+" "); ok {
			refused.Sentence = args[0] + " " + rest
		}
	}
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(after.answer)
	}
	name, same := setting.JSONName(), ", as before"
	if slices.Contains(after.Pinned, name) {
		same = ": the Caddyfile sets it"
	}
	s.screen.printChange(name, before.members[name], after.members[name], same)
	if isSecret(setting) || setting.JSONName() == "enabled" {
		s.noteWhyOff(cmd)
	}
	return nil
}

func (p printer) printChange(name string, before, after json.RawMessage, same string) {
	was, is := cmp.Or(string(before), "none"), cmp.Or(string(after), "none")
	line := terminal.Cells(terminal.Bold(name), "  "+was, " → ", terminal.Bold(is))
	switch {
	case name == "token" && is == "null":
		line = terminal.Cells(terminal.Bold(name), "  removed")
	case name == "token" && was == "null":
		line = terminal.Cells(terminal.Bold(name), "  set")
	case name == "token":
		line = terminal.Cells(terminal.Bold(name), "  replaced")
	case was == is:
		line = terminal.Cells(terminal.Bold(name), "  "+was, same)
	}
	p.Line(line...)
}

// shownSettings are the settings of an instance, with secrets masked.
type shownSettings struct {
	answer  []byte
	etag    string
	members map[string]json.RawMessage
	Token   settings.Secrets `json:"token"`
	Pinned  []string         `json:"pinned"`
}

func (s *session) settings() (*shownSettings, error) { return s.callSettings(adminclient.Call{}) }

// patchSettings changes settings, unless somebody else did since they had the ETag.
func (s *session) patchSettings(etag string, values map[string]json.RawMessage) (*shownSettings, error) {
	return s.callSettings(adminclient.Call{Method: http.MethodPatch, Body: text.PlainJSON(values), Header: http.Header{"If-Match": {etag}}})
}

func (s *session) callSettings(call adminclient.Call) (shown *shownSettings, err error) {
	shown = new(shownSettings)
	call.Path, call.ETag = "settings", &shown.etag
	if shown.answer, err = s.call(call, shown); err != nil {
		return nil, err
	}
	return shown, s.decode(shown.answer, &shown.members)
}

// noteWhyOff says why webhooks are off, if they are.
func (s *session) noteWhyOff(cmd *cobra.Command) {
	if about, err := s.About(); err == nil && about.OffBecause != "" {
		s.screen.Note("Webhooks are off: %s", whyOff(cmd, about.OffBecause))
	}
}

// whyOff is the reason, with the command that helps.
func whyOff(cmd *cobra.Command, reason string) string {
	if command := offCommand(reason); command != nil {
		reason += ": " + flags.NextCommand(cmd, command...)
	}
	return reason
}

// offCommand are the arguments of the next command that is needed to switch webhooks on, if there is one.
func offCommand(reason string) []string {
	switch {
	case strings.Contains(reason, "no token is set"):
		return []string{"token", "generate"}
	case strings.Contains(reason, "enabled is"):
		return []string{"set", "enabled", "on"}
	}
	return nil
}

func tokenVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Lists, makes and removes webhook tokens",
	}
	generate := &cobra.Command{
		Use:   "generate [--keep-old]",
		Short: "Makes a new token, and prints it once",
		Long: `
Makes a new random token, puts it in force, and prints it, and nothing else, on standard output. It is never shown again.

With --keep-old the tokens that were there before work on, until you remove them. Without, they are refused at once, and you are asked
first.

  caddy hooks token generate --keep-old > token
  caddy hooks token retire          # when all callers have the new one`,
		RunE: withSession(runTokenGenerate),
	}
	generate.Flags().Bool("keep-old", false, "let the old tokens work on")
	flags.AddYes(generate)
	retire := &cobra.Command{
		Use:   "retire [--number N]",
		Short: "Removes the oldest of several tokens",
		Long: `
Takes one of several tokens out: the oldest, or the one with a number. You see when it was last used, and are asked first. Callers that
still use it are refused from now on.

  caddy hooks token retire`,
		RunE: withSession(runTokenRetire),
	}
	retire.Flags().Int("number", 1, "which token; 1 is the oldest")
	flags.AddYes(retire)
	list := &cobra.Command{
		Use:   "list",
		Short: "Lists tokens and secrets with their age and last use",
		Long: `
Lists the tokens that all hooks take, and the secrets of hooks: since when each is set, and when a request last used it, on whatever node. A
token has a number among those of its hook, 1 is the oldest, and an id that tells nothing about it. Of one in the Caddyfile it is told when
a Caddy first saw it. Other nodes tell of their requests about once a minute.`,
		Example: `  caddy hooks token list
  caddy hooks token list --json | jq '.tokens[] | select(.lastUsedAt == null)'`,
		RunE: withSession(runTokenList),
	}
	cmd.AddCommand(list, generate, retire)
	return cmd
}

func runTokenList(s *session, _ *cobra.Command, _ []string) error {
	list, answer, err := s.tokens()
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	if len(list) == 0 {
		s.screen.Note("There are no tokens and no secrets yet. caddy hooks token generate makes a token.")
		return nil
	}
	clock := terminal.NewClock()
	var rows [][]terminal.Text
	for i := range list {
		t := &list[i]
		since := "set " + clock.Ago(t.Since)
		if t.Pinned {
			since = "in the Caddyfile, first seen " + clock.Ago(t.Since)
		}
		rows = append(rows, terminal.Cells(cmp.Or(t.Hook, "(all hooks)"), t.Scheme, strconv.Itoa(t.Number), t.ID, since, lastUse(clock, t)))
	}
	s.screen.Table([]string{"HOOK", "AUTH", "NUMBER", "ID", "SINCE", "LAST USED"}, rows)
	return nil
}

// tokens are the tokens and secrets, with their last use.
func (s *session) tokens() ([]api.Token, []byte, error) {
	var list api.TokenList
	answer, err := s.get("tokens", nil, &list)
	return list.Tokens, answer, err
}

func lastUse(clock terminal.Clock, t *api.Token) terminal.Text {
	if t.LastUsedAt == nil {
		return terminal.Faint("never")
	}
	return terminal.Plain(clock.Ago(t.LastUsedAt))
}

// tokenUse says when a token that all hooks take was last used, "" if that is not known.
func (s *session) tokenUse(number int) string {
	list, _, err := s.tokens()
	at := slices.IndexFunc(list, func(t api.Token) bool { return t.Hook == "" && t.Number == number })
	switch {
	case err != nil || at < 0:
		return "" // it is a remark
	case list[at].LastUsedAt == nil:
		return " No request has used it yet."
	default:
		return " It was last used " + terminal.NewClock().Ago(list[at].LastUsedAt) + "."
	}
}

func runTokenGenerate(s *session, cmd *cobra.Command, _ []string) error {
	before, err := s.settings()
	if err != nil {
		return err
	}
	kept, old := 0, len(before.Token)
	if flags.IsOn(cmd, "keep-old") {
		kept = old
	} else if err := s.confirmTokens(cmd, before); err != nil {
		return err
	}
	const size = 32
	random := make([]byte, size)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	token := hex.EncodeToString(random)
	// The old tokens go when the new one is printed, and not before: a token that nobody has is of no use.
	after, err := s.patchTokens(before, append(masks(old), token))
	if err != nil {
		return err
	}
	if s.json {
		err = terminal.PrintJSON(s.screen.Out(), map[string]any{"token": token, "tokens": kept + 1})
	} else {
		_, err = fmt.Fprintln(s.screen.Out(), token)
	}
	if err != nil {
		_, undone := s.patchTokens(after, append(masks(old), ""))
		return errors.Join(fmt.Errorf("the new token cannot be printed, so it is taken back: %w", err), undone)
	}
	if kept < old {
		if _, err := s.patchTokens(after, append(make([]string, old), text.Mask)); err != nil {
			return fmt.Errorf("the new token is in force, but the old ones are, too: %w", err)
		}
	}
	if s.json {
		return nil
	}
	s.screen.Note("The new token is in force. It is shown this once: give it to the callers now.")
	switch {
	case kept > 0:
		s.screen.Note("%s, until you remove it: %s", oldTokens(kept, "works on", "work on"), flags.NextCommand(cmd, "token", "retire"))
		for number := 1; number <= kept; number++ {
			s.screen.Note("Token %d of %d is an old one.%s", number, kept+1, s.tokenUse(number))
		}
	case len(before.Token) > 0:
		s.screen.Note("%s.", oldTokens(len(before.Token), "is refused from now on", "are refused from now on"))
	}
	s.noteWhyOff(cmd)
	return nil
}

func oldTokens(n int, one, many string) string {
	if n == 1 {
		return "The old token " + one
	}
	return fmt.Sprintf("The %d old tokens %s", n, many)
}

func masks(n int) []string {
	all := make([]string, n, n+1)
	for i := range all {
		all[i] = text.Mask
	}
	return all
}

// confirmTokens asks before all tokens are replaced.
func (s *session) confirmTokens(cmd *cobra.Command, before *shownSettings) error {
	if len(before.Token) == 0 {
		return nil
	}
	return flags.Confirm(cmd, oldTokens(len(before.Token), "will be refused at once.", "will be refused at once."))
}

// patchTokens replaces the tokens. A mask stands for the token in its place.
func (s *session) patchTokens(before *shownSettings, tokens []string) (*shownSettings, error) {
	return s.patchSettings(before.etag, map[string]json.RawMessage{"token": text.PlainJSON(tokens)})
}

func runTokenRetire(s *session, cmd *cobra.Command, _ []string) error {
	before, err := s.settings()
	if err != nil {
		return err
	}
	number, n := flags.Number(cmd, "number"), len(before.Token)
	switch {
	case slices.Contains(before.Pinned, "token"):
		return errors.New("the token is set in the Caddyfile: take the old one out there, and reload Caddy")
	case n == 0:
		return errors.New("there is no token")
	case n == 1:
		return fmt.Errorf("there is only one token, and without it webhooks are off: make another one first, with: %s",
			flags.NextCommand(cmd, "token", "generate", "--keep-old"))
	case number < 1 || number > n:
		return flags.Usagef("--number must be from 1, the oldest, to %d, the newest", n)
	}
	if err := flags.Confirm(cmd, fmt.Sprintf("Token %d of %d will be refused from now on.%s", number, n, s.tokenUse(number))); err != nil {
		return err
	}
	tokens := masks(n)
	tokens[number-1] = ""
	after, err := s.patchTokens(before, tokens)
	if err != nil {
		return err
	}
	if s.json {
		return terminal.PrintJSON(s.screen.Out(), map[string]int{"tokens": len(after.Token)})
	}
	s.screen.Note("Token %d of %d is removed.", number, n)
	return nil
}

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func listVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [--range 1h|6h|24h|7d]",
		Short: "Lists the hooks",
		Long: `
Lists the hooks: wake and agent, those of the Caddyfile, and those that were saved while Caddy ran. Beside each it says how callers
authenticate, how many runs were accepted and how many failed in the range of time, and when the last one was accepted. A hook that is gone
and had runs is listed, too.`,
		Example: `  caddy hooks list
  caddy hooks list --range 7d --json | jq '.[] | select(.failed > 0)'`,
		RunE: withSession(runList),
	}
	rangeFlag(cmd, "24h")
	return cmd
}

// listedHook is a row of the list, and how it is printed as JSON.
type listedHook struct {
	Name     string        `json:"name"`             // "" for hooks that are too many to be counted each on its own
	Action   engine.Action `json:"action,omitempty"` // none if the hook is gone
	AuthMode string        `json:"authMode,omitempty"`
	Pinned   bool          `json:"pinned,omitempty"` // in the Caddyfile
	Accepted int64         `json:"accepted"`
	Failed   int64         `json:"failed"`
	LastAt   *time.Time    `json:"lastAt,omitempty"`
}

func runList(s *session, cmd *cobra.Command, _ []string) error {
	during, err := rangeOf(cmd)
	if err != nil {
		return err
	}
	hooks, shown, err := s.listHooks(during)
	if err != nil {
		return err
	}
	if s.json {
		return s.printJSON(text.PlainJSON(hooks))
	}
	clock := terminal.NewClock()
	var rows [][]terminal.Text
	for _, h := range hooks {
		action, failed := terminal.Plain(string(h.Action)), terminal.Plain(terminal.WithCommas(h.Failed))
		if h.Action == "" {
			action = terminal.Faint("gone")
		}
		if h.Failed > 0 {
			failed = terminal.Bad(terminal.WithCommas(h.Failed))
		}
		rows = append(rows, terminal.Cells(cmp.Or(h.Name, "(others)"), action, h.AuthMode, terminal.WithCommas(h.Accepted), failed,
			clock.When(h.LastAt)))
	}
	s.screen.Table([]string{"HOOK", "ACTION", "AUTH", "RUNS " + during, "FAILED", "LAST"}, rows)
	for _, item := range shown.Attention {
		if item.Kind == "not_in_force" {
			s.screen.Note("! %s: %s", item.Text, item.Detail)
		}
	}
	if len(hooks) == len(builtInHooks) {
		s.screen.Note("There are no hooks of your own yet. Add one to the Caddyfile, or with caddy hooks dashboard.")
	}
	return nil
}

// builtInHooks are always there.
var builtInHooks = []listedHook{
	{Name: "wake", Action: engine.Wake, AuthMode: settings.BearerScheme.Name},
	{Name: "agent", Action: engine.Agent, AuthMode: settings.BearerScheme.Name},
}

// listHooks lists all hooks with their figures, those that had runs and are gone at the end.
func (s *session) listHooks(during string) (hooks []listedHook, shown overview, err error) {
	var mappings []settings.ShownMapping
	if _, err := s.get("mappings", nil, &mappings); err != nil {
		return nil, shown, err
	}
	if _, err := s.get("overview", url.Values{"range": {during}}, &shown); err != nil {
		return nil, shown, err
	}
	hooks = slices.Clone(builtInHooks)
	for _, m := range mappings {
		hooks = append(hooks, listedHook{Name: m.Name, Action: cmp.Or(m.Action, engine.Wake),
			AuthMode: cmp.Or(m.AuthMode, settings.BearerScheme.Name), Pinned: m.Pinned})
	}
	for _, figures := range shown.Hooks {
		at := slices.IndexFunc(hooks, func(h listedHook) bool { return h.Name == figures.Name })
		if at < 0 {
			at = len(hooks)
			hooks = append(hooks, listedHook{Name: figures.Name})
		}
		h := &hooks[at]
		h.Accepted, h.Failed, h.LastAt = figures.Accepted, figures.Failed, figures.LastAt
	}
	return hooks, shown, nil
}

func hookVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hook",
		Short: "Adds, changes and deletes custom hooks",
	}
	get := &cobra.Command{
		Use:   "get NAME",
		Short: "Prints a hook as JSON, to be edited and put back",
		Long: `
Prints a hook as JSON. Secrets are masked; a mask that is put back keeps the secret. The etag tells whether somebody else changed the hook
meanwhile: leave it in.

  caddy hooks hook get github-issues > issues.json
  caddy hooks hook put github-issues -f issues.json`,
		Args:              flags.TakesOne("the name of the hook"),
		RunE:              withSession(runHookGet),
		ValidArgsFunction: flags.CompleteOne(completeHooks),
	}
	put := &cobra.Command{
		Use:   "put NAME -f FILE",
		Short: "Adds a hook, or changes it",
		Long: `
Saves a hook that is described in a file, as JSON. It is in force at once. If the file has the etag of caddy hooks hook get, nothing is
saved when somebody else changed the hook meanwhile.

  echo '{"action": "agent", "authMode": "github", "authSecret": "{file./run/secrets/github}",
    "messageTemplate": "{issue.title}"}' > issues.json
  caddy hooks hook put github-issues -f issues.json --create`,
		Args: func(cmd *cobra.Command, args []string) error {
			if flags.Text(cmd, "file") == "" {
				return errors.New("-f is missing: name a file with the hook as JSON, or - for standard input")
			}
			return flags.TakesOne("the name of the hook")(cmd, args)
		},
		RunE:              withSession(runHookPut),
		ValidArgsFunction: flags.CompleteOne(completeHooks),
	}
	put.Flags().StringP("file", "f", "", "a file with the hook as JSON, or - for standard input")
	_ = put.MarkFlagFilename("file", "json")
	put.Flags().Bool("create", false, "only if there is no hook of that name")
	rm := &cobra.Command{
		Use:     "rm NAME",
		Aliases: []string{"delete"},
		Short:   "Deletes a hook",
		Long: `
Deletes a hook, after asking. Requests to it are answered 404 from then on; its runs are kept.

  caddy hooks hook rm github-issues`,
		Args:              flags.TakesOne("the name of the hook"),
		RunE:              withSession(runHookRm),
		ValidArgsFunction: flags.CompleteOne(completeHooks),
	}
	flags.AddYes(rm)
	cmd.AddCommand(get, put, rm)
	return cmd
}

func mappingPath(name string) string { return "mappings/" + url.PathEscape(name) }

func runHookGet(s *session, _ *cobra.Command, args []string) error {
	var etag string
	answer, err := s.call(adminclient.Call{Path: mappingPath(args[0]), ETag: &etag}, nil)
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(answer), []byte("{"))
	if !ok {
		return s.client.NoHooks()
	}
	tag := append([]byte(`{"etag":`), text.JSONString(etag)...)
	return s.printJSON(append(append(tag, ','), rest...))
}

func runHookPut(s *session, cmd *cobra.Command, args []string) error {
	data, err := flags.ReadInput(cmd, flags.Text(cmd, "file"), api.MaxBody)
	if err != nil {
		return fmt.Errorf("reading the hook: %w", err)
	}
	mapping, etag, err := splitETag(data)
	if err != nil {
		return fmt.Errorf("%s is not the JSON of a hook: %w", flags.Text(cmd, "file"), err)
	}
	call := adminclient.Call{Method: http.MethodPut, Path: mappingPath(args[0]), Body: mapping, Header: make(http.Header)}
	create := flags.IsOn(cmd, "create")
	if create {
		call.Header.Set("If-None-Match", "*")
	} else if etag != "" {
		call.Header.Set("If-Match", etag)
	}
	var tagBefore, tag string
	_, _ = s.call(adminclient.Call{Path: call.Path, ETag: &tagBefore}, nil) // "" if there is none yet
	call.ETag = &tag
	var saved settings.ShownMapping
	answer, err := s.call(call, &saved)
	switch {
	case adminclient.IsRefused(err, http.StatusPreconditionFailed) && create:
		return fmt.Errorf("there is a hook %s already: leave --create out to change it", args[0])
	case adminclient.IsRefused(err, http.StatusPreconditionFailed):
		return fmt.Errorf("%w: %s", err, flags.NextCommand(cmd, "hook", "get", args[0]))
	case adminclient.IsRefused(err, http.StatusBadRequest):
		s.noteProblems(args[0], mapping, err.Error())
	}
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	about, err := s.About()
	if err != nil {
		return err
	}
	done := terminal.Good("saved")
	if tag != "" && tag == tagBefore {
		done = terminal.Plain("unchanged")
	}
	line := []terminal.Text{done, terminal.Plain("  hook "), terminal.Bold(saved.Name)}
	if len(about.URLs) > 0 {
		line = append(line, terminal.Plain("  "+about.URLs[0]+"/"+saved.Name))
	}
	s.screen.Line(append(line, terminal.Faint("        "+flags.NextCommand(cmd, "send", saved.Name)+" --payload <file>"))...)
	for _, warning := range saved.Warnings {
		s.screen.Note("Warning: %s", warning)
	}
	s.noteWhyOff(cmd)
	return nil
}

// splitETag takes the ETag of hook get out of a mapping. What is no JSON object is an error, also if a member is there twice.
func splitETag(data []byte) (mapping []byte, etag string, err error) {
	obj, err := strictjson.ParseObject(data, strictjson.Members("etag"))
	if err != nil {
		return nil, "", err
	}
	if len(obj.Members) == 0 {
		return data, "", nil
	}
	etag, ok := obj.Members[0].Value.(string)
	if !ok {
		return nil, "", errors.New("etag must be a string, as in caddy hooks hook get")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, "", err
	}
	delete(members, "etag")
	mapping, err = json.Marshal(members)
	return mapping, etag, err
}

// noteProblems says what else is wrong with the mapping of a name, beside what is known already.
func (s *session) noteProblems(name string, mapping []byte, known string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(mapping, &members) != nil {
		return
	}
	members["name"] = text.JSONString(name)
	body := text.PlainJSON(map[string]any{"mapping": members, "payload": "{}"})
	var shown api.Preview
	if _, err := s.call(adminclient.Call{Method: http.MethodPost, Path: "preview", Body: body}, &shown); err != nil {
		return
	}
	for _, problem := range shown.Problems {
		if problem.Field != "payload" && !strings.Contains(known, problem.Message) {
			s.screen.Note("Problem: %s", problem.Message)
		}
	}
}

func runHookRm(s *session, cmd *cobra.Command, args []string) error {
	var m settings.ShownMapping
	var etag string
	if _, err := s.call(adminclient.Call{Path: mappingPath(args[0]), ETag: &etag}, &m); err != nil {
		return err
	}
	if m.Pinned { // as Caddy would say after it was asked
		return &settings.PinnedHookError{Name: m.Name}
	}
	if err := flags.Confirm(cmd, fmt.Sprintf("The hook %s will be deleted, and requests to it answered 404.", m.Name)); err != nil {
		return err
	}
	call := adminclient.Call{Method: http.MethodDelete, Path: mappingPath(args[0]), Header: http.Header{"If-Match": {etag}}}
	if _, err := s.call(call, nil); err != nil {
		return err
	}
	if s.json {
		return terminal.PrintJSON(s.screen.Out(), map[string]string{"deleted": m.Name})
	}
	s.screen.Note("The hook %s is deleted.", m.Name)
	return nil
}

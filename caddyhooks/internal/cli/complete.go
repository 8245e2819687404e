package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

const (
	// completePatience is how long a shell waits for a word to be completed. Somebody has pressed a key, and wants to type on.
	completePatience = time.Second
	// completeAtMost bounds the runs and deliveries that a shell is offered, the newest first.
	completeAtMost = 50
	// completeText bounds what is told about a word, in bytes.
	completeText = 60
)

// complete makes the completion of a word from what a running Caddy knows. Without one, or if it takes too long, there is nothing to
// offer: a shell has no place for an error.
func complete(find func(s *session) ([]cobra.Completion, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, stop := context.WithTimeout(cmd.Context(), completePatience)
		defer stop()
		s, err := newSession(ctx, cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		words, err := find(s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return flags.BeginningWith(words, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// What a running Caddy has names for.
var (
	completeHooks    = completeNamed((*session).customHooks)
	completeAllHooks = flags.CompleteAny(flags.CompleteWords("wake", "agent"), completeHooks)
	completeRunners  = completeNamed((*session).runners)
	completeChannels = completeNamed((*session).channels)
)

// named is something with a name.
type named struct{ name, kind string }

func (s *session) customHooks() (hooks []named, err error) {
	var mappings []settings.Mapping
	_, err = s.get("mappings", nil, &mappings)
	for _, m := range mappings {
		hooks = append(hooks, named{m.Name, string(cmp.Or(m.Action, engine.Wake))})
	}
	return hooks, err
}

func (s *session) channels() (channels []named, err error) {
	about, err := s.About()
	for _, channel := range about.Channels {
		channels = append(channels, named{channel.Name, channel.Kind})
	}
	return channels, err
}

func (s *session) runners() (runners []named, err error) {
	about, err := s.About()
	for _, runner := range about.Runners {
		runners = append(runners, named{runner.Name, runner.Kind})
	}
	return runners, err
}

// completeNamed offers names.
func completeNamed(find func(s *session) ([]named, error)) cobra.CompletionFunc {
	return complete(func(s *session) (words []cobra.Completion, err error) {
		all, err := find(s)
		for _, one := range all {
			words = append(words, describedWord(one.name, one.kind))
		}
		return words, err
	})
}

// completeInstances offers the names of instances.
func completeInstances(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, stop := context.WithTimeout(cmd.Context(), completePatience)
	defer stop()
	client, err := newClient(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := client.Instances(ctx) // none if it fails
	return flags.BeginningWith(names, typed), cobra.ShellCompDirectiveNoFileComp
}

// describedWord is a word to be offered, and what it is. Texts from outside become part of it.
func describedWord(word, description string) cobra.Completion {
	description = oneline.Of(strings.TrimSpace(description), completeText)
	if !utf8.ValidString(word) || description == "" {
		return word
	}
	return cobra.CompletionWithDesc(word, description)
}

// noteUnknownHooks says which of some hooks, with commas between them, there are not. They may have been there, and their runs with
// them, so this is no error.
func (s *session) noteUnknownHooks(wanted string) {
	s.noteUnknown("hook", wanted, s.customHooks, "wake", "agent")
}

// noteUnknownRunners is noteUnknownHooks for runners.
func noteUnknownRunners(s *session, wanted string) { s.noteUnknown("runner", wanted, s.runners) }

// noteUnknownChannel says that there is no such channel.
func noteUnknownChannel(s *session, wanted string) { s.noteUnknown("channel", wanted, s.channels) }

func (s *session) noteUnknown(kind, wanted string, find func() ([]named, error), names ...string) {
	if wanted == "" {
		return
	}
	all, err := find()
	if err != nil {
		return // it is a remark
	}
	for _, one := range all {
		names = append(names, one.name)
	}
	for _, name := range splitList(wanted) {
		if slices.Contains(names, name) {
			continue
		}
		hint := "there is none"
		if len(names) > 0 {
			hint = "there is " + text.List(names)
		}
		if meant := text.Nearest(name, names); meant != "" {
			hint = "did you mean " + meant + "?"
		}
		s.screen.Note("There is no %s %s now; %s", kind, oneline.Of(name, maxReasonCell), hint)
	}
}

// splitList are the words of a list as flags take it.
func splitList(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// noteUnknownHooks says which of some hooks, with commas between them, there are not. They may have been there, and their runs with
// them, so this is no error.
func (e *errand) noteUnknownHooks(wanted string) {
	var mappings []settings.Mapping
	if wanted == "" {
		return
	}
	if _, err := e.get("mappings", nil, &mappings); err != nil {
		return // it is a remark
	}
	names := []string{"wake", "agent"}
	for _, m := range mappings {
		names = append(names, m.Name)
	}
	e.noteUnknown("hook", wanted, names)
}

// noteUnknownChannel says that there is no such channel.
func (e *errand) noteUnknownChannel(wanted string) {
	var about api.About
	if wanted == "" {
		return
	}
	if _, err := e.get("about", nil, &about); err != nil {
		return
	}
	var names []string
	for _, channel := range about.Channels {
		names = append(names, channel.Name)
	}
	e.noteUnknown("channel", wanted, names)
}

func (e *errand) noteUnknown(kind, wanted string, names []string) {
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
		e.screen.Note("%s", fmt.Sprintf("There is no %s %s now; %s", kind, oneline.Of(name, maxReasonCell), hint))
	}
}

// splitList are the words of a list as flags take it.
func splitList(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

package turns

import (
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

func TestMessageCannotBeACommandOfItsProgram(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ preset, message, want string }{
		"command of Claude Code":        {"claude", "/clear", "\n/clear"},
		"path for Claude Code":          {"claude", "/etc/passwd is open", "\n/etc/passwd is open"},
		"space before the slash":        {"claude", " /clear", " /clear"},
		"slash inside":                  {"claude", "and/or", "and/or"},
		"file for Claude Code":          {"claude", "@/etc/hostname", "@/etc/hostname"},
		"nothing for Claude Code":       {"claude", "", ""},
		"command of Gemini":             {"gemini", "/init", "The message is:\n\n/init"},
		"dollar for Gemini":             {"gemini", " $init", "The message is:\n\n $init"},
		"dollar for Claude Code":        {"claude", "$5 is enough", "$5 is enough"},
		"command of opencode":           {"opencode", "\n /init", "The message is:\n\n\n /init"},
		"command of Qwen Code":          {"qwen", "\u00a0\ufeff/quit", "The message is:\n\n\u00a0\ufeff/quit"},
		"control characters before it":  {"copilot", "\x00\x1b/quit", "The message is:\n\n\x00\x1b/quit"},
		"slash inside for Gemini":       {"gemini", "a /init", "a /init"},
		"nothing but blanks for Gemini": {"gemini", " \n", " \n"},
		"Codex has no commands":         {"codex", "/clear", "/clear"},
		"no preset":                     {"", "/clear", "/clear"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Neutralise(test.preset, test.message); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Nothing of a message is lost, and no program sees a slash first.
func FuzzNeutralise(f *testing.F) {
	for _, message := range []string{"/clear", " /clear", "$clear", "\ufeff/", "\u2028/x", "", "a", "\xff/"} {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message string) {
		for _, preset := range []string{"claude", "codex", "gemini", "opencode", "qwen", "copilot", ""} {
			got := Neutralise(preset, message)
			if !strings.HasSuffix(got, message) {
				t.Errorf("%s: %q became %q", preset, message, got)
			}
			if preset == "" || preset == "codex" {
				continue
			}
			if preset != "claude" {
				got = strings.TrimSpace(got)
			}
			if strings.HasPrefix(got, "/") || preset != "claude" && strings.HasPrefix(got, "$") {
				t.Errorf("%s gets %q", preset, got)
			}
		}
	})
}

func TestSystemTextStandsBeforeAMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		turn engine.Turn
		want string
	}{
		"none":         {engine.Turn{Action: engine.Agent, Message: "Hello"}, "Hello"},
		"instructions": {engine.Turn{Action: engine.Agent, Message: "Hello", System: " As JSON.\n"}, "As JSON.\n\nHello"},
		"outside text": {engine.Turn{Action: engine.Wake, Message: "Hello", System: "As JSON."}, ExternalNotice + "\n\nAs JSON.\n\nHello"},
		"marked text":  {engine.Turn{Action: engine.Agent, Message: externalMark + "] a"}, ExternalNotice + "\n\n" + externalMark + "] a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := WithSystem(&test.turn, test.turn.Message); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

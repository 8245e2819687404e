package modeltest

import (
	"encoding/json"
	"regexp"
	"strings"
)

// notes are the names of blocks that agents put before, after or between the words of their users.
var notes = []string{"system-reminder", "environment_context", "session_context", "user_instructions", "local-command-caveat"}

// wholeNotes begin messages that are notes: of OpenClaw, and of Claude Code when the model does not answer by the tool for JSON.
var wholeNotes = []string{"<<<BEGIN_OPENCLAW", "[structured-output-enforce]"}

// OpenClaw puts the time in front of a message, and some facts after the last one.
var (
	stampOfOpenClaw = regexp.MustCompile(`^\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d [^\]]+\] `)
	factsOfOpenClaw = regexp.MustCompile(`(?s)\n\nRuntime: agent=.*$`)
)

// withoutNotes is a text as it was given to the agent.
func withoutNotes(text string) string {
	for _, note := range wholeNotes {
		if strings.HasPrefix(text, note) {
			return ""
		}
	}
	for again := true; again; {
		again = false
		for _, name := range notes {
			rest, ok := strings.CutPrefix(strings.TrimLeft(text, " \n"), "<"+name+">")
			if _, after, closed := strings.Cut(rest, "</"+name+">"); ok && closed {
				text, again = strings.TrimLeft(after, "\n"), true
			}
		}
	}
	return stampOfOpenClaw.ReplaceAllString(factsOfOpenClaw.ReplaceAllString(text, ""), "")
}

// isForTitle reports whether an agent wants a title for a session: Claude Code over ACP, and opencode, without tools, and Codex, which
// puts the request into the message.
func isForTitle(c *Call) bool {
	if strings.HasPrefix(c.Asked, "Your task is to generate a very short title for a conversation") {
		return true
	}
	return len(c.Tools) == 0 && (strings.Contains(c.System, "You are naming a coding session") || strings.Contains(c.System, "You are a title generator"))
}

// textsOf are the texts of a content, which is a string or a list of parts.
func textsOf(content json.RawMessage) (texts []string) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []string{text}
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(content, &parts)
	for _, part := range parts {
		texts = append(texts, part.Text)
	}
	return texts
}

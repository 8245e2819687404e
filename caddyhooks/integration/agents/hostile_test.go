//go:build agents

package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/modeltest"
)

// TestAgentsTakeMessagesForText sends messages that would be commands, options or names of files if somebody typed them. All of
// them reach the model as text, and nothing of a file does.
func TestAgentsTakeMessagesForText(t *testing.T) {
	forEach(t, func(t *testing.T, a *agent, runner string) {
		s := a.start(t, runner)
		outside := write(t, t.TempDir(), "outside.txt", "content-of-the-file-outside")
		inside := write(t, s.work, "inside.txt", "content-of-the-file-inside")
		contents := []string{"content-of-the-file-outside", "content-of-the-file-inside", firstLine(t, "/etc/passwd")}
		messages := []string{
			"/clear", "/init", "/help", " /memory show", "@/etc/passwd", "@inside.txt", "!uname",
			fmt.Sprintf("Look at @%s, @%s, @inside.txt, @./inside.txt and @/etc/passwd", outside, inside),
			"--dangerously-skip-permissions", "-p x",
			"bell \a, escape \x1b[31mred\x1b[0m, delete \x7f, tab \t, return \r, none \x01\x02\x03 and \u0085 end",
			"nothing \x00 at all",
			"much: " + strings.Repeat("word. ", 150_000) + "end",
		}
		s.model.Answer("much: word.", modeltest.Step{Text: "That is much."}) // agents mistrust an answer that repeats itself
		ids := make(map[string]string)
		for _, message := range messages {
			ids[message] = s.accept(request{"message": message, "timeoutSeconds": 200})
		}
		for _, message := range messages {
			run := s.EndedWithin(modeltest.Patience, ids[message])
			if run.Status != "completed" {
				t.Errorf("%.60q: got %.300s, because %.1000s", message, run.Body, s.ReasonOf(run.RunID))
				continue
			}
			text := message
			if a == gemini && runner == commandRunner {
				text = strings.ReplaceAll(message, "@", `\@`) // or it would look for files in its folder
			}
			as := slices.IndexFunc(s.model.CallsFor(text), func(call *modeltest.Call) bool {
				return strings.HasSuffix(call.Asked, text) && len(call.Messages) == 1
			})
			if as < 0 {
				t.Errorf("%.60q did not reach the model as it is", message)
			}
		}
		for _, call := range s.model.Calls() {
			for _, content := range contents {
				if call.Holds(content) {
					t.Errorf("at %.60q the model was sent %s", call.Asked, content)
				}
			}
		}
		for _, name := range []string{"CLAUDE.md", "AGENTS.md", "GEMINI.md"} { // which /init writes
			if _, err := os.Stat(filepath.Join(s.work, name)); err == nil {
				t.Errorf("%s was written", name)
			}
		}
	})
}

func firstLine(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

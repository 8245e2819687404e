package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/models"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/programs"
)

// readGemini reads an output of Gemini CLI that ended with a code.
func readGemini(output string, code int, turn engine.Turn) presetEnd {
	reader := &geminiReader{p: &presetTurn{programTurn: &programTurn{turn: &turn}, session: "6b9e1ba6-06e4-4621-aac1-fc15b0ec947d"}}
	err := readLines(strings.NewReader(output), reader.line)
	end := reader.end(programExit{how: &supervise.Exit{Code: code}, stderr: "words of the program"})
	if err != nil {
		end.err = err
	}
	return end
}

func TestGeminiOutputIsRead(t *testing.T) {
	t.Parallel()
	const (
		begun = `{"type":"init","session_id":"d554f147-82b5-4056-a6de-4d86aa5d0e6d","model":"m"}` + "\n" + `{"type":"message","role":"user","content":"hello"}` + "\n"
		said  = `{"type":"message","role":"assistant","content":"two ","delta":true}` + "\n" + `{"type":"message","role":"assistant","content":"words","delta":true}` + "\n"
		done  = `{"type":"result","status":"success"}` + "\n"
	)
	for name, test := range map[string]struct {
		output string
		code   int
		text   string
		err    string // a part of it
		lost   bool
	}{
		"an answer":           {output: begun + said + done, text: "two words"},
		"noise between lines": {output: "Empty file created.\n" + begun + said + "{\n" + done, text: "two words"},
		"the last answer after a tool": {output: begun + said + `{"type":"tool_use","tool_name":"read_file"}` + "\n" +
			`{"type":"message","role":"assistant","content":"the end"}` + "\n" + done, text: "the end"},
		"a warning":          {output: begun + `{"type":"error","severity":"warning","message":"hm"}` + "\n" + said + done, text: "two words"},
		"no result":          {output: begun + said, err: "exit code 0"},
		"no text":            {output: begun + done, err: "no answer"},
		"an error of a good": {output: begun + said + `{"type":"result","status":"error","error":{"type":"E","message":"quota"}}`, err: "quota"},
		"a code":             {output: begun + said + done, code: 144, err: "exit code 144"},
		"an unknown session": {code: 42, err: "words of the program", lost: true},
		"a bad input":        {output: begun, code: 42, err: "exit code 42"},
		"too much text":      {output: begun + `{"type":"message","role":"assistant","content":"` + strings.Repeat("x", answers.MaxReply+1) + `"}` + "\n" + done, err: answers.ErrTooLarge.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := readGemini(test.output, test.code, engine.Turn{})
			switch {
			case test.err == "" && (end.err != nil || end.reply.Text != test.text):
				t.Errorf("got %q, %v", end.reply.Text, end.err)
			case test.err != "" && (end.err == nil || !strings.Contains(end.err.Error(), test.err)):
				t.Errorf("the error is %v", end.err)
			case end.lostSession != test.lost:
				t.Errorf("the session is lost: %v", end.lostSession)
			}
		})
	}
}

func TestGeminiAnswersAreTold(t *testing.T) {
	t.Parallel()
	var told strings.Builder
	readGemini(`{"type":"message","role":"assistant","content":"first"}
{"type":"tool_use"}
{"type":"message","role":"assistant","content":"sec"}
{"type":"message","role":"assistant","content":"ond"}`, 0, engine.Turn{Emit: func(p engine.Progress) { told.WriteString(p.Text) }})
	if want := "first\n\nsecond"; told.String() != want {
		t.Errorf("got %q, want %q", told.String(), want)
	}
}

func TestGeminiSettingsLoseTheirTools(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{`{"mcpServers":{"a":{}},"tools":{"core":["read_file"],"allowed":["x"]},"security":{"auth":{"selectedType":"x"}}}`, "// a comment\n{}", "null", "[]"} {
		var got struct {
			MCP      any `json:"mcpServers"`
			Tools    map[string][]string
			Security any
		}
		if err := json.Unmarshal(withoutTools([]byte(settings)), &got); err != nil || got.MCP != nil || got.Security == nil || len(got.Tools) != 1 || got.Tools["core"] == nil || len(got.Tools["core"]) > 0 {
			t.Errorf("%s became %+v, %v", settings, got, err)
		}
	}
}

// A turn without memory has a home of its own, with the operator's settings, which goes with it.
func TestGeminiForgetsATurnWithoutMemory(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "gemini")
	script := "#!/bin/sh\nmessage=$(cat)\necho \"$message\" > \"$HOME/kept\"\ncp \"$HOME/.gemini/settings.json\" \"$HOME/../../seen\"\n" +
		`echo '{"type":"message","role":"assistant","content":"done"}'; echo '{"type":"result","status":"success"}'` + "\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	place := t.TempDir()
	c, err := NewOneShot("gemini", programs.Program{}, models.ByTier{}, []string{program}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	c.Place(place)
	if err := os.MkdirAll(filepath.Join(place, "home/.gemini"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place, "home", GeminiSettingsFile), []byte(`{"mine":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, repair := range []int{0, 1} {
		reply, err := c.Run(t.Context(), engine.Turn{Message: "a word to forget", MemoryPreset: engine.MemoryDisabled, Repair: repair})
		if err != nil || reply.Text != "done" || reply.Session != "" {
			t.Fatalf("got %+v, %v", reply, err)
		}
		seen, err := os.ReadFile(filepath.Join(place, "seen"))
		if err != nil || !strings.Contains(string(seen), `"mine":true`) || strings.Contains(string(seen), `"core":[]`) != (repair > 0) {
			t.Errorf("the settings were %s, %v", seen, err)
		}
		if left, err := filepath.Glob(filepath.Join(place, "*", "kept")); err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v", left, err)
		}
		if left, err := filepath.Glob(filepath.Join(place, "once-*")); err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	}
}

func FuzzGeminiReader(f *testing.F) {
	f.Add(`{"type":"message","role":"assistant","content":"x"}`+"\n"+`{"type":"result","status":"success"}`, 0)
	f.Add(`{"type":"error","message":"x"}`, 42)
	f.Fuzz(func(t *testing.T, output string, code int) {
		end := readGemini(output, code, engine.Turn{})
		if (end.err == nil) != (end.reply.Text != "") {
			t.Errorf("got %q with %v", end.reply.Text, end.err)
		}
		if end.err == nil && (code != 0 || !strings.Contains(output, "success")) {
			t.Error("a failure was taken for an answer")
		}
	})
}

package command

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
)

// Whatever a program writes, an answer is good text, what was told is the answer, and it does not matter how the bytes arrive.
func FuzzCommandOutput(f *testing.F) {
	for _, output := range []string{
		"Hello\n", "a\r\n", "a\r", "\n", "é\xc3", "\xff", `{"a":"b"}`, `{"a":["b",1,null,{"c":true}]}`, "{\"a\":\"b\"}\nnoise\n{\"a\":\"\\n\"}\n{\"a\":\"c\\r\"}", `{"a":"\ud83d"}`, "",
	} {
		f.Add([]byte(output))
	}
	var readers []replyReader
	for _, reply := range []ReplyFormat{
		{}, {Format: "json", Path: "$.a"}, {Format: "json", Path: "$..a[*]"}, {Format: "lines", Filter: "$.a", Path: "$.a"}, {Format: "lines", Filter: "$.a != 'b'", Path: "$..*"},
	} {
		reader, err := reply.compile()
		if err != nil {
			f.Fatal(err)
		}
		readers = append(readers, reader)
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		for _, reader := range readers {
			read := func(r io.Reader) (string, string, error) {
				var told strings.Builder
				text, err := reader.read(r, func(p engine.Progress) {
					if p.Text == "" || !utf8.ValidString(p.Text) {
						t.Errorf("told %q", p.Text)
					}
					told.WriteString(p.Text)
				})
				return text, told.String(), err
			}
			text, told, err := read(bytes.NewReader(output))
			if err == nil && (text != told || strings.TrimSpace(text) == "" || !utf8.ValidString(text) || len(text) > answers.MaxReply) {
				t.Errorf("got %q, told %q", text, told)
			}
			if err != nil && (text != "" || strings.ContainsAny(err.Error(), "\r\n\x00\x1b")) {
				t.Errorf("got %q and %q", text, err)
			}
			slowText, slowTold, slowErr := read(iotest.OneByteReader(bytes.NewReader(output)))
			if slowText != text || (slowErr == nil) != (err == nil) || err == nil && slowTold != told {
				t.Errorf("got %q, %v, and byte by byte %q, %v", text, err, slowText, slowErr)
			}
		}
	})
}

// Whatever a program of a preset writes, there is an answer or an error, and an answer is good text that the program called a success.
func fuzzPreset(f *testing.F, preset, success string) {
	f.Fuzz(func(t *testing.T, output []byte, code uint8, stderr string) {
		for _, p := range []*presetTurn{memoryTurn(), schemaTurn()} {
			p.turn.Emit = func(progress engine.Progress) {
				if progress.Text == "" || !utf8.ValidString(progress.Text) {
					t.Errorf("told %q", progress.Text)
				}
			}
			end := readPreset(preset, p, string(output), exited(int(code), stderr))
			if strings.ContainsFunc(end.reply.Session, unicode.IsControl) && !strings.ContainsFunc(idOf(end.reply.Session), unicode.IsControl) {
				t.Errorf("the session is %q", end.reply.Session)
			}
			if end.err != nil {
				if end.reply.Text != "" || strings.ContainsAny(end.err.Error(), "\r\n\x00\x1b") {
					t.Errorf("got %q and %q", end.reply.Text, end.err)
				}
				var unavailable *engine.UnavailableError
				if errors.As(end.err, &unavailable) && (end.lostSession || end.refusedSchema) {
					t.Errorf("busy, and to be started again: %+v", end)
				}
				continue
			}
			if text := end.reply.Text; strings.TrimSpace(text) == "" || !utf8.ValidString(text) || len(text) > answers.MaxReply {
				t.Errorf("got %q", text)
			}
			if code != 0 || !strings.Contains(strings.ToLower(string(output)), success) || end.lostSession || end.refusedSchema {
				t.Errorf("%q with exit code %d is a success: %+v", output, code, end)
			}
		}
	})
}

func FuzzClaudeOutput(f *testing.F) {
	f.Add([]byte(claudeSays+claudeSucceeds), uint8(0), "")
	f.Add([]byte(claudeSays), uint8(1), "No conversation found --json-schema")
	f.Add([]byte(strings.Replace(claudeSucceeds, "null", "529", 1)), uint8(1), "")
	f.Add([]byte(strings.Replace(claudeSucceeds, `"result"`, `"structured_output":{"a":"\ud83d"},"result"`, 1)), uint8(0), "")
	f.Add([]byte(`{"type":"result","errors":["a"],"permission_denials":[{"tool_name":"Bash"}]}`), uint8(0), "")
	f.Add([]byte(claudeSays+claudeUsed), uint8(0), "")
	fuzzPreset(f, "claude", "is_error")
}

func FuzzCodexOutput(f *testing.F) {
	f.Add([]byte(codexSays+codexSucceeds), uint8(0), "")
	f.Add([]byte(codexSays+`{"type":"turn.failed","error":{"message":"invalid_json_schema"}}`), uint8(1), "no rollout found")
	f.Add([]byte(`{"type":"error","message":"\u001b"}`), uint8(1), "\x1b")
	f.Add([]byte(codexSays+`{"type":"turn.completed","usage":{"input_tokens":"\u0001","output_tokens":[1e99]}}`), uint8(0), "")
	fuzzPreset(f, "codex", "turn.completed")
}

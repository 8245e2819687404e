package openai

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
)

// Whatever a server sends, an answer is good text, what was emitted is the answer, and it does not matter how the bytes arrive.
func FuzzCompletion(f *testing.F) {
	for _, body := range []string{
		saysHello, whole(`{"content":[{"type":"text","text":"a"}]}`, "stop"), whole(`{"content":"\ud83d","refusal":"no"}`, "length"),
		events(piece("a"), `{"choices":[],"model":"m","usage":{"prompt_tokens":[1],"completion_tokens":1e99,"total_tokens":"x"}}`, "[DONE]"),
		`{"error":{"message":"no"}}`, `{"error":"no"}`, `{"object":"error"}`, `[]`, "\ufeff{}", "<html>",
		events(piece("Hel"), piece("lo"), stopPiece, "[DONE]"), strings.ReplaceAll(events(piece("a"), "[DONE]"), "\n", "\r\n"),
		strings.ReplaceAll(events(piece("a"), "[DONE]"), "\n", "\r"), ": OPENROUTER PROCESSING\n\nevent: error\ndata: x\n\n",
		"data: " + piece("a") + "\ndata: " + piece("b") + "\ndata: [DONE]", "event: x\ndata: {}\n\n\ufeffdata:[DONE]\n\n",
		events(`{"choices":[{"delta":{"content":"a\ud83d"}}]}`, `{"choices":[{"delta":{"content":"\ude00b"}}]}`, "[DONE]"),
		events(`{"choices":[{"delta":{"content":"\\ud83d\ud83d\""}}]}`, `{"choices":[{"delta":{"reasoning":"\ude00","content":"b"}}]}`, "[DONE]"),
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		read := func(r io.Reader) (string, string, error) {
			var emitted strings.Builder
			text, _, err := readCompletion(r, func() {}, func(p engine.Progress) {
				if p.Text == "" || !utf8.ValidString(p.Text) {
					t.Errorf("emitted %q", p.Text)
				}
				emitted.WriteString(p.Text)
			})
			return text, emitted.String(), err
		}
		text, emitted, err := read(bytes.NewReader(body))
		if err == nil && (text != emitted || strings.TrimSpace(text) == "" || !utf8.ValidString(text) || len(text) > answers.MaxReply) {
			t.Errorf("got %q, emitted %q", text, emitted)
		}
		if err != nil && text != "" {
			t.Errorf("got %q and %v", text, err)
		}
		slowText, slowEmitted, slowErr := read(iotest.OneByteReader(bytes.NewReader(body)))
		if slowText != text || slowEmitted != emitted || (slowErr == nil) != (err == nil) {
			t.Errorf("got %q, %q, %v, and byte by byte %q, %q, %v", text, emitted, err, slowText, slowEmitted, slowErr)
		}
		if err != nil && strings.ContainsAny(httpcall.ReadingError(err).Error(), "\r\n\x00\x1b") {
			t.Errorf("the error has several lines: %q", err)
		}
	})
}

// The members of an operator's body are sent as they are.
func FuzzRequestMembers(f *testing.F) {
	for _, body := range []string{`{"temperature":0.20}`, `{"response_format":{},"a":[1, 2]}`, `{"model":1}`, `{"<":"\u003c"}`, `[]`, `{`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		members, err := parseMembers(body, chatMembers)
		if err != nil {
			return
		}
		request := `{"model":"m"` + string(members.format) + string(members.others) + `}`
		if _, err := parseDocument([]byte(request)); err != nil {
			t.Errorf("%q makes the request %s: %v", body, request, err)
		}
	})
}

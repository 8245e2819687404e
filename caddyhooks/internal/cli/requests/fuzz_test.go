package requests

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func FuzzAnswerOfASite(f *testing.F) {
	for _, seed := range []string{`{"status":"accepted","runId":"a","chatId":"b"}`, `{"status":"error","errorMessage":"no\u009b"}`, "text\x1b[31m\n", `{"runs":[1]}`, ``, `[]`, "\xff"} {
		f.Add(202, []byte(seed), "a\u202e")
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, location string) {
		resp := &http.Response{StatusCode: status, Header: http.Header{"Location": {location}}}
		sent := newSentJSON(resp, body, "https://example.com", time.Second)
		var out strings.Builder
		s := &sending{cmd: new(cobra.Command), hook: "a", url: "https://example.com", screen: terminal.New(nil, &out, &out)}
		s.print(sent)
		if err := s.refusal(sent); err != nil {
			out.WriteString(err.Error())
		}
		if err := terminal.PrintJSON(&out, sent); err != nil {
			t.Errorf("%q is printed as no JSON: %v", body, err)
		}
		for _, r := range out.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%q is among what is printed: %q", r, out.String())
			}
		}
	})
}

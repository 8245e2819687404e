package admin

import (
	"encoding/json"
	"testing"
)

func FuzzParseAnswer(f *testing.F) {
	for _, body := range []string{`{"answer":"yes"}`, `{"answer":7}`, `{"answer":null}`, `{"answer":"a","answer":"b"}`, `{"other":1}`, `{}`, ``, `[]`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parseAnswer(body)
		if err != nil {
			return
		}
		var sent struct{ Answer string }
		if err := json.Unmarshal(body, &sent); err != nil || sent.Answer != got {
			t.Errorf("%q: read %q, and encoding/json %q, %v", body, got, sent.Answer, err)
		}
	})
}

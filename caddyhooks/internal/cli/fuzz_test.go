package cli

import (
	"encoding/json"
	"testing"
)

func FuzzSplitETag(f *testing.F) {
	for _, seed := range []string{`{"etag":"\"a\"","action":"agent"}`, `{"action":"agent"}`, `{"etag":1}`, `{"etag":"a","etag":"b"}`, `[]`, ``, `{"e\u0074ag":"a"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		mapping, etag, err := splitETag(data)
		if err != nil {
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(mapping, &members); err != nil {
			t.Fatalf("%q became %q: %v", data, mapping, err)
		}
		if _, left := members["etag"]; left {
			t.Errorf("%q became %q, with the ETag %q taken out", data, mapping, etag)
		}
	})
}

package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

var errEnough = errors.New("enough repairs")

func TestHostileSchemasAndAnswersStayWithinBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	for name, c := range hostileCases() {
		t.Run(name, func(t *testing.T) {
			var schema *Schema
			var err error
			cost := measure(func() { schema, err = Compile([]byte(c.Schema)) })
			cost.check(t, "compile", len(c.Schema))
			if err != nil {
				t.Logf("refused: %v", err)
				if len(err.Error()) > 600 {
					t.Errorf("the error is %d bytes long", len(err.Error()))
				}
				return
			}
			var result Result
			cost = measure(func() {
				result, err = schema.Fulfil(context.Background(), c.Answer, func(_ context.Context, attempt int, p Prompt) (string, error) {
					if limit := len(c.Schema) + 2*maxRepairExcerpt; len(p.Message) > limit {
						t.Errorf("the prompt is %d bytes long", len(p.Message))
					}
					if attempt > 1 { // the others would take as long
						return "", errEnough
					}
					return strings.Repeat(" ", attempt) + "\n" + c.Answer + "\nattempt " + fmt.Sprint(attempt), nil
				})
			})
			t.Logf("%d repairs, %v", result.Repairs, err)
			cost.check(t, "fulfil", 2*len(c.Answer))
			if err != nil && !errors.Is(err, ErrNotFulfilled) && !errors.Is(err, errEnough) {
				t.Errorf("unexpected error: %v", err)
			}
		})
	}
}

func TestReferencesReadNoFileAndReachNoNetwork(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"const":"do not tell"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = io.WriteString(w, `{"const":"do not tell"}`)
	}))
	defer server.Close()

	for _, target := range []string{
		"file://" + secret, secret, "file:///etc/passwd", "file:///dev/zero", "../../../../etc/passwd",
		server.URL + "/schema.json", "//" + strings.TrimPrefix(server.URL, "http://") + "/x", "https://json-schema.org/draft-07/schema",
		"https://json-schema.org/draft/2020-12/schema", "urn:example:a", "data:application/json,{}",
	} {
		for _, schema := range []string{
			`{"$ref":%q}`, `{"$dynamicRef":%q}`, `{"properties":{"a":{"$ref":"%s#/const"}}}`, `{"$id":%[1]q,"$ref":"other.json"}`,
			`{"$schema":%q}`, `{"$ref":"#/$defs/a","$defs":{"a":{"$id":"file:///x","$ref":%q}}}`,
		} {
			raw := fmt.Sprintf(schema, target)
			if strings.Contains(raw, `"$schema":"`+draft) {
				continue
			}
			_, err := Compile([]byte(raw))
			if err == nil {
				t.Errorf("%s is accepted", raw)
			} else if strings.Contains(err.Error(), "do not tell") || strings.Contains(err.Error(), "root:") {
				t.Errorf("%s: the error leaks: %v", raw, err)
			}
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

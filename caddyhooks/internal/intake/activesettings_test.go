package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
)

// However many hooks are refused and left out, each is compiled once.
func TestRefusedHooksAreCompiledOnce(t *testing.T) {
	t.Parallel()
	c := fuzzCompiler()
	checked := 0
	c.Rules.CheckSchema = func([]byte) error {
		checked++
		if checked%2 == 0 {
			return nil
		}
		return errors.New("odd")
	}
	const hooks = 100
	var live settings.Settings
	for i := range hooks {
		live.Mappings = append(live.Mappings, settings.Mapping{
			Name: fmt.Sprintf("h%d", i), AgentFields: settings.AgentFields{SyncResponse: true, ResponseJSONSchema: json.RawMessage(`{}`)},
		})
	}
	active, err := c.Compile(nil, live, func(settings.Part, error) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if checked != hooks || len(active.Problems) != hooks/2 || len(active.Hooks) != hooks/2+len(c.Pinned.Mappings) ||
		len(active.Settings.Mappings) != len(active.Hooks) {
		t.Errorf("%d hooks were checked, %d have problems, %d of %d are in force", checked, len(active.Problems), len(active.Hooks),
			len(active.Settings.Mappings))
	}
	if len(live.Mappings) != hooks || live.Mappings[0].Name != "h0" {
		t.Error("the live settings have changed")
	}
}

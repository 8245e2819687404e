package caddyhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

// However many hooks are refused and left out, each is compiled once.
func TestRefusedHooksAreCompiledOnce(t *testing.T) {
	t.Parallel()
	c := fuzzCompiler()
	checked := 0
	c.rules.checkSchema = func([]byte) error {
		checked++
		if checked%2 == 0 {
			return nil
		}
		return errors.New("odd")
	}
	const hooks = 100
	var live Settings
	for i := range hooks {
		live.Mappings = append(live.Mappings, Mapping{
			Name: fmt.Sprintf("h%d", i), AgentFields: AgentFields{SyncResponse: true, ResponseJSONSchema: json.RawMessage(`{}`)},
		})
	}
	active, err := c.compile(nil, live, func(part, error) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if checked != hooks || len(active.problems) != hooks/2 || len(active.hooks) != hooks/2+len(c.pinned.Mappings) ||
		len(active.settings.Mappings) != len(active.hooks) {
		t.Errorf("%d hooks were checked, %d have problems, %d of %d are in force", checked, len(active.problems), len(active.hooks), len(active.settings.Mappings))
	}
	if len(live.Mappings) != hooks || live.Mappings[0].Name != "h0" {
		t.Error("the live settings have changed")
	}
}

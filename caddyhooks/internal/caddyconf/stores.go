package caddyconf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// StoresOf finds the hooks handlers of a configuration in JSON, wherever they are, and returns how their stores are configured, by the
// names of their instances.
func StoresOf(config []byte) (stores map[string]json.RawMessage, err error) {
	stores = make(map[string]json.RawMessage)
	var look func(part json.RawMessage) error
	look = func(part json.RawMessage) error {
		var list []json.RawMessage
		var object map[string]json.RawMessage
		if json.Unmarshal(part, &list) != nil && json.Unmarshal(part, &object) == nil && string(object["handler"]) == `"hooks"` {
			return addHandler(stores, part)
		}
		for _, item := range append(list, slices.Collect(maps.Values(object))...) { // of what it is; a text or a number has none
			if err := look(item); err != nil {
				return err
			}
		}
		return nil
	}
	return stores, look(config)
}

func addHandler(stores map[string]json.RawMessage, part json.RawMessage) error {
	var h struct {
		Name  string          `json:"name"`
		Store json.RawMessage `json:"store"`
	}
	if err := json.Unmarshal(part, &h); err != nil {
		return fmt.Errorf("reading a hooks handler: %w", err)
	}
	name, store := cmp.Or(h.Name, "default"), h.Store
	if store == nil {
		store = json.RawMessage(`{"store":"bolt"}`)
	}
	if other, isThere := stores[name]; isThere && !bytes.Equal(other, store) {
		return fmt.Errorf("hooks instance %q is configured twice, and with different stores", name)
	}
	stores[name] = store
	return nil
}

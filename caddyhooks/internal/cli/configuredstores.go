package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// configuredStore is the store of an instance in a configuration, which has tables.
type configuredStore struct {
	instance string
	store    schemaStore
}

// schemaStore is a store that may offer to have its tables made by somebody else than its nodes.
type schemaStore interface {
	// Place names the database and the schema of an instance, without secrets.
	Place(instance string) string
	SchemaOf(instance string) string
	// Role is the role of the nodes.
	Role() string
	// MigrateStore brings the schema up to date, and returns its version before and now.
	MigrateStore(ctx context.Context, instance string) (from, to int, err error)
	// MigrateStoreAs is MigrateStore by the DSN of a role that may do more.
	MigrateStoreAs(ctx context.Context, instance, dsn string) (from, to int, err error)
}

// schemaStores reads a configuration as `caddy validate` does, and returns its stores that have tables, or that of one instance. Nothing but the stores is
// provisioned: secrets of other parts need not be there.
func schemaStores(ctx context.Context, file, adapter, only string) ([]configuredStore, error) {
	data, _, _, err := caddycmd.LoadConfig(file, adapter)
	if err != nil {
		return nil, err
	}
	raw, err := configuredHandlers(data)
	if err != nil {
		return nil, fmt.Errorf("the configuration %s: %w", file, err)
	}
	names := slices.Sorted(maps.Keys(raw))
	if len(names) == 0 {
		return nil, fmt.Errorf("the configuration %s has no hooks", file)
	}
	if only != "" {
		if raw[only] == nil {
			return nil, fmt.Errorf("there is no hooks instance %q in %s; there is %s", only, file, text.List(names))
		}
		names = []string{only}
	}
	loading, cancel := caddy.NewContext(caddy.Context{Context: ctx})
	defer cancel()
	var found []configuredStore
	for _, name := range names {
		store, err := loading.LoadModule(&struct {
			StoreRaw json.RawMessage `caddy:"namespace=hooks.stores inline_key=store"`
		}{raw[name]}, "StoreRaw")
		if err != nil {
			return nil, fmt.Errorf("hooks instance %q: loading store: %w", name, err)
		}
		if store, ok := store.(schemaStore); ok {
			found = append(found, configuredStore{name, store})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no store of %s is in PostgreSQL: the hooks of %s have another one, whose tables nobody has to make", file, text.List(names))
	}
	return found, nil
}

// configuredHandlers finds the hooks handlers of a configuration, wherever they are, and returns how their stores are configured, by the names of their
// instances.
func configuredHandlers(config []byte) (stores map[string]json.RawMessage, err error) {
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

package api

import (
	"encoding/json"
	"time"
)

// SettingsChange is one change of the live settings as the store keeps it and the admin API shows it. One change may be about
// several settings. It holds no secret.
type SettingsChange struct {
	Origin
	Changes []ChangedPart `json:"changes"`
	More    int           `json:"more,omitempty"` // parts that are not listed
}

// Origin is where a change of the live settings came from.
type Origin struct {
	By      string `json:"by,omitempty"` // who made it; changes of before do not tell
	Via     string `json:"via"`
	Address string `json:"address"`
}

// ChangedPart is a setting or a mapping that was changed. Before and After are the values that were saved, null where there
// was none; of a mapping that was there before and after, the fields that differ.
type ChangedPart struct {
	What   string          `json:"what"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
	Cut    bool            `json:"cut,omitempty"` // values are shortened or left out
}

// ChangesPage is a page of the list of changes.
type ChangesPage struct {
	Changes []Change `json:"changes"`
	Cursor  string   `json:"cursor,omitempty"` // of the next page
}

// Change is a change as the admin API shows it.
type Change struct {
	At       *time.Time `json:"at"`
	Revision int64      `json:"revision"`
	SettingsChange
}

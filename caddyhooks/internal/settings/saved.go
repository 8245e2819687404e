package settings

// PartName is the name of a mapping among the parts of the live settings, as the list of changes has it.
func PartName(mapping string) string { return "mappings/" + mapping }

// NumberChanges gives the parts of the live settings that differ the number of their change, and forgets parts that are gone.
func NumberChanges(numbers map[string]int64, before, after *Settings, number int64) map[string]int64 {
	numbered := make(map[string]int64, len(numbers))
	for _, e := range AllSettings {
		name := e.JSONName()
		if n := numbers[name]; n > 0 {
			numbered[name] = n
		}
		if !e.Same(before, after) {
			numbered[name] = number
		}
	}
	had := MappingsByName(before.Mappings)
	for i := range after.Mappings {
		m := &after.Mappings[i]
		name := PartName(m.Name)
		if was := had[m.Name]; was == nil || !SameMapping(was, m) {
			numbered[name] = number
		} else if n := numbers[name]; n > 0 {
			numbered[name] = n
		}
	}
	return numbered
}

// SavedSettings are the live settings as the store keeps them.
type SavedSettings struct {
	Settings
	Paused    []Pause          `json:"pauses,omitempty"`     // the Pauses of the settings
	Dismissed []Dismissal      `json:"dismissals,omitempty"` // the Dismissals of the settings
	Changed   map[string]int64 `json:"changed,omitempty"`    // the number of the last change of each part; see etag
}
